"""A night of failed jobs against their baselines: one set-based query in Spark, the same over raw events, the same in DuckDB.

    python bench/diff_bench.py [--jobs 1000] [--ranks 64] [--quick] [--python-only]

Everything is made up with a fixed seed: templates by node as `job_templates` holds them, five baselines a job, and raw
events that sum up to the same counts. All three give the same verdicts, which is checked. Figures go to standard output.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.core.query import aggregate
from jobs.diagnoses.assemble import case_of, diagnosis_row
from jobs.log_diffs.assemble import diff_rows
from ml.log_diffs.cross_job import EXPOSURES, compare

N_TEMPLATES = 120
N_BASELINES = 5
RANKS_A_NODE = 8
START = datetime(2026, 1, 1, tzinfo=UTC)


def coded(codes: np.ndarray, words: list[str]) -> pa.Array:
    """Strings as codes: forty million rows fit into memory."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype("int32")), pa.array(words))


def plain(table: pa.Table) -> pa.RecordBatchReader:
    """The table with plain strings, a piece at a time."""
    schema = pa.schema([pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema])
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in table.to_batches(max_chunksize=1_000_000)))


def make_night(folder: Path, n_jobs: int, n_ranks: int, *, with_events: bool) -> int:
    """Delta tables jobs, job_templates, baselines and (optionally) events; gives the number of raw events."""
    random = np.random.default_rng(11)
    n_good = max(20, n_jobs // 10)
    names = [f"good-{i:05d}" for i in range(n_good)] + [f"bad-{i:05d}" for i in range(n_jobs)]
    nodes = max(1, n_ranks // RANKS_A_NODE)
    usual = random.integers(10, 70, N_TEMPLATES)
    counts = random.poisson(usual, (len(names), nodes, N_TEMPLATES))
    counts[n_good:, :, 7] *= 12  # a template that failed jobs print far more often
    counts[:n_good, :, 11] = 0  # one that only they print
    counts[n_good:, :, 13] = 0  # one that they lack
    job, node, template = np.nonzero(counts)
    n_events = counts[job, node, template]
    ids = [f"t{i:04d}" for i in range(N_TEMPLATES)]
    table = pa.table({
        "job_id": coded(job, names), "template_id": coded(template, ids), "node": coded(node, [f"n{i}" for i in range(nodes)]), "n_events": n_events.astype("int64"),
        "last_iteration": np.full(len(job), 100, "int64"),
    })  # fmt: skip
    write_deltalake(str(folder / "job_templates"), plain(table), mode="overwrite")
    length = timedelta(hours=2)
    jobs = pa.table({
        "job_id": names, "world_size": np.full(len(names), n_ranks, "int32"), "started_at": pa.array([START] * len(names), pa.timestamp("us", "UTC")),
        "ended_at": pa.array([START + length] * len(names), pa.timestamp("us", "UTC")),
    })  # fmt: skip
    write_deltalake(str(folder / "jobs"), jobs, mode="overwrite")
    chosen = random.integers(0, n_good - N_BASELINES, n_jobs)
    pairs = [(names[n_good + i], names[c + k], k + 1) for i, c in enumerate(chosen) for k in range(N_BASELINES)]
    write_deltalake(
        str(folder / "baselines"),
        pa.table({"job_id": [p[0] for p in pairs], "baseline_job_id": [p[1] for p in pairs], "position": [p[2] for p in pairs]}),
        mode="overwrite",
    )
    if with_events:
        events = table.select(["job_id", "template_id", "node"]).take(np.repeat(np.arange(len(job)), n_events))
        events = events.append_column("iteration", pa.array(np.full(len(events), 100, "int64")))
        write_deltalake(str(folder / "events"), plain(events), mode="overwrite")
    return int(n_events.sum())


def timed(run: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Best of some runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - began)
    return best, result


def in_duckdb(folder: Path) -> pd.DataFrame:
    """The same query as `jobs.log_diffs.transform.diffs`, over the same Delta files, and the same verdicts."""
    base = duckdb.connect()
    for name in ("jobs", "job_templates", "baselines"):
        files = DeltaTable(str(folder / name)).file_uris()
        base.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({files})")
    spread = ", ".join(
        f"list_min(r_{x}) AS min_{x}, list_max(r_{x}) AS max_{x}, list_median(r_{x}) AS median_{x}, {x}, base_{x}"
        for x in EXPOSURES
    )
    padded = ", ".join(
        f"list_concat(coalesce(rates_{x}, []), list_resize([]::DOUBLE[], (n_baselines - coalesce(n_with, 0))::BIGINT, 0.0)) AS r_{x}"
        for x in EXPOSURES
    )
    sql = f"""
        WITH exposed AS (
            SELECT j.job_id, epoch(ended_at - started_at) / 3600 * world_size AS hours, world_size::DOUBLE AS ranks, m.iterations
            FROM jobs j JOIN (SELECT job_id, max(last_iteration)::DOUBLE AS iterations FROM job_templates GROUP BY 1) m USING (job_id)),
        sums AS (SELECT job_id, template_id, sum(n_events)::DOUBLE AS n FROM job_templates GROUP BY 1, 2),
        pooled AS (
            SELECT b.job_id, template_id, sum(n) AS n0, count(*) AS n_with, {", ".join(f"list(n / e.{x}) AS rates_{x}" for x in EXPOSURES)}
            FROM baselines b JOIN sums s ON s.job_id = b.baseline_job_id JOIN exposed e ON e.job_id = b.baseline_job_id GROUP BY 1, 2),
        totals AS (
            SELECT b.job_id, count(*) AS n_baselines, {", ".join(f"sum(e.{x}) AS base_{x}" for x in EXPOSURES)}
            FROM baselines b JOIN exposed e ON e.job_id = b.baseline_job_id GROUP BY 1),
        joined AS (
            SELECT coalesce(o.job_id, p.job_id) AS job_id, coalesce(o.template_id, p.template_id) AS template_id, o.n, p.n0, p.n_with,
                   {", ".join(f"rates_{x}" for x in EXPOSURES)}
            FROM (SELECT * FROM sums WHERE job_id IN (SELECT job_id FROM totals)) o
            FULL JOIN pooled p ON o.job_id = p.job_id AND o.template_id = p.template_id),
        padded AS (SELECT j.*, t.* EXCLUDE (job_id), e.* EXCLUDE (job_id), {padded}
                   FROM joined j JOIN totals t USING (job_id) JOIN exposed e USING (job_id))
        SELECT job_id, template_id, coalesce(n, 0) AS n_events, coalesce(n0, 0) AS n_baseline_events, n_baselines, coalesce(n_with, 0) AS n_baselines_with, {spread}
        FROM padded
    """
    return compare(base.execute(sql).df())


def counts(folder: str, jobs: list[str]) -> pa.Table:
    """As the stage reads its counts, from the folder of this benchmark."""
    schema = pa.schema(
        [("job_id", pa.string()), ("template_id", pa.string()), ("n_events", pa.int64()), ("last_iteration", pa.int64())]
    )
    summed = {"n_events": "sum", "last_iteration": "max"}
    return aggregate(DeltaTable(f"{folder}/job_templates"), schema, schema.names[:2], summed, [("job_id", "in", jobs)])


def in_spark(spark: Any, folder: Path, *, over_events: bool) -> pd.DataFrame:
    """The stage's diff; over raw events Spark counts them first, and each bucket gets the counts of its jobs."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    from jobs.log_diffs.transform import DIFF_SCHEMA, diffs, sides, verdicts

    def table(name: str) -> Any:
        # As the lake reads tables of few files.
        return spark.read.parquet(*DeltaTable(str(folder / name)).file_uris())

    compared = sides(table("baselines"), table("jobs"))
    if over_events:
        counted = (
            table("events")
            .groupBy("job_id", "template_id")
            .agg(F.count("*").alias("n_events"), F.max("iteration").alias("last_iteration"))
        )
        needed = compared.select(F.col("bucket").alias("share"), F.col("source").alias("job_id")).distinct()
        shares = F.broadcast(needed).join(counted, "job_id").groupBy("share")
        found = (
            compared.groupBy("bucket")
            .cogroup(shares)
            .applyInArrow(lambda sides, counts: verdicts(lambda jobs: counts, sides), from_arrow_schema(DIFF_SCHEMA))
        )
    else:
        found = diffs(compared, partial(counts, str(folder)))
    return found.where("change <> 'same'").toPandas()


def same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    def verdicts(rows: pd.DataFrame) -> set[tuple[str, str, str]]:
        return {(r.job_id, r.template_id, r.change) for r in rows[rows["change"] != "same"].itertuples()}

    return verdicts(one) == verdicts(other)


def bundle(n_ranks: int, n_steps: int = 200) -> dict[str, Any]:
    """A failed job: one rank killed, its peers complain; operations of all ranks, counts by node."""
    n_nodes = max(1, n_ranks // RANKS_A_NODE)
    at = START + timedelta(seconds=3600)
    ranks = [
        {
            "rank": r,
            "node": f"n{r // RANKS_A_NODE}",
            "local_rank": r % RANKS_A_NODE,
            "role": "trainer",
            "groups": {"dp": list(range(n_ranks))},
        }
        for r in range(n_ranks)
    ]
    lost = "RuntimeError: Connection closed by peer [10.0.0.1]:80"
    events = [
        {"template_id": "lost", "template": lost, "message": lost, "node": f"n{r // RANKS_A_NODE}", "rank": r, "role": "trainer", "stream": "stderr", "alert": "connection",
         "occurred_at": at + timedelta(seconds=4), "time_uncertainty_s": 1.0, "n_total": 1, "file": f"r{r}.log", "line": 9, "is_normal": False}
        for r in range(1, n_ranks)
    ]  # fmt: skip
    events.append({
        "template_id": "exit", "template": "x", "message": "failed (exitcode: -9) local_rank: 0 (pid: 7)", "node": "n0", "rank": None, "role": "launcher", "stream": "agent",
        "alert": "signal", "occurred_at": at, "time_uncertainty_s": 0.0, "n_total": 1, "file": "agent.log", "line": 3, "is_normal": False,
    })  # fmt: skip
    counts = [
        {"template_id": f"t{t}", "node": f"n{n}", "role": "trainer", "n_events": 8, "ranks": [n * RANKS_A_NODE]}
        for n in range(n_nodes)
        for t in range(N_TEMPLATES)
    ]
    began = START.timestamp()
    rank, step, name = (x.ravel() for x in np.meshgrid(np.arange(n_ranks), np.arange(n_steps), np.arange(5), indexing="ij"))
    started = began + step * 1.0 + name * 0.1
    steps = pd.DataFrame(
        {
            "rank": rank,
            "step": step,
            "name": np.array(["data", "forward", "backward", "allreduce", "optimizer"])[name],
            "n_calls": 1,
            "started_at": started,
            "ended_at": started + 0.1,
        }
    )
    job = {
        "job_id": "j",
        "state": "FAILED",
        "started_at": START,
        "ended_at": at + timedelta(seconds=30),
        "nodes": [f"n{n}" for n in range(n_nodes)],
        "world_size": n_ranks,
    }
    return {"job": job, "ranks": ranks, "events": events, "counts": counts, "steps": steps, "n_baselines": 5, "diffs": []}


def one_job(n_ranks: int) -> tuple[float, float]:
    """Seconds of the rules of one job and of its fusion."""
    packed = bundle(n_ranks)
    diff_s, rows = timed(lambda: diff_rows(packed))
    findings = [{**r, "table": t} for t, part in zip(("log_findings", "node_findings", "onsets"), rows) for r in part]
    fuse_s, _ = timed(lambda: diagnosis_row(case_of({"job": packed["job"], "ranks": packed["ranks"], "findings": findings})))
    return diff_s, fuse_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one size only")
    parser.add_argument("--python-only", action="store_true", help="no Spark: rules and fusion of one job")
    given = parser.parse_args()
    print("| ranks | rules s a job | fusion s a job |\n|---|---|---|")
    for n_ranks in (8, 64, 256, 1024):
        print("| {} | {:.3f} | {:.3f} |".format(n_ranks, *one_job(n_ranks)), flush=True)
    if given.python_only:
        return
    from jobs.core import session

    spark = session.start("diff-bench")
    print(
        "\n| jobs x ranks | rows of job_templates | raw events | Spark, aggregate s | Spark, raw events s | DuckDB, aggregate s | raw / aggregate | Spark / DuckDB | same verdicts |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    sizes = (
        [(given.jobs, given.ranks)]
        if given.quick
        else [
            (given.jobs // 10, given.ranks),
            (given.jobs // 3, given.ranks),
            (given.jobs, given.ranks // 4),
            (given.jobs, given.ranks),
        ]
    )
    for n_jobs, n_ranks in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            n_events = make_night(Path(scratch), n_jobs, n_ranks, with_events=True)
            n_rows = len(DeltaTable(f"{scratch}/job_templates").to_pyarrow_table(columns=["job_id"]))
            duck_s, duck = timed(lambda: in_duckdb(Path(scratch)), 2)
            spark_s, sparked = timed(lambda: in_spark(spark, Path(scratch), over_events=False), 3)
            raw_s, raw = timed(lambda: in_spark(spark, Path(scratch), over_events=True), 2)
            print(
                f"| {n_jobs} x {n_ranks} | {n_rows} | {n_events} | {spark_s:.2f} | {raw_s:.2f} | {duck_s:.2f} | {raw_s / spark_s:.1f} | {spark_s / duck_s:.1f} | {same(duck, sparked) and same(sparked, raw)} |",
                flush=True,
            )
    spark.stop()


if __name__ == "__main__":
    main()
