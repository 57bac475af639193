"""Both stages over real tables: train, score, refuse, sum up, and do nothing twice."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.core.lake import version
from jobs.core.runner import Given, run_stage
from jobs.core.stages import stage
from jobs.core.tables import table_path
from schemas import tables

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
N_NODES, N_POINTS = 8, 1200


def put(lake, name, rows):
    schema = pa.schema([pa.field(c.name, c.type) for c in tables()[name].columns])
    full = [{**dict.fromkeys(schema.names), **row} for row in rows]
    write_deltalake(table_path(lake.root, name), pa.Table.from_pylist(full, schema=schema), mode="append")


def read(lake, name):
    return DeltaTable(table_path(lake.root, name)).to_pyarrow_table().to_pylist()


def job_of(number, state="COMPLETED", odd=None):
    """A job of eight nodes, an hour after the one before; node `odd` is shifted for five minutes."""
    job_id, start = f"job-{number}", T0 + timedelta(hours=number)
    draw = np.random.default_rng(number)
    values = 100 + draw.normal(0, 2, (N_NODES, N_POINTS))
    values[7] += 3  # n7 is a little off in every job
    if odd is not None:
        values[odd, 700:1000] += 20
    job = {"job_id": job_id, "state": state, "started_at": start, "ended_at": start + timedelta(seconds=N_POINTS),
           "nodes": [f"n{i}" for i in range(N_NODES)], "flags": [], "notes": [], "job_hash": job_id, "ingest_batch": 1}  # fmt: skip
    ranks = [{"job_id": job_id, "rank": i, "node": f"n{i}", "role": "trainer"} for i in range(N_NODES)]
    metrics = [
        {"job_id": job_id, "node": f"n{i}", "metric": "power", "unit": "W", "is_rate": False, "grid_start_at": start, "period_s": 1.0,
         "values": own.tolist(), "n_samples": N_POINTS, "n_gap_points": 0, "file": f"metrics/n{i}.csv"}
        for i, own in enumerate(values)
    ]  # fmt: skip
    return job, ranks, metrics


@pytest.fixture
def filled(lake):
    made = [job_of(n) for n in range(4)] + [job_of(4, "FAILED", odd=3)]
    put(lake, "training_jobs", [job for job, _, _ in made])
    put(lake, "ranks", [rank for _, ranks, _ in made for rank in ranks])
    put(lake, "machine_metrics", [row for _, _, metrics in made for row in metrics])
    put(lake, "node_events", [
        # the fleet's own log, without a job: it fell on n3 while job-4 ran
        {"node": "n3", "occurred_at": T0 + timedelta(hours=4, seconds=720), "kind": "xid", "code": 79, "severity": "critical",
         "message": "GPU has fallen off the bus"},
    ])  # fmt: skip
    return lake


def test_models_are_trained_on_successful_jobs_and_scores_name_them(filled):
    run_stage(stage("machine_models"), filled, Given())
    (model,) = read(filled, "machine_models")
    assert set(model["training_jobs"]) | set(model["calibration_jobs"]) == {f"job-{n}" for n in range(4)}
    assert model["priority"] == 1

    run_stage(stage("machine_scores"), filled, Given())
    scores = read(filled, "machine_scores")
    odd = [row for row in scores if row["score"] >= 0.5]
    assert {(row["job_id"], row["nodes"][0]) for row in odd} == {("job-4", "n3")}
    assert {row["model_id"] for row in scores if row["nodes"]} == {model["model_id"]}
    assert odd[0]["n_events"] == 1
    assert "xid 79" in odd[0]["statement"]
    assert odd[0]["ranks"] == [3]
    assert odd[0]["refs"] == [{"file": "metrics/n3.csv", "line": None}]
    assert sorted(row["machine_rank"] for row in scores if row["job_id"] == "job-0") == list(range(1, N_NODES + 1))

    drift = {row["node"]: row for row in read(filled, "machine_drift")}
    assert drift["n7"]["score"] == max(row["score"] for row in drift.values())
    assert drift["n7"]["n_jobs"] == 5

    # a second night over the same jobs: nothing is written
    before = {name: version(filled.root, name) for name in ("machine_models", "machine_scores", "machine_drift")}
    assert run_stage(stage("machine_models"), filled, Given()).is_skipped
    assert run_stage(stage("machine_scores"), filled, Given()).is_skipped
    assert {name: version(filled.root, name) for name in before} == before
