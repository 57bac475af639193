"""Rows of many tables as parts of job pages: one row a fact (job_id, part, payload as JSON), bounded in number a job.

What grows with a job's length (log events, operations, metrics) is counted or thinned here, in Spark, so that a page is
made from some thousands of small rows whatever the job's size.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

N_BINS = 96
"""Columns of the rank × time and rank × step pictures."""

MAX_NODE_EVENTS = 50
MAX_METRICS = 6
MAX_SIMILAR = 8
MAX_PATHS = 1000
COMMUNICATION = ("collective", "p2p")
SOURCE_ORDER = ("timeline", "whatif", "kineto")


def part(rows: DataFrame, name: str, payload: Sequence[str | Column] | Column) -> DataFrame:
    """(job_id, part, payload) with the payload's columns as one JSON object."""
    body = payload if isinstance(payload, Column) else F.to_json(F.struct(*payload), {"ignoreNullFields": "false"})
    return rows.select("job_id", F.lit(name).alias("part"), body.alias("payload"))


def job_part(training_jobs: DataFrame) -> DataFrame:
    """The job's own row."""
    return part(training_jobs, "job", ["*"])


def diagnosis_part(diagnoses: DataFrame) -> DataFrame:
    """The diagnosis, as it is."""
    return part(diagnoses, "diagnosis", F.col("document"))


def rank_part(ranks: DataFrame) -> DataFrame:
    """Where each rank ran."""
    return part(ranks, "rank", ["rank", "node", "device", "switch", "role"])


def phase_part(log_events: DataFrame) -> DataFrame:
    """First and last time of each phase."""
    timed = log_events.where("phase IS NOT NULL AND occurred_at IS NOT NULL")
    spans = timed.groupBy("job_id", "phase").agg(F.min("occurred_at").alias("first_at"), F.max("occurred_at").alias("last_at"))
    return part(spans, "phase", ["phase", "first_at", "last_at"])


def iteration_part(iterations: DataFrame) -> DataFrame:
    """When each iteration was first printed, and the longest step time printed for it."""
    timed = iterations.where("occurred_at IS NOT NULL")
    usable = F.when(~F.isnan("step_time_s"), F.col("step_time_s"))
    steps = timed.groupBy("job_id", "iteration").agg(F.min("occurred_at").alias("at"), F.max(usable).alias("step_time_s"))
    return part(steps, "iteration", ["iteration", "at", "step_time_s"])


def activity_part(log_events: DataFrame, training_jobs: DataFrame) -> DataFrame:
    """Log events of each rank in each of N_BINS equal stretches of the job's time, as pairs of bin and count."""
    spans = training_jobs.where("started_at IS NOT NULL AND ended_at > started_at").select(
        "job_id",
        F.unix_micros("started_at").alias("start_us"),
        (F.unix_micros("ended_at") - F.unix_micros("started_at")).alias("span_us"),
    )
    timed = log_events.where("occurred_at IS NOT NULL").join(F.broadcast(spans), "job_id")
    share = (F.unix_micros("occurred_at") - F.col("start_us")) / F.col("span_us")
    binned = timed.where(share.between(0, 1)).withColumn("bin", F.least(F.floor(share * N_BINS), F.lit(N_BINS - 1)).cast("int"))
    counts = binned.groupBy("job_id", "node", "rank", "bin").agg(F.count(F.lit(1)).alias("n"))
    rows = counts.groupBy("job_id", "node", "rank").agg(F.sort_array(F.collect_list(F.struct("bin", "n"))).alias("counts"))
    return part(rows, "activity", ["node", "rank", "counts"])


