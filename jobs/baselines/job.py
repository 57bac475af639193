"""Stage `baselines`: read jobs, their alerts and their iterations; write the index and each job's baselines."""

from __future__ import annotations

from pyspark.sql import functions as F

from jobs.baselines import transform
from jobs.core.key_classes import classes_from
from jobs.core.runner import StageContext
from jobs.core.tables import spark_schema
from schemas.baselines import TABLE as BASELINES
from schemas.config_index import TABLE as CONFIG_INDEX


def run(context: StageContext) -> None:
    """Index the pending jobs, then match each of them with every job of its model."""
    classes = classes_from(context.settings)
    jobs = context.read_pending("training_jobs").persist()
    indexed = transform.index_rows(
        jobs,
        transform.alerts_by_job(context.read_pending("job_templates")),
        transform.progress_by_job(context.read_pending("iterations")),
        spark_schema(CONFIG_INDEX),
        classes,
    )
    context.write("config_index", transform.laid_out(indexed, jobs.count()))
    pending = jobs.select("job_id")
    index = context.read("config_index").where(F.col("classes") == classes.version)
    shortlisted = transform.shortlists(index, pending, classes)
    context.write("baselines", transform.decided(index, shortlisted, pending, spark_schema(BASELINES), classes))
    jobs.unpersist()
