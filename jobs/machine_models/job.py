"""Stage `machine_models`: reads successful jobs' metrics, writes machine_models."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import functions as F

from jobs.core.lake import version
from jobs.core.runner import StageContext
from jobs.machine_models import transform

TRAINING_JOBS = 1000
SEED = 20260101
FALSE_ALARMS_PER_JOB_DAY = 1 / 30
EVERY = timedelta(days=7)


def run(context: StageContext) -> None:
    """Train when there is something new to learn: weekly, and every night until thresholds are learnt."""
    if not _is_due(context):
        return
    settings = context.settings
    seed = int(settings.get("machine_seed", SEED))
    jobs = context.read("training_jobs")
    most = int(settings.get("machine_training_jobs", TRAINING_JOBS))
    harvested = transform.harvests(
        jobs, context.read("ranks"), context.read("machine_metrics"), n_jobs=most, seed=seed
    ).persist()  # fmt: skip
    n_jobs = min(jobs.where(F.col("state") == transform.SUCCESS).count(), most)
    # A row a metric: does not grow with the fleet.
    learnt = transform.companions(harvested, n_jobs=n_jobs, seed=seed).toArrow().to_pylist()
    known = {row["metric"]: row["companion"] for row in learnt}
    everything = harvested.unionByName(transform.unexplained_harvests(harvested, known, seed=seed)) if known else harvested
    versions = {name: version(context.lake.root, name) for name in context.stage.reads}
    rate = float(settings.get("machine_false_alarms_per_job_day", FALSE_ALARMS_PER_JOB_DAY))
    models = transform.models(
        everything, transform.order(harvested, seed), known, false_alarms_per_job_day=rate, seed=seed, table_versions=versions
    )
    context.write("machine_models", models)
    harvested.unpersist()


def _is_due(context: StageContext) -> bool:
    """Whether a week of jobs has ended since the models' data, or the models still use default thresholds."""
    if context.pending is None:
        return True
    newest = context.read("training_jobs").where(F.col("state") == transform.SUCCESS).agg(F.max("ended_at").alias("at"))
    learnt = context.read("machine_models").agg(
        F.max("data_to_at").alias("to_at"), F.bool_or(F.col("method") == "calibrated").alias("is_calibrated")
    )
    row = newest.crossJoin(learnt).first()
    if row is None or row["to_at"] is None or row["at"] is None or not row["is_calibrated"]:
        return True
    return bool(row["at"] - row["to_at"] >= EVERY)