def own_time(operations: DataFrame) -> DataFrame:
    """Time in communication, and the rest of the top level, per rank and step (µs), with the job's first and last step.

    Where several profilers saw a job, the most complete one counts: operation time lines, then what-if traces, then Kineto
    (its GPU and collective rows). Communication inside another operation is taken out of that operation.
    """
    order = F.array_position(F.array(*[F.lit(name) for name in SOURCE_ORDER]), F.col("source"))
    placed = operations.where("rank IS NOT NULL AND kind <> 'step' AND source IS NOT NULL").withColumn("source_order", order)
    seen = placed.where("source <> 'kineto' OR layer IN ('gpu', 'collective')")
    spans = seen.groupBy("job_id", "source_order").agg(F.min("step").alias("first_step"), F.max("step").alias("last_step"))
    best = spans.groupBy("job_id").agg(F.min(F.struct("source_order", "first_step", "last_step")).alias("best"))
    chosen = seen.join(F.broadcast(best.select("job_id", "best.*")), ["job_id", "source_order"])
    is_wait = F.col("kind").isin(*COMMUNICATION)
    is_inner = F.col("parent").isNotNull() & (F.col("source") != "kineto")
    work = F.when(is_wait & is_inner, -F.col("duration_us")).when(~is_wait & ~is_inner, F.col("duration_us")).otherwise(0.0)
    wait = F.when(is_wait, F.col("duration_us")).otherwise(0.0)
    steps = chosen.withColumn("work", work).withColumn("wait", wait)
    return steps.groupBy("job_id", "node", "rank", "step", "first_step", "last_step").agg(
        F.greatest(F.sum("work"), F.lit(0.0)).alias("work_us"), F.sum("wait").alias("wait_us")
    )


def work_part(operations: DataFrame) -> DataFrame:
    """Working and waiting time of each rank, and its own time in each of at most N_BINS stretches of steps (ms, the longest)."""
    width = F.greatest(F.ceil((F.col("last_step") - F.col("first_step") + 1) / N_BINS), F.lit(1))
    binned = own_time(operations).withColumn("bin", F.floor((F.col("step") - F.col("first_step")) / width).cast("int"))
    longest = binned.groupBy("job_id", "node", "rank", "first_step", "last_step", "bin").agg(
        F.max(F.col("work_us") / 1000).alias("own_ms"), F.sum("work_us").alias("work_us"), F.sum("wait_us").alias("wait_us")
    )
    pairs = F.sort_array(F.collect_list(F.when(F.col("bin").isNotNull(), F.struct("bin", "own_ms"))))
    rows = longest.groupBy("job_id", "node", "rank", "first_step", "last_step").agg(
        F.sum("work_us").alias("work_us"), F.sum("wait_us").alias("wait_us"), pairs.alias("own")
    )
    return part(rows, "work", ["node", "rank", "work_us", "wait_us", "own", "first_step", "last_step"])


def named_templates(diagnoses: DataFrame) -> DataFrame:
    """(job_id, template_id, baselines): the templates that a diagnosis names, and its baselines' ids."""
    shape = "struct<templates: array<struct<template_id: string>>, baselines: array<struct<job_id: string>>>"
    read = diagnoses.select("job_id", F.from_json("document", shape).alias("d"))
    return read.select(
        "job_id", F.explode_outer("d.templates.template_id").alias("template_id"), F.col("d.baselines.job_id").alias("baselines")
    )


def template_place_part(job_templates: DataFrame, named: DataFrame) -> DataFrame:
    """Counts by node of the templates that the diagnosis names."""
    wanted = named.select("job_id", "template_id").distinct()
    rows = job_templates.join(wanted, ["job_id", "template_id"]).groupBy("job_id", "template_id", "node")
    counts = rows.agg(F.sum("n_events").alias("n_events"), F.min("first_at").alias("first_at"))
    return part(counts, "template_place", ["template_id", "node", "n_events", "first_at"])


def template_baseline_part(job_templates: DataFrame, named: DataFrame) -> DataFrame:
    """Counts of the same templates in each baseline."""
    pairs = named.select(F.col("job_id").alias("for_job"), "template_id", F.explode(F.slice("baselines", 1, 5)).alias("job_id"))
    rows = (
        job_templates.join(pairs, ["job_id", "template_id"])
        .groupBy("for_job", "job_id", "template_id")
        .agg(F.sum("n_events").alias("n_events"))
    )
    renamed = rows.select(F.col("for_job"), F.struct("template_id", "job_id", "n_events").alias("body"))
    return part(renamed.withColumnRenamed("for_job", "job_id"), "template_baseline", F.to_json("body"))


