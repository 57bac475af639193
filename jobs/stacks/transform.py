"""DataFrames of the `stacks` stage: a row of facts a job beside its samples, merged and compared job by job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jobs.core.tables import spark_schema
from jobs.stacks.assemble import SAMPLE_COLUMNS, finding_rows, samples_of, trie_rows
from schemas import stack_findings, stack_tries

WAITING_WORDS = r"(?i)wait|time.?out|timed out|heartbeat|watchdog|stuck|hang|no progress|still running"
"""Lines that a rank may print while it stands still: they are no sign of progress."""


def facts(jobs: DataFrame, ranks: DataFrame, iterations: DataFrame, moments: DataFrame) -> DataFrame:
    """A row a job: job_id, state, ended_at, world_size, ranks, iterations, logs (seconds at which ranks printed)."""
    placed = ranks.groupBy("job_id").agg(F.collect_list(F.struct("rank", "node", "role", "groups")).alias("ranks"))
    numbered = (
        iterations.groupBy("job_id", "iteration")
        .agg(F.min("occurred_at").alias("at"))
        .groupBy("job_id")
        .agg(F.collect_list(F.struct("at", "iteration")).alias("iterations"))
    )
    known = jobs.select("job_id", "state", "ended_at", "world_size")
    return known.join(placed, "job_id", "left").join(numbered, "job_id", "left").join(moments, "job_id", "left")


def moments(log_records: DataFrame, samples: DataFrame) -> DataFrame:
    """Rows job_id, logs: the seconds, while stacks were being sampled, in which some rank printed a line of its own.

    Jobs whose ranks printed nothing then have an empty list; jobs without logs have no row.
    """
    spans = samples.groupBy("job_id").agg(F.min("sampled_at").alias("first_at"), F.max("sampled_at").alias("last_at"))
    own = log_records.where(F.col("rank").isNotNull() & ~F.coalesce("stream", F.lit("")).eqNullSafe("agent"))
    is_inside = F.col("occurred_at").between(F.col("first_at"), F.col("last_at"))
    is_progress = is_inside & ~F.col("message").rlike(WAITING_WORDS)
    second = F.when(is_progress, F.floor(F.unix_millis("occurred_at") / 1000))
    return own.join(F.broadcast(spans), "job_id").groupBy("job_id").agg(F.collect_set(second).alias("logs"))


def findings(samples: DataFrame, facts: DataFrame) -> DataFrame:
    """Rows of `stack_findings`."""
    schema = spark_schema(stack_findings.TABLE)
    grouped = samples.select(*SAMPLE_COLUMNS).groupBy("job_id").cogroup(facts.groupBy("job_id"))
    return grouped.applyInArrow(_found(schema), schema)


def tries(samples: DataFrame) -> DataFrame:
    """Rows of `stack_tries`."""
    schema = spark_schema(stack_tries.TABLE)
    return samples.select(*SAMPLE_COLUMNS).groupBy("job_id").applyInArrow(_merged(schema), schema)


def _found(schema: StructType) -> Callable[[pa.Table, pa.Table], pa.Table]:
    arrow = to_arrow_schema(schema, timezone="UTC")

    def of_job(samples: pa.Table, known: pa.Table) -> pa.Table:
        rows: Sequence[dict[str, Any]] = samples.to_pylist()
        about = known.to_pylist()
        listed = finding_rows(rows[0]["job_id"], samples_of(rows), about[0] if about else {}) if rows else []
        return pa.Table.from_pylist(listed, schema=arrow)

    return of_job


def _merged(schema: StructType) -> Callable[[pa.Table], pa.Table]:
    arrow = to_arrow_schema(schema, timezone="UTC")

    def of_job(samples: pa.Table) -> pa.Table:
        rows = samples.to_pylist()
        return pa.Table.from_pylist(trie_rows(rows[0]["job_id"], samples_of(rows)), schema=arrow)

    return of_job
