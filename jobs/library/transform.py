"""Counts of successful jobs to the normal library: DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SUCCESS = "COMPLETED"
CONTROL_ROLES = ("launcher", "agent", "scheduler", "controller", "driver")
MIN_JOBS = 3
"""Distinct successful tasks that must print a template before it is normal."""


def successful(jobs: DataFrame, ranks: DataFrame) -> DataFrame:
    """One row a successful job: who, which configuration, how many ranks, how many hours."""
    present = ranks.groupBy("job_id").agg(F.count("*").alias("n_present"))
    config = F.xxhash64(F.to_json(F.array_sort(F.map_entries("config"))))
    hours = (F.col("ended_at").cast("double") - F.col("started_at").cast("double")) / 3600
    return (
        jobs.where(F.col("state") == SUCCESS)
        .join(present, "job_id", "left")
        .select(
            "job_id",
            F.coalesce("lineage_id", "job_id").alias("lineage_id"),
            "user",
            config.alias("config_hash"),
            F.greatest(F.coalesce("n_present", "world_size", F.lit(1)), F.lit(1)).alias("n_job_ranks"),
            F.when(hours > 0, hours).alias("hours"),
        )
    )


def by_job(counts: DataFrame, jobs: DataFrame) -> DataFrame:
    """One row a template and successful job: events, ranks, whose noise it is there."""
    grouped = counts.join(F.broadcast(jobs), "job_id").groupBy("template_id", "job_id").agg(
        F.sum("n_events").alias("n_events"),
        F.array_distinct(F.flatten(F.collect_list("ranks"))).alias("ranks"),
        F.collect_set("node").alias("nodes"),
        F.collect_set(F.coalesce("role", F.lit(""))).alias("roles"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        *(F.first(name).alias(name) for name in ("lineage_id", "user", "config_hash", "n_job_ranks", "hours")),
    )  # fmt: skip
    hours = F.coalesce("hours", (F.col("last_at").cast("double") - F.col("first_at").cast("double")) / 3600)
    control = F.forall("roles", lambda role: role.isin(*CONTROL_ROLES)) | (F.size("ranks") == 0)
    rank0 = (F.col("n_job_ranks") > 1) & (F.col("ranks") == F.array(F.lit(0)))
    noise = F.when(control, F.lit("control_plane")).when(rank0, F.lit("rank0")).otherwise(F.lit("none"))
    rate = F.when(hours > 0, F.col("n_events") / (F.col("n_job_ranks") * hours))
    share = F.least(F.size("ranks") / F.col("n_job_ranks"), F.lit(1.0))
    return grouped.select("*", noise.alias("noise"), rate.alias("rate"), share.alias("share"))


def _profile(counts: DataFrame, name: str) -> DataFrame:
    """Share of each template's events by a column `name`, as one map a template; rows: (template_id, name, n)."""
    totals = counts.groupBy("template_id").agg(F.sum("n").alias("total"))
    shares = counts.join(totals, "template_id").select("template_id", name, (F.col("n") / F.col("total")).alias("share"))
    entries = F.array_sort(F.collect_list(F.struct(name, "share")))
    return shares.groupBy("template_id").agg(F.map_from_entries(entries).alias(f"{name}_profile"))


def profiles(counts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Shares of each template's events by phase and by role, over successful jobs."""
    mine = counts.join(F.broadcast(jobs.select("job_id")), "job_id")
    each_phase = mine.select("template_id", F.explode("phases").alias("phase", "n"))
    phases = each_phase.groupBy("template_id", "phase").agg(F.sum("n").alias("n"))
    roles = mine.groupBy("template_id", F.coalesce("role", F.lit("")).alias("role")).agg(F.sum("n_events").alias("n"))
    return _profile(phases, "phase").join(_profile(roles, "role"), "template_id", "full")


def _median(column: Column) -> Column:
    return F.percentile(column, F.lit(0.5))


def normal_templates(each: DataFrame, shares: DataFrame, templates: DataFrame, min_jobs: int = MIN_JOBS) -> DataFrame:
    """Rows of `normal_templates`: what `by_job` says, over jobs.

    An alert is never normal, however many successful jobs print it. Attempts of one task count as one.
    """
    sums = each.groupBy("template_id").agg(
        F.countDistinct("job_id").alias("n_jobs"),
        F.countDistinct("lineage_id").alias("n_lineages"),
        F.countDistinct("user").alias("n_users"),
        F.countDistinct("config_hash").alias("n_configs"),
        F.size(F.array_distinct(F.flatten(F.collect_list("nodes")))).cast("long").alias("n_nodes"),
        F.sum("n_events").alias("n_events"),
        F.min("first_at").alias("first_seen_at"),
        F.max("last_at").alias("last_seen_at"),
        _median(F.col("rate")).alias("rate_per_rank_hour"),
        _median(F.col("share")).alias("share_of_ranks"),
        F.collect_set("noise").alias("noises"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("roles")))).alias("roles"),
    )
    spread = (
        each.join(sums.select("template_id", "rate_per_rank_hour"), "template_id")
        .groupBy("template_id")
        .agg(_median(F.abs(F.col("rate") - F.col("rate_per_rank_hour"))).alias("rate_spread"))
    )
    about = templates.select("template_id", "alert", "provenance", "library_version")
    only = F.col("noises")[0]
    noise = F.when((F.size("noises") == 1) & (only != "none"), only)
    is_normal = (F.col("n_lineages") >= min_jobs) & F.col("alert").isNull()
    return (
        sums.join(spread, "template_id", "left")
        .join(shares, "template_id", "left")
        .join(about, "template_id", "inner")
        .withColumn("noise_role", noise)
        .withColumn("is_normal", is_normal)
        .withColumn("roles", F.array_remove("roles", ""))
        .drop("noises")
    )
