"""Set-based diffs of a whole night: counts against baselines, and one bundle of rows a job for the per-job rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from jobs.core.tables import spark_schema
from jobs.log_diffs.assemble import diff_rows
from ml.log_diffs.cross_job import DIFF_COLUMNS, compare, pooled
from schemas import tables

MAX_EVENTS = 8
MAX_BASELINES = 8
"""More would not change a median and a range that a person looks at; the best matches come first."""
MAX_CHARACTERS = 16_384
BUCKETS = 4
Counts = Callable[[list[str]], pa.Table]
"""`job_id, template_id, n_events, last_iteration`, one row a job and template, of the jobs asked for."""
TABLES = ("log_findings", "node_findings", "onsets")
_TEXT, _WHOLE = ("job_id", "template_id", "change"), ("n_baselines", "n_baselines_with")
DIFF_SCHEMA = pa.schema(
    (name, pa.string() if name in _TEXT else pa.int64() if name in _WHOLE else pa.float64()) for name in ("job_id", *DIFF_COLUMNS)
)


@dataclass(frozen=True)
class Inputs:
    """The tables that a diff reads: rows of pending jobs, except for what baselines need (`all_…`)."""

    jobs: DataFrame
    ranks: DataFrame
    events: DataFrame
    job_templates: DataFrame
    templates: DataFrame
    normal_templates: DataFrame
    baselines: DataFrame
    iterations: DataFrame
    operations: DataFrame
    clock_offsets: DataFrame
    all_jobs: DataFrame
    all_job_templates: DataFrame


def sides(baselines: DataFrame, jobs: DataFrame) -> DataFrame:
    """Whose counts are held against each other: a row a side of each comparison.

    `job_id, source, position`, where position 0 is the job itself (`source` = `job_id`) and 1 to `MAX_BASELINES` are its
    baselines, best match first; what counts are divided by (`hours` as rank-hours, `ranks`); `bucket`, a share of the night that
    one task compares. `jobs` are all jobs. Jobs without a baseline have no row.
    """
    theirs = baselines.where(f"baseline_job_id IS NOT NULL AND position BETWEEN 1 AND {MAX_BASELINES}").select(
        "job_id", F.col("baseline_job_id").alias("source"), "position"
    )
    own = theirs.select("job_id").distinct().select("job_id", F.col("job_id").alias("source"), F.lit(0).alias("position"))
    ranks = F.greatest(F.coalesce(F.col("world_size"), F.lit(1)), F.lit(1)).cast("double")
    length_us = F.unix_micros("ended_at") - F.unix_micros("started_at")
    lengths = jobs.select(
        F.col("job_id").alias("source"), ranks.alias("ranks"), (F.coalesce(length_us, F.lit(0)) / 3.6e9 * ranks).alias("hours")
    )
    bucket = F.pmod(F.hash("job_id"), F.lit(BUCKETS)).alias("bucket")
    return theirs.unionByName(own).join(lengths, "source").withColumn("bucket", bucket)


def diffs(compared: DataFrame, counts: Counts) -> DataFrame:
    """Verdicts on all templates of the jobs of `sides`: rows of `DIFF_SCHEMA`.

    One query and a few vectorised calls whatever the number of jobs. Workers read the sums that they need from the table itself;
    counts are most of the data, and the JVM sees none of them.
    """

    def of_bucket(rows: pa.Table) -> pa.Table:
        return verdicts(counts, rows)

    return compared.groupBy("bucket").applyInArrow(of_bucket, from_arrow_schema(DIFF_SCHEMA))


def verdicts(counts: Counts, compared: pa.Table) -> pa.Table:
    """The jobs of one bucket: rows of `DIFF_SCHEMA` from rows of `sides`."""
    sources = pc.unique(compared["source"])
    counted = counts(sources.to_pylist())
    owner = pc.index_in(counted["job_id"], sources).to_numpy().astype(np.int64)
    iterations = np.zeros(len(sources))
    np.maximum.at(iterations, owner, pc.fill_null(counted["last_iteration"], 0).to_numpy())
    # Every side has the entries of its source.
    at = pc.index_in(compared["source"], sources).to_numpy().astype(np.int64)
    n = np.bincount(owner, minlength=len(sources))
    n_entries, first = n[at], (np.cumsum(n) - n)[at]
    within = np.arange(n_entries.sum()) - np.repeat(np.cumsum(n_entries) - n_entries, n_entries)
    entry = np.argsort(owner, kind="stable")[np.repeat(first, n_entries) + within]
    lengths = compared.select(["job_id", "position", "hours", "ranks"]).to_pandas().assign(iterations=iterations[at])
    template, n_events = pc.dictionary_encode(counted["template_id"].combine_chunks()), counted["n_events"].to_numpy()
    found = compare(pooled(lengths, np.repeat(np.arange(len(at)), n_entries), template.indices.to_numpy()[entry], n_events[entry]))
    names = template.dictionary.take(pa.array(found["template_id"].to_numpy(np.int64)))
    columns = {name: names if name == "template_id" else found[name] for name in DIFF_SCHEMA.names}
    return pa.table({name: pa.array(column, DIFF_SCHEMA.field(name).type) for name, column in columns.items()}, schema=DIFF_SCHEMA)


def notable_events(inputs: Inputs, verdicts: DataFrame) -> DataFrame:
    """The first few events of every template and writer that is an alert, an error, or not normal.

    Normal is what several successful jobs print without being an alert, or what the job's own baselines print as often. An
    alert that only the library knows stays, except that where there is no baseline it does not accuse.
    """
    texts = inputs.templates.select("template_id", "template", "alert")
    library = inputs.normal_templates.select("template_id", F.col("n_jobs").alias("library_jobs"))
    known = verdicts.select("job_id", "template_id", "change", "n_baselines_with")
    rows = (
        inputs.events.select(
            "job_id",
            "template_id",
            "node",
            "rank",
            "role",
            "stream",
            "level",
            "phase",
            "iteration",
            "file",
            "line",
            "occurred_at",
            "onset_at",
            "time_uncertainty_s",
            F.substring("message", 1, MAX_CHARACTERS).alias("message"),
        )
        .join(F.broadcast(texts), "template_id", "left")
        .join(F.broadcast(library), "template_id", "left")
        .join(known, ["job_id", "template_id"], "left")
    )
    often = F.coalesce(F.col("library_jobs") >= 2, F.lit(False))
    same = F.coalesce((F.col("change") == "same") & (F.col("n_baselines_with") > 0), F.lit(False))
    alone = F.col("change").isNull() & ~F.col("message").contains("Traceback (most recent call last)")
    is_normal = (often & F.col("alert").isNull()) | same | (often & alone)
    is_notable = F.col("alert").isNotNull() | ~is_normal | F.col("level").isin("ERROR", "CRITICAL")
    writer = ["job_id", "template_id", "node", "rank", "stream"]
    first = Window.partitionBy(*writer).orderBy("occurred_at", "file", "line")
    return (
        rows.withColumn("is_normal", is_normal)
        .where(is_notable)
        .withColumn("n_total", F.count("*").over(Window.partitionBy(*writer)))
        .withColumn("place", F.row_number().over(first))
        .where(F.col("place") <= MAX_EVENTS)
        .drop("place", "library_jobs", "change", "n_baselines_with")
    )


def steps(operations: DataFrame) -> DataFrame:
    """Operations of time lines summed by rank, step and name, times in seconds: `ml.log_diffs.progress.STEP_COLUMNS`."""
    lines = operations.where("source = 'timeline' AND step IS NOT NULL AND started_us IS NOT NULL AND rank IS NOT NULL")
    return lines.groupBy("job_id", "rank", "step", "name").agg(
        F.sum("n_calls").alias("n_calls"),
        (F.min("started_us") / 1e6).alias("started_at"),
        (F.max(F.col("started_us") + F.col("duration_us")) / 1e6).alias("ended_at"),
    )


def phases(job_templates: DataFrame) -> DataFrame:
    """Span of each phase of each job: from the first to the last event of templates that occur in that phase only."""
    only = job_templates.where(F.size("phases") == 1).withColumn("phase", F.element_at(F.map_keys("phases"), 1))
    return (
        only.groupBy("job_id", "phase")
        .agg(F.min("first_at").alias("start_at"), F.max("last_at").alias("end_at"))
        .where("start_at IS NOT NULL")
    )


def bundles(inputs: Inputs, verdicts: DataFrame) -> DataFrame:
    """One row a job: every part that its rules need, as lists of rows."""
    spans = phases(inputs.all_job_templates)
    chosen = inputs.baselines.where("baseline_job_id IS NOT NULL").select("job_id", "baseline_job_id")
    parts = {
        "ranks": inputs.ranks,
        "events": notable_events(inputs, verdicts),
        "counts": inputs.job_templates.select("job_id", "template_id", "node", "role", "n_events", "ranks"),
        "diffs": verdicts,
        "iterations": inputs.iterations.select(
            "job_id", "node", "rank", "iteration", "occurred_at", "step_time_s", "loss", "grad_norm", "file", "line"
        ),
        "steps": steps(inputs.operations),
        "offsets": inputs.clock_offsets.select("job_id", "node", "offset_s"),
        "last_seen": inputs.job_templates.where("node IS NOT NULL")
        .groupBy("job_id", "node")
        .agg(F.max("last_at").alias("last_at")),
        "phases": spans,
        "baseline_phases": chosen.join(spans.withColumnRenamed("job_id", "baseline_job_id"), "baseline_job_id"),
    }
    rows = inputs.jobs.select("job_id", F.struct(*inputs.jobs.columns).alias("job"))
    for name, part in parts.items():
        inner = [c for c in part.columns if c != "job_id"]
        listed = part.groupBy("job_id").agg(F.collect_list(F.struct(*inner)).alias(name))
        rows = rows.join(listed, "job_id", "left")
    n_baselines = chosen.groupBy("job_id").agg(F.count("*").alias("n_baselines"))
    library = inputs.normal_templates.agg((F.count("*") > 0).alias("has_library"))
    return rows.join(n_baselines, "job_id", "left").crossJoin(F.broadcast(library))


def findings(bundled: DataFrame) -> DataFrame:
    """One row a job with its findings as three lists, named as their tables."""
    schema = StructType([StructField(name, ArrayType(spark_schema(tables()[name]))) for name in TABLES])
    return bundled.mapInArrow(_find, schema)


def _find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Findings of each bundle of a partition, one job in memory at a time."""
    schema = pa.schema([pa.field(n, pa.list_(pa.struct([pa.field(c.name, c.type) for c in tables()[n].columns]))) for n in TABLES])
    for batch in batches:
        for place in range(batch.num_rows):
            found = diff_rows(_bundle(batch, place))
            yield pa.RecordBatch.from_pylist([dict(zip(TABLES, found))], schema=schema)


def _bundle(batch: pa.RecordBatch, place: int) -> dict[str, Any]:
    """One row as Python values; operations stay columns, they are many."""
    row: dict[str, Any] = {}
    for name in batch.schema.names:
        value = batch.column(name)[place]
        if name == "steps":
            row[name] = pd.DataFrame() if value.values is None else pa.RecordBatch.from_struct_array(value.values).to_pandas()
        else:
            row[name] = value.as_py()
    return row


def rows_of(found: DataFrame, name: str) -> DataFrame:
    """The rows of one table."""
    return found.select(F.explode(name).alias("row")).select("row.*")