def node_event_part(node_events: DataFrame) -> DataFrame:
    """The most severe, then earliest events of the job's machines."""
    severity = F.array_position(F.array(F.lit("critical"), F.lit("warning"), F.lit("info")), F.col("severity"))
    order = Window.partitionBy("job_id").orderBy(severity, F.col("occurred_at").asc_nulls_last(), "file", "byte_offset")
    ranked = node_events.where("job_id IS NOT NULL").withColumn("position", F.row_number().over(order))
    kept = ranked.where(F.col("position") <= MAX_NODE_EVENTS)
    return part(
        kept, "node_event", ["node", "occurred_at", "kind", "code", "severity", F.substring("message", 1, 400).alias("message")]
    )


def quarantine_part(quarantine: DataFrame) -> DataFrame:
    """Records in quarantine by reason; a rejected file without records counts as one."""
    counts = quarantine.groupBy("job_id", "reason").agg(F.sum(F.greatest("n_records", F.lit(1))).alias("n"))
    return part(counts, "quarantine", ["reason", "n"])


def scored_metrics(machine_scores: DataFrame) -> DataFrame:
    """(job_id, metric, position): the metrics whose scores stand out most in each job."""
    best = machine_scores.where("metric IS NOT NULL").groupBy("job_id", "metric").agg(F.max("score").alias("best"))
    order = Window.partitionBy("job_id").orderBy(F.desc("best"), "metric")
    return best.withColumn("position", F.row_number().over(order)).where(F.col("position") <= MAX_METRICS).drop("best")


def metric_rows(machine_metrics: DataFrame, scored: DataFrame) -> DataFrame:
    """The series of the scored metrics, still at full length."""
    return machine_metrics.join(F.broadcast(scored), ["job_id", "metric"]).select(
        "job_id", "node", "device", "metric", "unit", "grid_start_at", "period_s", "values", "position"
    )


def similar_part(job_similarity: DataFrame) -> DataFrame:
    """The past failures that look most alike."""
    rows = job_similarity.where(F.col("position") <= MAX_SIMILAR).withColumn("page_job_id", F.col("similar_job_id"))
    return part(rows, "similar", [F.col("page_job_id").alias("job_id"), "position", "score", "shared", "symptom", "ended_at"])


def family_part(failure_families: DataFrame) -> DataFrame:
    """The failure family of each job that has one."""
    rows = failure_families.withColumn("job_id", F.explode("job_ids"))
    return part(rows, "family", ["family_id", "label", "n_jobs", "is_new", "first_at"])


def trie_part(stack_tries: DataFrame) -> DataFrame:
    """Merged stacks: the paths at which threads end, with the ranks that are there and that are not."""
    leaves = stack_tries.where("is_leaf").withColumn("title", F.concat_ws(", ", "process_type", F.nullif("snapshot", F.lit(""))))
    order = Window.partitionBy("job_id", "title").orderBy(F.desc(F.size("has_ranks")), F.col("path").cast("string"))
    kept = leaves.withColumn("position", F.row_number().over(order)).where(F.col("position") <= MAX_PATHS)
    fields = [
        "title",
        "sampled_at",
        F.slice("path", 1, 60).alias("frames"),
        F.col("has_ranks").alias("has"),
        F.col("missing_ranks").alias("missing"),
    ]
    return part(kept, "trie", fields)


def straggler_part(straggler_reports: DataFrame) -> DataFrame:
    """What slowness cost the job, without the long lists."""
    return part(
        straggler_reports,
        "straggler",
        [
            "slowdown",
            "waste",
            "cause",
            "refused",
            "worst_workers_share",
            "last_stage_share",
            "gpu_hours_wasted",
            "own_slowdown",
            "baseline_slowdown",
            "is_degraded",
            "slow_from_iteration",
            "typical_step_time_s",
            "best_step_time_s",
            "baseline_step_time_s",
        ],
    )
