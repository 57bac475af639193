"""Reads the archive's new and changed jobs: workers open the files, Spark writes each table once, the ledger last."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame

from jobs.adapters.archive import find_jobs
from jobs.adapters.job_results import definition, job_tables
from jobs.adapters.redaction import lake_key
from jobs.core import lake as plain_lake
from jobs.core.errors import CheckError, UsageError
from jobs.core.runner import StageContext
from jobs.core.tables import spark_schema
from jobs.ingest.adoption import adopt, holds_any
from jobs.ingest.manifest import SETTLE_S, Known, Plan, bins, known_exports, known_jobs, next_batch, plan
from jobs.ingest.packing import packed
from jobs.ingest.transform import imbalances
from jobs.ingest.worker import SUMMARY_DDL, reader
from schemas import tables

STAGING = "_ingest"
ORDER = job_tables()


def run(context: StageContext) -> None:
    """Read what is new or changed, replace exactly those jobs' rows, and write nothing when nothing is."""
    if not context.archive:
        raise UsageError("ingest: no archive was named; give the folder that holds the jobs")
    with alone(context.lake.root):
        jobs = plain_lake.rows(context.lake.root, "training_jobs", columns=["job_id", "listing_hash", "job_hash", "ingest_batch"])
        ledger = plain_lake.rows(context.lake.root, "ingested_files", columns=["job_id", "ingest_batch"])
        known = known_jobs(jobs, ledger)
        is_refresh = context.is_refresh
        columns = ["job_id", "path", "size_bytes", "modified_at"]
        exports = known_exports(plain_lake.rows(context.lake.root, "ingested_files", columns, [("adapter", "=", "sacct")]))
        todo = plan(find_jobs(context.archive), known, float(context.settings.get("settle_s", SETTLE_S)), is_refresh, exports)
        report_waiting(todo)
        if todo.to_read:
            hashes = {} if is_refresh else comparable(known)
            replace_jobs(context, todo, hashes, next_batch(jobs))


def comparable(known: dict[str, Known]) -> dict[str, str]:
    """Contents of jobs that the present code has read: only these may be skipped for having the same contents."""
    return {job: have.job_hash for job, have in known.items() if (have.listing_hash or "").startswith(definition() + ":")}


@contextmanager
def alone(lake: str) -> Iterator[None]:
    """One ingest at a time in a lake: a second one waits, and then finds nothing new. A killed one holds nothing.

    What a killed run left in staging is removed.
    """
    staging = Path(lake) / STAGING
    staging.mkdir(parents=True, exist_ok=True)
    with open(staging / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("ingest: another run is at work on this lake; waiting for it", file=sys.stderr, flush=True)  # noqa: T201
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(staging / "rows", ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(staging / "rows", ignore_errors=True)


def report_waiting(todo: Plan) -> None:
    """Say which jobs are left for a later run."""
    for job, why in todo.unsettled[:5]:
        print(f"ingest: {job} is left for later: {why}", file=sys.stderr, flush=True)  # noqa: T201
    if len(todo.unsettled) > 5:
        print(f"ingest: and {len(todo.unsettled) - 5} more jobs", file=sys.stderr, flush=True)  # noqa: T201


def replace_jobs(context: StageContext, todo: Plan, hashes: dict[str, str], batch: int) -> None:
    """Stage the jobs' rows and write each table once: events first, then the jobs, the ledger last."""
    staging = str(Path(context.lake.root).absolute() / STAGING / "rows")
    os.makedirs(staging, exist_ok=True)
    wanted = {job.job_id for job in todo.to_read}
    summaries = stage_rows(context, todo, staging, {job: h for job, h in hashes.items() if job in wanted}, batch)
    done = sorted(row["job_id"] for row in summaries if row["outcome"] == "read")
    report_waiting(Plan((), tuple((row["job_id"], row["detail"]) for row in summaries if row["outcome"] == "unsettled")))
    for row in (row for row in summaries if row["outcome"] == "read" and row["detail"]):
        print(f"ingest: {row['job_id']} was set aside: {row['detail']}", file=sys.stderr, flush=True)  # noqa: T201
    if not done:
        return
    written = {table for row in summaries for table in row["tables"].split(",") if table}
    check_books(context, staging, written)
    # What the jobs left may go in at the same time; that they are there is said after it, and the books are closed last.
    *facts, jobs, ledger = (table for table in ORDER)
    for group in (facts, [jobs], [ledger]):
        put(context, staging, {table: table in written for table in group}, done)


def put(context: StageContext, staging: str, has_rows: Mapping[str, bool], jobs: list[str]) -> None:
    """Staged rows into their tables: as they lie where a table knows none of these jobs, replacing their rows where it does."""
    root = context.lake.root
    known = [table for table in has_rows if holds_any(root, table, jobs)]
    for table in (table for table, is_staged in has_rows.items() if is_staged and table not in known):
        adopt(root, table, Path(staging) / table)
    context.lake.write_all({table: staged(context, staging, table, has_rows[table]) for table in known}, jobs)


def stage_rows(context: StageContext, todo: Plan, staging: str, hashes: dict[str, str], batch: int) -> list[dict[str, str]]:
    """Let the workers read the jobs; one summary row a job comes back."""
    spark = context.spark
    filled = bins(todo.to_read, spark.sparkContext.defaultParallelism)
    tasks = [(f"task-{i:05d}", packed(jobs)) for i, jobs in enumerate(filled)]
    given = spark.sparkContext.parallelize(tasks, len(tasks)).toDF("task string, jobs string")
    found = given.mapInArrow(reader(staging, hashes, batch, lake_key(context.lake.root)), SUMMARY_DDL).toArrow()
    return list(found.to_pylist())


def staged(context: StageContext, staging: str, table: str, has_rows: bool) -> DataFrame:
    """The staged rows of a table."""
    schema = spark_schema(tables()[table])
    if not has_rows:
        return context.spark.createDataFrame([], schema)
    return context.spark.read.schema(schema).parquet(f"{staging}/{table}")


def check_books(context: StageContext, staging: str, written: set[str]) -> None:
    """Raise CheckError unless every record that was read is kept or in quarantine."""
    if "ingested_files" not in written:
        return
    wrong = imbalances(
        staged(context, staging, "ingested_files", True), staged(context, staging, "quarantine", "quarantine" in written)
    )
    rows = wrong.limit(3).toArrow().to_pylist()
    if rows:
        first = rows[0]
        raise CheckError(
            f"{first['job_id']}/{first['path']}: {first['n_read']} records were read, {first['n_kept']} kept and"
            f" {first['n_quarantined']} "
            f"quarantined, of which quarantine holds {first['n_in_quarantine'] or 0}; nothing was written"
        )
