"""One real night: the example archive through the real scheduler, real Spark and Delta, to pages in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from jobs.cli.plan import plan
from jobs.core import lake as rows_of
from schemas import tables

pytestmark = [pytest.mark.airflow, pytest.mark.spark]


def fleetdiff(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "jobs", *map(str, arguments)], capture_output=True, text=True, timeout=540, check=False
    )


@pytest.fixture(scope="module")
def night(root, examples, tmp_path_factory):
    """What the night printed, and the folder in which it left its lake, report and log."""
    if not (root / ".venv-airflow" / "bin" / "airflow").exists():
        pytest.skip("no .venv-airflow here: `make setup` makes it")
    folder = tmp_path_factory.mktemp("night")
    script = [root / "examples" / "night.sh", examples / "archive", folder / "lake", folder / "report"]
    environment = {**os.environ, "FLEETDIFF_BUILD": str(folder / "build"), "FLEETDIFF_DRIVER_MEMORY": "2g"}
    done = subprocess.run([*map(str, script)], capture_output=True, text=True, env=environment, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done, folder


@pytest.fixture(scope="module")
def readme_figures(root):
    """The README's table of figures on the examples: name to (numerator, denominator)."""
    found = re.findall(r"^\| `(\w+)` \| (\d+) of (\d+) ", (root / "README.md").read_text(), re.MULTILINE)
    assert found, "the README has no table of figures"
    return {name: (int(numerator), int(denominator)) for name, numerator, denominator in found}


@pytest.mark.timeout(1300)
def test_the_night_ends_with_ten_lines_that_a_person_can_read(night, examples):
    done, folder = night
    lines = done.stdout.strip().splitlines()
    n_jobs = len(list((examples / "truth").glob("*.json")))
    assert len(lines) <= 10
    assert lines[0].startswith(f"{n_jobs} jobs read, 5 failed, {n_jobs} diagnosed")
    assert lines[-1] == f"report: {folder}/report/index.html"
    assert re.search(r"\[1/1\] ingest +[\d.]+ s", done.stderr)


def test_every_task_of_the_plan_ran(night):
    log = (night[1] / "build" / "night.log").read_text()
    assert all(f"end task task_id={task['task']}" in log for task in plan()["tasks"])


def test_no_figure_is_below_the_one_in_the_readme(night, examples, readme_figures):
    done = fleetdiff("evaluate", "--truth", examples / "truth", "--lake", night[1] / "lake", "--json")
    figures = json.loads(done.stdout)
    for name, (numerator, denominator) in readme_figures.items():
        have = figures[name]
        assert have["denominator"] == denominator, name
        assert have["numerator"] <= numerator if name == "false_accusation_rate" else have["numerator"] >= numerator, name


def test_every_expectation_that_stops_a_stage_holds_and_no_value_is_kept(night):
    verdicts = rows_of.rows(night[1] / "lake", "dq_results").to_pylist()
    assert {v["suite"] for v in verdicts} >= {"training_jobs", "log_events", "diagnoses", "baselines"}
    assert [v for v in verdicts if not v["is_success"] and v["severity"] == "critical"] == []


def test_nothing_that_was_read_is_lost(night):
    ledger = rows_of.rows(night[1] / "lake", "ingested_files", ["n_read", "n_kept", "n_quarantined"]).to_pylist()
    assert sum(row["n_read"] for row in ledger) > 50_000
    assert all(row["n_read"] == row["n_kept"] + row["n_quarantined"] for row in ledger)


def test_look_ups_answer_without_spark(night):
    lake = night[1] / "lake"
    diagnosis = json.loads(fleetdiff("diagnosis", "job-7135", "--lake", lake, "--json").stdout)
    assert diagnosis["symptom"] == "hang"
    assert diagnosis["verified"] is False
    baselines = json.loads(fleetdiff("baseline", "job-7135", "--lake", lake, "--json").stdout)["baselines"]
    assert {b["job_id"] for b in baselines} <= {"job-7107", "job-7114", "job-7268"}
    assert baselines
    absent = fleetdiff("diagnosis", "no-such-job", "--lake", lake)
    assert (absent.returncode, absent.stdout) == (1, "")


@pytest.mark.browser
def test_the_page_says_what_the_diagnosis_says_and_asks_for_nothing(night, chromium):
    page_file = night[1] / "report" / "jobs" / "job-7135.html"
    diagnosis = json.loads(fleetdiff("diagnosis", "job-7135", "--lake", night[1] / "lake", "--json").stdout)
    asked = []
    page = chromium.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    text = page.inner_text("body")
    page.close()
    best = diagnosis["candidates"][0]
    assert best["nodes"][0] in text
    assert f"{best['score']:.2f}" in text
    assert f"iteration {diagnosis['onset']['iteration']}" in text
    assert all(evidence["statement"].split(";")[0][:60] in text for evidence in best["evidence"])
    assert all(baseline["job_id"] in text for baseline in diagnosis["baselines"])
    assert asked == [page_file.as_uri()]


@pytest.mark.timeout(600)
def test_a_second_night_over_the_same_archive_writes_no_new_table_version(night, examples):
    lake, report = night[1] / "lake", night[1] / "report"
    before = {name: rows_of.version(lake, name) for name in tables()}
    done = fleetdiff("run", examples / "archive", "--lake", lake, "--report", report)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {name: rows_of.version(lake, name) for name in tables()} == before
