"""`fleetdiff diagnosis` and `fleetdiff evaluate` on a lake of literal diagnoses, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.cli import diagnosis, evaluate
from jobs.core import lake as reader
from jobs.core.errors import CheckError, FleetdiffError, NotFoundError, UsageError
from jobs.diagnoses.assemble import diagnosis_row
from ml.fusion.types import Case, Template
from ml.log_diffs.topology import Finding, Job, Place

PLACES = tuple(Place(r, f"n{r // 2}", r % 2) for r in range(4))
HOSTILE = "\x1b[31mRuntimeError: [red]bad[/red] <script>\x07"


def case(job_id: str, state: str) -> Case:
    job = Job(job_id, state, nodes=("n0", "n1"), places=PLACES, world_size=4, coverage={"logs": 1.0})
    killed = Finding(
        "logs",
        "spatial",
        "rank_exit_signal",
        f"rank 2 on n1 was ended by SIGKILL {HOSTILE}",
        0.93,
        ("n1",),
        (2,),
        at=10.0,
        refs=(("a.log", 3),),
    )
    seen = Finding("logs", "temporal", "progressed", "x", 0.0, iteration=50)
    onset = Finding("logs", "temporal", "onset", "x", 0.0, at=9.0, iteration=50, phase="train")
    return Case(job, (killed, seen, onset), (Template("t", "exit", "signal", 0.9, 1, example=HOSTILE),))


@pytest.fixture
def root(tmp_path: Path) -> str:
    reader.create_missing(tmp_path)
    rows = [diagnosis_row(case("job-1", "FAILED")), diagnosis_row(case("job-2", "COMPLETED"))]
    write_deltalake(
        reader.table_path(tmp_path, "diagnoses"), pa.Table.from_pylist(rows, schema=reader.arrow_schema("diagnoses")), mode="append"
    )
    return str(tmp_path)


def run(command: Any, *arguments: str, **more: Any) -> Any:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False, standalone_mode=False, **more)


def test_json_is_the_document_and_nothing_else(root):
    found = json.loads(run(diagnosis.command, "job-1", "--lake", root, "--json").stdout)
    assert (found["job_id"], found["symptom"], found["candidates"][0]["nodes"], found["verified"]) == (
        "job-1",
        "crash",
        ["n1"],
        False,
    )


def test_all_is_one_line_a_job_in_order(root):
    lines = run(diagnosis.command, "--all", "--lake", root, "--json").stdout.splitlines()
    assert [json.loads(line)["job_id"] for line in lines] == ["job-1", "job-2"]


def test_people_read_symptom_candidates_and_where_it_stands(root):
    text = run(diagnosis.command, "job-1", "--lake", root).stdout
    assert "job-1: crash (state FAILED)" in text
    assert "1. n1 (rank 2)" in text
    assert "[a.log:3]" in text
    assert "root cause" not in text.lower()


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {}])
def test_text_of_a_log_cannot_steer_the_terminal(root, environment):
    text = run(diagnosis.command, "job-1", "--lake", root, env=environment).stdout
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]bad[/red]" in text


def test_a_verdict_of_a_person_confirms(root):
    row = {
        "job_id": "job-1",
        "cause": "x",
        "note": None,
        "is_verified": True,
        "author": "a",
        "written_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    write_deltalake(
        reader.table_path(root, "verdicts"), pa.Table.from_pylist([row], schema=reader.arrow_schema("verdicts")), mode="append"
    )
    assert json.loads(run(diagnosis.command, "job-1", "--lake", root, "--json").stdout)["verified"] is True


@pytest.mark.parametrize(("arguments", "error"), [(("nobody",), NotFoundError), ((), UsageError), (("job-1", "--all"), UsageError)])
def test_mistakes_are_told_in_one_line(root, arguments, error):
    with pytest.raises(error, match=r"^[^\n]+$"):
        run(diagnosis.command, *arguments, "--lake", root)


def test_no_lake_is_told_by_its_path(tmp_path):
    with pytest.raises(FleetdiffError, match="no such table"):
        run(diagnosis.command, "job-1", "--lake", str(tmp_path / "none"))


@pytest.fixture
def truths(tmp_path: Path) -> str:
    folder = tmp_path / "truth"
    folder.mkdir()
    for job_id, symptom, nodes, spatial in (
        ("job-1", "crash", ["n1"], "localised"),
        ("job-2", "none", [], "none"),
        ("job-3", "hang", ["n0"], "localised"),
    ):
        known = {
            "job_id": job_id,
            "symptom": symptom,
            "faulty_nodes": nodes,
            "faulty_ranks": [],
            "spatial": spatial,
            "onset_iteration": None,
            "indicating": None,
        }
        (folder / f"{job_id}.json").write_text(json.dumps(known))
    return str(folder)


def test_figures_have_numerators_and_a_row_a_job(root, truths):
    found = json.loads(run(evaluate.command, "--truth", truths, "--lake", root, "--json").stdout)
    assert found["symptom_accuracy"] == {"value": 0.6667, "numerator": 2, "denominator": 3}  # job-3 has no diagnosis
    assert found["node_top1"]["denominator"] == 2
    assert [row["job_id"] for row in found["jobs"]] == ["job-1", "job-2", "job-3"]
    assert "node_top1" in run(evaluate.command, "--truth", truths, "--lake", root).stdout


@pytest.mark.parametrize(
    ("bar", "is_met"),
    [
        ("symptom_accuracy=0.6", True),
        ("symptom_accuracy=0.9", False),
        ("false_accusation_rate=0.05", True),
        ("rank_top1=0.5", False),
    ],
)
def test_a_figure_below_its_bar_fails(root, truths, bar, is_met):
    arguments = ("--truth", truths, "--lake", root, "--json", "--require", bar)
    if is_met:
        run(evaluate.command, *arguments)
    else:
        with pytest.raises(CheckError, match=bar.split("=")[0]):
            run(evaluate.command, *arguments)


def test_a_broken_truth_is_told_by_its_file(root, tmp_path):
    folder = tmp_path / "wrong"
    folder.mkdir()
    with pytest.raises(FleetdiffError, match="no truth here"):
        run(evaluate.command, "--truth", str(folder), "--lake", root)
    (folder / "a.json").write_text("{")
    with pytest.raises(FleetdiffError, match=r"a\.json: cannot be read as JSON"):
        run(evaluate.command, "--truth", str(folder), "--lake", root)
