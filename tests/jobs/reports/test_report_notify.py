"""The webhook: off unless asked, at most twelve lines, nothing raw from logs, once a failure family. Against a local server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from jobs.core.errors import FleetdiffError
from jobs.reports.notify import announce
from jobs.reports.pages.night import Night
from jobs.reports.pages.summary import summary


@pytest.fixture
def server():
    """A server on the loopback that keeps what it is sent; `status` is what it answers."""

    class Keeper(BaseHTTPRequestHandler):
        sent: ClassVar[list[dict]] = []
        status = 200

        def do_POST(self):
            Keeper.sent.append(
                {"type": self.headers["Content-Type"], "body": self.rfile.read(int(self.headers["Content-Length"])).decode()}
            )
            self.send_response(Keeper.status)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Keeper)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    Keeper.url = f"http://127.0.0.1:{listening.server_port}/hook"
    yield Keeper
    listening.shutdown()
    listening.server_close()
    thread.join()


@pytest.fixture
def night(hang_parts, hostile_parts):
    """Twenty failures of one family, two jobs alone, one of them with a hostile id."""
    job, document = hang_parts["job"][0], hang_parts["diagnosis"][0]
    rows = [summary({**job, "job_id": f"job-{i}", "ingest_batch": 3}, document) for i in range(21)]
    rows.append(summary({**hostile_parts["job"][0], "ingest_batch": 3}, hostile_parts["diagnosis"][0]))
    family = {"family_id": "f1", "label": "secret words from a log", "n_jobs": 20, "is_new": True}
    return Night(rows, [family], {f"job-{i}": "f1" for i in range(20)})


def test_nothing_is_sent_unless_an_address_is_given(server, night, tmp_path, monkeypatch):
    monkeypatch.delenv("FLEETDIFF_WEBHOOK_URL", raising=False)
    assert announce(night, str(tmp_path), {}) == 0
    assert server.sent == []
    assert list(tmp_path.iterdir()) == []


def test_a_short_message_without_log_text_once_a_family(server, night, tmp_path, hostile):
    settings = {"webhook_url": server.url, "report_url": "https://reports.example/night/index.html"}
    assert announce(night, str(tmp_path), settings) == 3  # the family once, and two jobs alone
    (first,) = server.sent
    assert first["type"] == "application/json"
    assert list(json.loads(first["body"])) == ["text"]
    text = json.loads(first["body"])["text"]
    lines = text.splitlines()
    assert len(lines) <= 12
    assert lines[0] == "*fleetdiff*: 22 jobs ended, 22 jobs failed, 8.604 GPU-hours in failed jobs"
    assert lines[-1] == "<https://reports.example/night/index.html|Open the night's page>"
    assert sum(line.startswith("•") for line in lines) == 3
    for raw in ("Watchdog", "secret words", "slow read", *hostile):
        assert raw not in text
    assert "<" not in "".join(lines[:-1])
    assert announce(night, str(tmp_path), settings) == 0  # told already
    assert len(server.sent) == 1
    more = Night([*night.jobs, {**night.jobs[0], "job_id": "job-99"}], night.families, {**night.family_of, "job-99": "f1"})
    assert announce(more, str(tmp_path), settings) == 0  # the same family again


def test_a_message_that_fails_is_not_remembered_and_does_not_fail_the_night(server, night, tmp_path, caplog):
    server.status = 500
    settings = {"webhook_url": server.url}
    assert announce(night, str(tmp_path), settings) == 0
    assert "not sent" in caplog.text
    assert server.url not in caplog.text
    server.status = 200
    assert announce(night, str(tmp_path), settings) == 3


def test_many_new_failures_still_make_a_short_message(server, hang_parts, tmp_path):
    job, document = hang_parts["job"][0], hang_parts["diagnosis"][0]
    night = Night([summary({**job, "job_id": f"job-{i}", "ingest_batch": 1}, document) for i in range(500)])
    announce(night, str(tmp_path), {"webhook_url": server.url, "report_url": "https://reports.example/"})
    assert len(json.loads(server.sent[-1]["body"])["text"].splitlines()) <= 12


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x", "javascript:1"])
def test_only_http_addresses_are_called(night, tmp_path, address):
    with pytest.raises(FleetdiffError, match="not an http"):
        announce(night, str(tmp_path), {"webhook_url": address})
