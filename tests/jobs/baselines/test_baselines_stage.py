"""The stage and the look-up on literal rows: what is indexed, what is found, that both agree, that nothing varies."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.cli.baseline import command
from jobs.core import lake as reader
from jobs.core.errors import FleetdiffError, NotFoundError, UsageError
from jobs.core.runner import Given, run_stage
from jobs.core.stages import stage
from jobs.core.tables import Lake

pytestmark = pytest.mark.spark
START = datetime(2026, 5, 1, tzinfo=UTC)
BASE = {
    "framework.name": "torch", "model.layers": "24", "entrypoint": "train.py", "parallel.tp": "8", "packages.nccl": "2.29",
    "env.NCCL_ALGO": "Ring", "hyperparameters.lr": "0.001", "hyperparameters.seed": "1", "data.dataset": "c4", "code_version": "a",
}  # fmt: skip


def job(
    job_id: str,
    state: str = "COMPLETED",
    hours: int = 1,
    batch: int = 1,
    lineage: str | None = None,
    ranks: int = 64,
    **changes: str,
) -> dict[str, Any]:
    """A row of `training_jobs` that ended `hours` after the start."""
    config = {**BASE, **{key.replace("__", "."): value for key, value in changes.items()}}
    return {
        "job_id": job_id, "name": "pretrain", "user": "ana", "state": state, "exit_code": int(state != "COMPLETED"),
        "started_at": START, "ended_at": START + timedelta(hours=hours), "nodes": [], "n_nodes": ranks // 8, "world_size": ranks,
        "n_gpus": ranks, "lineage_id": lineage, "config": list(config.items()), "flags": [], "notes": [], "job_hash": job_id,
        "ingest_batch": batch,
    }  # fmt: skip


FLEET = [
    job("good-1", hours=1),
    job("good-2", hours=2, hyperparameters__seed="2"),
    job("good-lr", hours=3, hyperparameters__lr="0.002"),
    job("same-task-1", hours=4, lineage="task", env__A="1"),
    job("same-task-2", hours=5, lineage="task", env__A="1"),
    job("alerting", hours=6),
    job("slow", hours=7),
    job("short", hours=8),
    job("other-model", hours=9, model__layers="48"),
    job("failed", "FAILED", 10, packages__nccl="2.30"),
    job("failed-large", "FAILED", 11, ranks=128),
    job("failed-alone", "NODE_FAIL", 12, model__layers="96"),
    job("failed-tp", "FAILED", 13, parallel__tp="4"),
]


def iterations(job_id: str, last: int, step_time_s: float) -> list[dict[str, Any]]:
    return [
        {"job_id": job_id, "iteration": n, "n_planned": 100, "step_time_s": step_time_s, "values": [], "file": "log", "line": n}
        for n in range(10, last + 1, 10)
    ]


ITERATIONS = [
    row
    for name, last, step in (
        ("good-1", 100, 2.0),
        ("good-2", 100, 2.1),
        ("good-lr", 100, 1.9),
        ("slow", 100, 4.4),
        ("short", 50, 2.0),
    )
    for row in iterations(name, last, step)
]
ALERTS = [
    {
        "job_id": "alerting", "template_id": "t1", "n_events": 3, "ranks": [], "rank_ranges": "", "n_ranks": 0, "phases": [],
        "levels": [], "streams": [], "alert": "nccl",
    }
]  # fmt: skip


def put(root: str, name: str, rows: list[dict[str, Any]]) -> None:
    write_deltalake(reader.table_path(root, name), pa.Table.from_pylist(rows, schema=reader.arrow_schema(name)), mode="append")


def fill(root: str, jobs: list[dict[str, Any]]) -> None:
    put(root, "training_jobs", jobs)
    put(root, "iterations", ITERATIONS)
    put(root, "job_templates", ALERTS)


def baselines(root: str) -> dict[str, list[tuple[Any, ...]]]:
    rows = sorted(reader.rows(root, "baselines").to_pylist(), key=lambda row: (row["job_id"], row["position"]))
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row["job_id"], []).append((row["baseline_job_id"], row["sentence"] or row["refused"]))
    return found


def asked(root: str, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(command, [*words, "--lake", root, "--json"], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.output)
    return document


def test_the_stage_finds_baselines_and_the_look_up_agrees(lake: Lake, tmp_path: Path) -> None:
    fill(lake.root, FLEET)
    run_stage(stage("baselines"), lake, Given())
    found = baselines(lake.root)
    assert found["failed"] == [
        ("good-1", "same but for NCCL 2.29 → 2.30"),
        ("good-2", "same but for NCCL 2.29 → 2.30"),  # and the seed
        ("same-task-2", "same but for NCCL 2.29 → 2.30 and A not set (1 there)"),  # as dear as the next, but later
        ("good-lr", "same but for NCCL 2.29 → 2.30 and learning rate 0.002 → 0.001"),
    ]
    assert found["failed-large"] == [("good-1", "same but for 64 → 128 GPUs"), ("good-2", "same but for 64 → 128 GPUs")]
    assert found["failed-alone"] == [(None, found["failed-alone"][0][1])]
    assert "parallel.tp is 4, there 8" in found["failed-tp"][0][1]
    assert {name for rows in found.values() for name, _ in rows}.isdisjoint({"alerting", "slow", "short", "failed"})
    for job_id, rows in found.items():
        document = asked(lake.root, job_id)
        listed = [(each["job_id"], each["sentence"]) for each in document["baselines"]] or [(None, document["refused"])]
        assert listed == rows

    incident = tmp_path / "job.json"
    incident.write_text(
        json.dumps({"job_id": "new", "state": "FAILED", "world_size": 64, "config": {**BASE, "env.NCCL_ALGO": "Tree"}})
    )
    document = asked(lake.root, "--config", str(incident))
    assert document["job_id"] == "new"
    assert document["baselines"][0]["differing"] == [{"key": "env.NCCL_ALGO", "this": "Tree", "baseline": "Ring"}]
    assert document["baselines"][0]["ended_at"].endswith("Z")


def test_a_second_night_adds_only_its_jobs_and_ends_as_if_all_had_come_at_once(lake: Lake, tmp_path: Path) -> None:
    fill(lake.root, [row for row in FLEET if not row["job_id"].startswith("failed")])
    run_stage(stage("baselines"), lake, Given())
    put(lake.root, "training_jobs", [{**row, "ingest_batch": 2} for row in FLEET if row["job_id"].startswith("failed")])
    run_stage(stage("baselines"), lake, Given())
    in_two_nights = baselines(lake.root)
    assert run_stage(stage("baselines"), lake, Given()).is_skipped

    other = Lake(lake.spark, str(tmp_path / "at-once"))
    reader.create_missing(other.root)
    fill(other.root, FLEET)
    run_stage(stage("baselines"), other, Given())
    assert {job: rows for job, rows in baselines(other.root).items() if job.startswith("failed")} == {
        job: rows for job, rows in in_two_nights.items() if job.startswith("failed")
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "empty"), ("a: &a {b: *a}", "contains itself"), ("just words", "not a mapping")],
)
def test_a_bad_file_is_refused_in_one_line(lake: Lake, tmp_path: Path, text: str, reason: str) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    with pytest.raises(FleetdiffError, match=reason) as raised:
        CliRunner().invoke(command, ["--config", str(bad), "--lake", lake.root, "--json"], catch_exceptions=False)
    assert "\n" not in str(raised.value)


def test_wrong_questions_have_their_exit_codes(lake: Lake) -> None:
    for words, error in ((["nobody"], NotFoundError), ([], UsageError), (["a", "--config", "b"], UsageError)):
        with pytest.raises(error):
            CliRunner().invoke(command, [*words, "--lake", lake.root], catch_exceptions=False)
    with pytest.raises(FleetdiffError):
        CliRunner().invoke(command, ["a", "--lake", lake.root + "/nothing"], catch_exceptions=False)
