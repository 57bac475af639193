"""Look-alikes and verdicts over a lake written without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.cli import similar, verdict
from jobs.core import lake as reader
from jobs.core.errors import FleetdiffError, NotFoundError, UsageError
from jobs.similarity.transform import family_row
from ml.similarity.fingerprint import pack

OOM = {"symptom:oom": 3.0, "alert_template:t1": 2.0, "exception:OutOfMemoryError": 2.0, "phase:train": 0.5}
HANG = {"symptom:hang": 3.0, "alert_template:t2": 2.0, "collective:all_reduce": 1.5, "phase:train": 0.5}


def fingerprint(job_id: str, words: dict[str, float], day: int = 1, family: str = "f1", **more: Any) -> dict[str, Any]:
    tokens, texts = pack(words.items())
    return {
        "job_id": job_id, "tokens": tokens, "words": texts, "state": "FAILED", "symptom": "oom", "cause_class": "undetermined",
        "user": "ana", "lineage": job_id, "ended_at": datetime(2026, 5, day, tzinfo=UTC), "nodes": [], "versions": ["torch 2.9"],
        "family_id": family, "ingest_batch": 1, **more,
    }  # fmt: skip


FINGERPRINTS = [
    fingerprint("now", OOM, 9, nodes=["n1"]),
    fingerprint("same", OOM, 1, nodes=["n1"]),
    fingerprint("close", {**OOM, "template:t9": 1.0}, 2, nodes=["n2"], versions=["torch 2.8"]),
    fingerprint("partly", {"symptom:oom": 3.0, "template:t7": 2.0}, 3),
    fingerprint("other", HANG, 4, "f2", symptom="hang"),
    fingerprint("silent", {}, 5, "f3", symptom="undetermined"),
]


def put(root: Path, name: str, rows: list[dict[str, Any]]) -> None:
    write_deltalake(reader.table_path(root, name), pa.Table.from_pylist(rows, schema=reader.arrow_schema(name)), mode="append")


@pytest.fixture
def root(tmp_path: Path) -> str:
    reader.create_missing(tmp_path)
    put(tmp_path, "job_fingerprints", FINGERPRINTS)
    put(tmp_path, "failure_families", [family_row(FINGERPRINTS[:4], newest=1)])
    template = {"alert": "oom", "is_predefined": False, "n_events": 1, "n_jobs": 1, "library_version": "1"}
    put(tmp_path, "templates", [{"template_id": "t1", "template": "CUDA out of memory <*>\x1b[31m", **template}])
    job = {"nodes": [], "flags": [], "notes": [], "job_hash": "x"}
    states = {"good": "COMPLETED", "unseen": "FAILED", **{row["job_id"]: "FAILED" for row in FINGERPRINTS}}
    put(tmp_path, "training_jobs", [{**job, "job_id": name, "state": state} for name, state in states.items()])
    return str(tmp_path)


def asked(root: str, job_id: str) -> dict[str, Any]:
    done = CliRunner().invoke(similar.command, [job_id, "--lake", root, "--json"], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.output)
    return document


def judged(root: str, job_id: str, *words: str) -> None:
    CliRunner().invoke(verdict.command, [job_id, "--lake", root, "--author", "bo", *words], catch_exceptions=False)


def test_past_failures_are_ranked_with_what_they_share(root: str) -> None:
    document = asked(root, "now")
    assert [(each["job_id"], each["score"]) for each in document["similar"]] == [
        ("same", 1.0), ("close", pytest.approx(7.5 / 8.5, abs=0.01)), ("partly", pytest.approx(3 / 9.5, abs=0.01)),
    ]  # fmt: skip
    assert document["similar"][0]["shared"] == {
        "symptom": ["oom"], "templates": ["CUDA out of memory <*>\x1b[31m"], "exception": ["OutOfMemoryError"], "phase": ["train"],
    }  # fmt: skip


def test_it_says_how_often_where_on_which_versions_and_when(root: str) -> None:
    seen = asked(root, "now")["seen"]
    assert (seen["n_jobs"], seen["nodes"], seen["versions"]) == (3, ["n1", "n2"], ["torch 2.9", "torch 2.8"])
    assert (seen["first_at"], seen["last_at"]) == ("2026-05-01T00:00:00.000Z", "2026-05-03T00:00:00.000Z")
    assert asked(root, "now")["family"]["n_jobs"] == 4


def test_a_verified_verdict_outranks_a_closer_look_alike_and_a_guess_does_not(root: str) -> None:
    judged(root, "close", "--cause", "leak in the loader", "--guess", "--at", "2026-05-10")
    assert [each["job_id"] for each in asked(root, "now")["similar"]] == ["same", "close", "partly"]
    judged(root, "partly", "--cause", "batch too large", "--note", "halve it", "--at", "2026-05-11")
    document = asked(root, "now")
    assert [each["job_id"] for each in document["similar"]] == ["partly", "same", "close"]
    assert document["similar"][0]["verdict"] == {
        "job_id": "partly", "cause": "batch too large", "note": "halve it", "is_verified": True, "author": "bo",
        "written_at": "2026-05-11T00:00:00.000Z",
    }  # fmt: skip


def test_the_newest_verdict_of_a_job_counts(root: str) -> None:
    judged(root, "same", "--cause", "second", "--at", "2026-05-12")
    judged(root, "same", "--cause", "first", "--at", "2026-05-10")
    assert asked(root, "now")["similar"][0]["verdict"]["cause"] == "second"
    assert asked(root, "same")["verdict"]["cause"] == "second"


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("good", "completed without a symptom"),
        ("other", "no past failure looks alike: the best score is"),
        ("silent", "no past failure looks alike"),
    ],
)
def test_without_a_look_alike_it_says_why(root: str, job: str, reason: str) -> None:
    document = asked(root, job)
    assert document["similar"] == []
    assert reason in document["refused"]


@pytest.mark.parametrize(
    ("command", "words", "error"),
    [
        (similar.command, ["nobody"], NotFoundError),
        (similar.command, ["unseen"], FleetdiffError),
        (verdict.command, ["nobody", "--cause", "x"], NotFoundError),
        (verdict.command, ["now", "--cause", " "], UsageError),
        (verdict.command, ["now", "--cause", "x", "--at", "yesterday"], UsageError),
    ],
)
def test_wrong_questions_are_answered_in_one_line(root: str, command: Any, words: list[str], error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        CliRunner().invoke(command, [*words, "--lake", root], catch_exceptions=False)
    assert "\n" not in str(raised.value)


def test_text_for_people_is_plain(root: str) -> None:
    judged(root, "same", "--cause", "bad\x1b[31m\nboard", "--at", "2026-05-12")
    text = CliRunner().invoke(similar.command, ["now", "--lake", root], catch_exceptions=False).output
    assert "\x1b" not in text
    assert "verified cause: bad [31m board" in text
    assert "seen in 3 other jobs of 3 tasks, on n1, n2, from 2026-05-01T00:00:00.000Z to 2026-05-03T00:00:00.000Z" in text


def test_as_a_process_it_prints_json_alone_and_loads_neither_spark_nor_pandas(root: str) -> None:
    watch = (
        "import sys, atexit; sys.argv = ['fleetdiff', *sys.argv[1:]]\n"
        "atexit.register(lambda: print(sorted({'pyspark', 'pandas', 'sklearn', 'scipy'} & sys.modules.keys()), file=sys.stderr))\n"
        "from jobs.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch, "similar", "now", "--lake", root, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["similar"]
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("batches", "expected"),
    [((1, 1, 1), (0, False, 0.0)), ((1, 1, 2), (1, False, 0.5)), ((2, 2, 2), (3, True, None))],
)
def test_a_family_is_new_when_all_its_jobs_came_tonight(batches: tuple[int, ...], expected: tuple[Any, ...]) -> None:
    row = family_row([fingerprint(f"job-{n}", OOM, ingest_batch=batch) for n, batch in enumerate(batches)], newest=2)
    assert (row["n_new"], row["is_new"], row["growth"]) == expected
    assert row["label"] == "oom: OutOfMemoryError, train"
