"""The what-if analysis of many jobs through Spark, a job a group: time and growth with the number of ranks.

    python bench/whatif_spark.py [N_JOBS ...]     each job has 1,024 ranks (dp 32, pp 8, tp 4) and 20 steps

The operations of the jobs are written as parquet first; what is timed is reading them, grouping, analysing, and
collecting the reports. One job of all the ranks at once is timed without Spark beside it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.core import session
from jobs.core.tables import spark_schema
from jobs.operations import transform
from jobs.operations.analysis import OPERATION_COLUMNS
from ml.stragglers.synthetic import Recipe, columns
from ml.stragglers.trace import Layout
from ml.stragglers.whatif import analyse
from ml.stragglers.words import CODE
from schemas import tables

N_STEPS = 20
LAYOUT = Layout(32, 8, tp_size=4)


def recipe(layout: Layout, seed: int) -> Recipe:
    return Recipe(layout, n_micro_batches=8, n_steps=N_STEPS, noise=0.1, slow={(3, seed % 32): 1.5}, seed=seed)


def write_job(folder: Path, number: int) -> int:
    trace = columns(recipe(LAYOUT, number))
    n = len(trace["step"])
    schema = {c.name: c.type for c in tables()["operations"].columns}
    given = {
        "job_id": pa.array(np.full(n, f"job-{number:04d}")),
        "rank": pa.array((trace["dp_rank"] * 8 + trace["stage"]) * 4),
        "step": pa.array(trace["step"]),
        "kind": pa.array(np.full(n, "gpu")),
        "name": pa.array(trace["optype"]),
        "started_us": pa.array(np.round(trace["start_ts"] * 1e6).astype(np.int64)),
        "duration_us": pa.array(trace["duration"] * 1e6),
        "stage": pa.array(trace["stage"]),
        "dp_rank": pa.array(trace["dp_rank"]),
        "micro_batch": pa.array(trace["mb_id"]),
        "sequence": pa.array(trace["seq_id"]),
        "group": pa.array([f"chunk {mc}" for mc in trace["mc"]]),
        "source": pa.array(np.full(n, "whatif")),
    }
    rows = {
        name: given[name].cast(schema[name]) if name in given else pa.nulls(n, schema[name])
        for name in ("job_id", *OPERATION_COLUMNS)
    }
    pq.write_table(pa.table(rows), folder / f"job-{number:04d}.parquet")
    return n


def main(sizes: list[int]) -> None:
    spark = session.start("fleetdiff-bench")
    print("jobs   ranks  operations  Spark s  rows/s   one job s")
    for n_jobs in sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            n_rows = sum(write_job(folder, number) for number in range(n_jobs))
            jobs = [(f"job-{number:04d}",) for number in range(n_jobs)]
            known = spark.createDataFrame(jobs, "job_id string")
            empty = {
                name: spark.createDataFrame([], spark_schema(tables()[name])) for name in ("training_jobs", "ranks", "iterations")
            }
            training = known.join(empty["training_jobs"], "job_id", "left")
            began = time.perf_counter()
            expected = known.selectExpr(
                "job_id",
                "cast(null as array<struct<baseline_job_id:string,step_s:double,printed_s:double,transfer_s:map<string,double>>>) as expected",
            )
            facts = transform.facts(training, empty["ranks"], transform.iteration_times(empty["iterations"]), expected)
            reports = (
                transform.reports(transform.analysed(spark.read.parquet(place), facts))
                .select("job_id", "slowdown", "refused")
                .collect()
            )
            seconds = time.perf_counter() - began
            assert len(reports) == n_jobs, len(reports)
            assert all(r.slowdown > 1 for r in reports), reports[:3]
        whole = Layout(32 * n_jobs, 8, tp_size=4)
        trace = columns(recipe(whole, 1))
        names, codes = np.unique(trace["optype"], return_inverse=True)
        trace["optype"] = np.array([CODE[name] for name in names])[codes]
        began = time.perf_counter()
        analyse(trace, whole)
        alone = time.perf_counter() - began
        print(f"{n_jobs:>4} {1024 * n_jobs:>7,} {n_rows:>11,} {seconds:>8.1f} {n_rows / seconds:>7,.0f} {alone:>11.1f}")
    spark.stop()


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [1, 4, 16])
