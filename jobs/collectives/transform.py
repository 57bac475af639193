"""DataFrames of the `collectives` stage: entries cut down to what a verdict needs, then judged job by job.

A buffer holds thousands of finished entries a rank that all agree. Only what is open, what ranks disagree in, and the
newest timed entries go to the verdict; how far each rank came in each group is kept of all.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jobs.collectives.assemble import finding_rows
from jobs.core.tables import spark_schema
from ml.collectives.matching import SAME_SIZE
from schemas import collective_findings

N_TIMED = 48
"""Newest sequence numbers of each group whose durations are looked at."""
_COLUMNS = (
    "job_id", "node", "rank", "record_id", "group", "group_ranks", "sequence", "is_p2p", "op", "input_sizes",
    "input_dtypes", "state", "created_us", "duration_ms", "frame", "last_enqueued", "last_completed", "file",
)  # fmt: skip


def facts(jobs: DataFrame, ranks: DataFrame) -> DataFrame:
    """A row a job: job_id, state, world_size, ranks (rank and node)."""
    placed = ranks.groupBy("job_id").agg(F.collect_list(F.struct("rank", "node")).alias("ranks"))
    return jobs.select("job_id", "state", "world_size").join(placed, "job_id", "left")


def entries(collectives: DataFrame) -> DataFrame:
    """The entries proper, with what a verdict reads of them: no configuration, one frame, times in µs."""
    own = F.filter("frames", lambda frame: ~frame.contains("torch/distributed"))
    frame = F.when(F.size(own) > 0, F.element_at(own, -1)).when(F.size("frames") > 0, F.element_at("frames", -1))
    return collectives.where(F.col("op").isNotNull() | F.col("sequence").isNotNull()).select(
        "job_id", "node", "rank", "record_id", "group", "sequence", "is_p2p", "op", "input_sizes", "input_dtypes",
        "state", F.unix_micros("created_at").alias("created_us"), "duration_ms", frame.alias("frame"), "file",
    )  # fmt: skip


def progress(collectives: DataFrame) -> DataFrame:
    """A row a job, rank and group: its ranks, the last collective enqueued and completed, from status and entries.

    Where a group carries sends and receives the status counts them together with the collectives, and is not used.
    """
    collective = F.when(~F.col("is_p2p"), F.col("sequence"))
    done = F.when(~F.col("is_p2p") & (F.col("state") == "completed"), F.col("sequence"))
    by_group = collectives.groupBy("job_id", "rank", "group").agg(
        F.max("node").alias("node"),
        F.max("file").alias("file"),
        F.max("group_ranks").alias("group_ranks"),
        F.max("last_enqueued").alias("told_enqueued"),
        F.max("last_completed").alias("told_completed"),
        F.max(collective).alias("seen_enqueued"),
        F.max(done).alias("seen_completed"),
        F.max("is_p2p").alias("has_p2p"),
    )
    has_p2p = F.max("has_p2p").over(Window.partitionBy("job_id", "group"))
    told = {word: F.when(~has_p2p, F.col(f"told_{word}")) for word in ("enqueued", "completed")}
    return by_group.select(
        "job_id", "rank", "group", "node", "file", "group_ranks",
        F.greatest(told["enqueued"], "seen_enqueued").alias("last_enqueued"),
        F.greatest(told["completed"], "seen_completed").alias("last_completed"),
    )  # fmt: skip


def telling(entries: DataFrame) -> DataFrame:
    """Entries that are open, in whose collective ranks disagree, or that are timed and among the newest.

    Where ranks of one group disagree, groups of the same description are kept at that sequence number: they say who is odd.
    """
    described = F.expr("substring(`group`, instr(`group`, ' ') + 1)")
    is_open = F.coalesce(F.col("state") != "completed", F.lit(True))
    op = F.element_at(F.split("op", ":"), -1)
    sizes = F.when(op.isin(*SAME_SIZE), F.col("input_sizes"))
    odd = (
        entries.where(~F.col("is_p2p"))
        .groupBy("job_id", "group", "sequence")
        .agg(*(f(c).alias(f"{n}_{k}") for k, c in (("op", F.col("op")), ("type", F.col("input_dtypes")), ("size", sizes))
               for n, f in (("low", F.min), ("high", F.max))))
        .where("low_op <> high_op OR low_type <> high_type OR low_size <> high_size")
        .select("job_id", described.alias("described"), "sequence", F.lit(True).alias("is_odd"))
        .distinct()
    )  # fmt: skip
    timed = F.col("duration_ms").isNotNull()
    newest = entries.where(timed).groupBy("job_id", "group").agg(F.max("sequence").alias("newest"))
    keyed = entries.withColumn("described", described)
    marked = keyed.join(odd, ["job_id", "described", "sequence"], "left").join(F.broadcast(newest), ["job_id", "group"], "left")
    is_new = timed & (F.col("sequence") > F.col("newest") - N_TIMED)
    return marked.where(is_open | F.coalesce("is_odd", F.lit(False)) | F.coalesce(is_new, F.lit(False)))


def findings(telling: DataFrame, progress: DataFrame, facts: DataFrame) -> DataFrame:
    """Rows of `collective_findings`."""
    schema = spark_schema(collective_findings.TABLE)
    rows = telling.unionByName(progress, allowMissingColumns=True).select(*_COLUMNS)
    return rows.groupBy("job_id").cogroup(facts.groupBy("job_id")).applyInArrow(_judged(schema), schema)


def _judged(schema: StructType) -> Callable[[pa.Table, pa.Table], pa.Table]:
    arrow = to_arrow_schema(schema, timezone="UTC")

    def of_job(rows: pa.Table, known: pa.Table) -> pa.Table:
        if not len(rows):
            return pa.Table.from_pylist([], schema=arrow)
        listed = rows.sort_by([("rank", "ascending"), ("record_id", "ascending"), ("group", "ascending")]).to_pandas()
        about = known.to_pylist()
        found = finding_rows(str(listed["job_id"].iloc[0]), listed, about[0] if about else {})
        return pa.Table.from_pylist(found, schema=arrow)

    return of_job
