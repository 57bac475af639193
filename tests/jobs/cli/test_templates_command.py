"""`fleetdiff templates FILE…` on bare files."""

import gzip
import json

import pytest
from click.testing import CliRunner

from jobs.cli.templates import command
from jobs.core.errors import FleetdiffError

LINES = [f"Jun 14 15:16:{n:02} combo sshd[{n}]: session opened for user {u}" for n, u in enumerate(("ann", "bob", "cyd", "dee"))]


def run(*args):
    result = CliRunner().invoke(command, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_every_line_of_plain_text_gives_one_row_in_order(tmp_path):
    log = tmp_path / "system.log"
    log.write_text("\n".join(LINES) + "\n\nJun 14 15:17:00 combo su[9]: session closed for user ann\n")
    rows = [json.loads(line) for line in run(log, "--json").splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 6]
    assert [row["template"] for row in rows] == ["session opened for user <*>"] * 4 + ["session closed for user ann"]
    assert {row["file"] for row in rows} == {str(log)}
    assert len({row["template_id"] for row in rows}) == 2
    assert list(rows[0]) == ["file", "line", "template_id", "template"]


def test_a_traceback_is_one_event(tmp_path):
    log = tmp_path / "rank3.log"
    log.write_text(
        '2026-11-30 04:14:12 INFO t:1 | start\nTraceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    g()\nValueError: bad 3\n'
    )
    rows = [json.loads(line) for line in run(log, "--json").splitlines()]
    assert [(row["line"], row["template"]) for row in rows][1] == (2, "Traceback (most recent call last): <*> ValueError: bad <*>")
    assert len(rows) == 2


def test_ids_do_not_depend_on_files_or_order(tmp_path):
    whole, first, second = tmp_path / "a.log", tmp_path / "b.log.gz", tmp_path / "c.log"
    whole.write_text("\n".join(LINES))
    first.write_bytes(gzip.compress("\n".join(LINES[2:]).encode()))
    second.write_text("\n".join(LINES[1::-1]))
    ids = {json.loads(line)["template_id"] for line in run(whole, "--json").splitlines()}
    assert {json.loads(line)["template_id"] for line in run(second, first, "--json").splitlines()} == ids


def test_people_get_a_table(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("\n".join(LINES))
    assert "4 events, 1 templates" in run(log)


@pytest.mark.parametrize("content", [None, bytes(range(32)) * 400])
def test_what_cannot_be_read_is_one_line(tmp_path, content):
    log = tmp_path / "x.log"
    if content:
        log.write_bytes(content)
    with pytest.raises(FleetdiffError, match=r"x\.log: "):
        CliRunner().invoke(command, [str(log)], catch_exceptions=False)


def test_own_rules_are_used(tmp_path):
    log, rules = tmp_path / "x.log", tmp_path / "rules.yaml"
    log.write_text("welcome to 1\n")
    rules.write_text("predefined: [{id: site.hi, template: 'hi', pattern: '^welcome'}]")
    assert json.loads(run(log, "--json", "--rules", rules))["template_id"] == "site.hi"
