"""Training of machine models on many healthy jobs through Spark: `python -m bench.machines_training LAKE`.

Jobs are generated (machines in phases that metrics share, a minute between samples), written to a lake, and the stage
`machine_models` is run on them as a night would. Printed: seconds, processor time and the driver's largest memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.core import session
from jobs.core.lake import create_missing
from jobs.core.runner import Given, run_stage
from jobs.core.stages import stage
from jobs.core.tables import Lake, table_path
from schemas import tables

METRICS = {"gpu.power.w": (400.0, 60.0), "cpu.ipc": (1.5, -0.3), "memory.bandwidth": (60.0, 12.0)}
T0 = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD_S = 60.0
BATCH = 50


def generated(number: int, n_machines: int, n_points: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """A healthy job and its metric rows: metrics follow one course a machine, each a few samples apart, with noise."""
    draw = np.random.default_rng(number)
    start = T0 + timedelta(minutes=20 * number)
    job_id = f"job-{number:05d}"
    at = np.arange(n_points) + draw.integers(0, 6, (n_machines, 1))
    course = (at % draw.integers(20, 60) < 5) * -1.0 + 0.1 * draw.normal(size=(n_machines, n_points))
    job: dict[str, object] = {
        "job_id": job_id, "state": "COMPLETED", "started_at": start, "ended_at": start + timedelta(seconds=n_points * PERIOD_S),
        "nodes": [f"n{i:03d}" for i in range(n_machines)], "flags": [], "notes": [], "job_hash": job_id, "ingest_batch": 1,
    }  # fmt: skip
    rows: list[dict[str, object]] = []
    for name, (level, depth) in METRICS.items():
        noise = 0.05 * depth * draw.normal(size=course.shape)
        rows += [
            {"job_id": job_id, "node": f"n{i:03d}", "metric": name, "is_rate": False, "grid_start_at": start, "period_s": PERIOD_S,
             "values": own.tolist(), "n_samples": n_points, "n_gap_points": 0, "file": f"metrics/n{i:03d}.csv"}
            for i, own in enumerate(level + depth * course + noise)
        ]  # fmt: skip
    return job, rows


def _put(root: Path, name: str, rows: list[dict[str, object]]) -> None:
    schema = pa.schema([pa.field(c.name, c.type) for c in tables()[name].columns])
    full = [{**dict.fromkeys(schema.names), **row} for row in rows]
    write_deltalake(table_path(root, name), pa.Table.from_pylist(full, schema=schema), mode="append")


def _batches(n_jobs: int) -> Iterator[range]:
    yield from (range(first, min(first + BATCH, n_jobs)) for first in range(0, n_jobs, BATCH))


def main() -> None:
    """Generate, train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("lake", type=Path)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--points", type=int, default=240)
    given = parser.parse_args()
    create_missing(given.lake)
    for batch in _batches(given.jobs):
        made = [generated(number, given.machines, given.points) for number in batch]
        _put(given.lake, "training_jobs", [job for job, _ in made])
        _put(given.lake, "machine_metrics", [row for _, rows in made for row in rows])
        ranks = [
            {"job_id": job["job_id"], "rank": i, "node": f"n{i:03d}", "role": "trainer"}
            for job, _ in made
            for i in range(given.machines)
        ]
        _put(given.lake, "ranks", ranks)
    n_values = given.jobs * given.machines * given.points * len(METRICS)
    print(
        f"{given.jobs} jobs, {given.machines} machines, {len(METRICS)} metrics, {given.points} points: {n_values / 1e6:.1f} M values"
    )
    spark = session.start("machines-training")
    began = time.monotonic()
    run_stage(stage("machine_models"), Lake(spark, str(given.lake)), Given())
    wall = time.monotonic() - began
    spark.stop()
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"stage machine_models: {wall:.0f} s, driver's Python {own.ru_maxrss / 1024:.0f} MB, {children.ru_utime:.0f} s of ended children"
    )
    for row in DeltaTable(table_path(given.lake, "machine_models")).to_pyarrow_table().sort_by("metric").to_pylist():
        n_jobs = len(row["training_jobs"]) + len(row["calibration_jobs"])
        kind = "with" if '"companion":{' in row["model"] else "without"
        size = len(row["model"]) / 1024
        print(
            f"{row['metric']}: {row['method']}, {n_jobs} jobs, {row['n_job_days']:.0f} job-days calibrate, {kind} companion, {size:.0f} kB"
        )


if __name__ == "__main__":
    main()
