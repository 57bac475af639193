"""Log records to events with templates, and events to counts: DataFrame to DataFrame."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ml.templates.masking import masked_messages
from schemas.templates import EXAMPLE_CHARACTERS

STORED_CHARACTERS = 2_000
KEY = ("job_id", "template_id", "role", "node")
FAR = "timestamp'9999-12-31 00:00:00'"


def unseen_messages(records: DataFrame, known: DataFrame) -> DataFrame:
    """One row (message_key, masked) for each distinct masked message that `known` does not map.

    Any message of a key stands for it: equal keys mean equal masked text.
    """
    new = records.select("message_key", "message").join(known.select("message_key"), "message_key", "left_anti")
    one_each = new.groupBy("message_key").agg(F.min("message").alias("message"))
    return one_each.mapInArrow(_masked, "message_key long, masked string")


def _masked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        masked = pa.array(masked_messages(batch.column("message")), pa.string())
        yield pa.RecordBatch.from_arrays([batch.column("message_key"), masked], ["message_key", "masked"])


def renamed(rows: DataFrame, aliases: DataFrame, column: str = "template_id") -> DataFrame:
    """Rows with every template id as the one that stands for it now; `aliases` has (alias_id, template_id)."""
    now = F.broadcast(aliases.select(F.col("alias_id").alias("_old"), F.col("template_id").alias("_now")))
    joined = rows.join(now, F.col(column) == F.col("_old"), "left")
    return joined.withColumn(column, F.coalesce("_now", column)).drop("_old", "_now")


def message_templates(known: DataFrame, aliases: DataFrame, new: DataFrame, version: str) -> DataFrame:
    """All masked messages with their current template; `new` has (message_key, template_id, masked)."""
    fresh = new.select(
        "message_key", "template_id", F.substring("masked", 1, STORED_CHARACTERS).alias("masked"),
        F.lit(version).alias("since_version"),
    )  # fmt: skip
    return renamed(known, aliases).select(fresh.columns).unionByName(fresh)


def log_events(records: DataFrame, messages: DataFrame, version: str) -> DataFrame:
    """Records with the template of their message: one row an event."""
    mapped = messages.select("message_key", "template_id")
    return records.drop("ingest_batch").join(mapped, "message_key", "inner").withColumn("library_version", F.lit(version))


def counted(events: DataFrame) -> DataFrame:
    """Partial counts: one row a job, template, role, node and phase, in the columns that `combined` takes."""
    first = F.struct(
        F.coalesce("occurred_at", F.expr(FAR)).alias("at"), F.col("file"), F.col("line"), F.col("phase")
    )  # fmt: skip
    return events.groupBy(*KEY, "phase").agg(
        F.count("*").alias("n_events"),
        F.min("occurred_at").alias("first_at"),
        F.max("occurred_at").alias("last_at"),
        F.min("onset_at").alias("first_onset_at"),
        F.min("iteration").alias("first_iteration"),
        F.max("iteration").alias("last_iteration"),
        F.collect_set("rank").alias("ranks"),
        F.collect_set("level").alias("levels"),
        F.collect_set("stream").alias("streams"),
        F.min(first).alias("first"),
        F.create_map(F.coalesce("phase", F.lit("")), F.count("*")).alias("phases"),
    )


def partial(rows: DataFrame) -> DataFrame:
    """Rows of `job_templates` as partial counts, to be combined anew."""
    at = F.coalesce("first_at", F.expr(FAR)).alias("at")
    first = F.struct(
        at, F.col("example_file").alias("file"), F.col("example_line").alias("line"), F.col("first_phase").alias("phase")
    )  # fmt: skip
    return rows.withColumn("first", first).withColumn("phase", F.lit(None).cast("string"))


def _union_of(column: str) -> Column:
    return F.array_sort(F.array_distinct(F.flatten(F.collect_list(column)))).alias(column)


def combined(partials: DataFrame, templates: DataFrame, version: str) -> DataFrame:
    """Partial counts as rows of `job_templates`; `templates` has (template_id, alert, provenance)."""
    sums = partials.groupBy(*KEY).agg(
        F.sum("n_events").alias("n_events"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.min("first_onset_at").alias("first_onset_at"),
        F.min("first_iteration").alias("first_iteration"),
        F.max("last_iteration").alias("last_iteration"),
        _union_of("ranks"),
        _union_of("levels"),
        _union_of("streams"),
        F.min("first").alias("first"),
        F.collect_list("phases").alias("_maps"),
    )
    rows = sums.join(F.broadcast(templates.select("template_id", "alert", "provenance")), "template_id", "left")
    return (
        rows.withColumn("phases", F.expr(SUM_OF_MAPS))
        .withColumn("rank_ranges", F.expr(RANGES))
        .withColumn("n_ranks", F.size("ranks"))
        .withColumn("first_phase", F.col("first.phase"))
        .withColumn("example_file", F.col("first.file"))
        .withColumn("example_line", F.col("first.line"))
        .withColumn("library_version", F.lit(version))
        .drop("first", "_maps")
    )


SUM_OF_MAPS = """
    map_from_entries(transform(
        array_sort(array_distinct(flatten(transform(_maps, m -> map_keys(m))))),
        k -> struct(k, aggregate(_maps, 0L, (total, m) -> total + coalesce(m[k], 0L)))))
"""
RANGES = """
    array_join(zip_with(
        filter(ranks, r -> NOT array_contains(ranks, r - 1)),
        filter(ranks, r -> NOT array_contains(ranks, r + 1)),
        (low, high) -> CASE WHEN low = high THEN cast(low AS string) ELSE concat(low, '-', high) END), ',')
"""
"""Text of sorted distinct ranks: the starts of runs beside their ends."""


def examples(events: DataFrame) -> DataFrame:
    """The first event of each template: (template_id, example, example_job_id)."""
    first = F.min(
        F.struct(
            F.coalesce("occurred_at", F.expr(FAR)).alias("at"), F.col("job_id"), F.col("file"), F.col("line"),
            F.col("rank"), F.substring("message", 1, EXAMPLE_CHARACTERS).alias("example"),
        )
    ).alias("first")  # fmt: skip
    by_template = events.groupBy("template_id").agg(first)
    return by_template.select("template_id", F.col("first.example"), F.col("first.job_id").alias("example_job_id"))


def templates_with_counts(templates: DataFrame, job_templates: DataFrame, found: DataFrame, version: str) -> DataFrame:
    """Rows of `templates`: their counts over all jobs, and the example that they have or the first one found.

    `templates` has (template_id, template, pattern, alert, is_predefined, name, provenance, example, example_job_id).
    """
    end = F.expr(FAR)
    counts = job_templates.groupBy("template_id").agg(
        F.sum("n_events").alias("n_events"),
        F.countDistinct("job_id").alias("n_jobs"),
        F.min("first_at").alias("first_seen_at"),
        F.max("last_at").alias("last_seen_at"),
        F.min(F.struct(F.coalesce("first_at", end), "job_id")).getField("job_id").alias("first_job_id"),
        F.max(F.struct("last_at", "job_id")).getField("job_id").alias("last_job_id"),
    )
    new = found.select("template_id", F.col("example").alias("_example"), F.col("example_job_id").alias("_job"))
    joined = templates.join(counts, "template_id", "left").join(new, "template_id", "left")
    is_kept = F.col("example").isNotNull()
    return (
        joined.withColumn("example_job_id", F.when(is_kept, F.col("example_job_id")).otherwise(F.col("_job")))
        .withColumn("example", F.coalesce("example", "_example"))
        .withColumn("n_events", F.coalesce("n_events", F.lit(0)))
        .withColumn("n_jobs", F.coalesce("n_jobs", F.lit(0)))
        .withColumn("library_version", F.lit(version))
        .drop("_example", "_job")
    )
