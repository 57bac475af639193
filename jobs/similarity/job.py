"""Stage `similarity`: read diagnoses and templates; write fingerprints, look-alikes, families and separators."""

from __future__ import annotations

from pyspark.sql import functions as F

from jobs.core.key_classes import classes_from
from jobs.core.runner import StageContext
from jobs.core.tables import spark_schema
from jobs.similarity import separators, transform
from schemas import tables


def run(context: StageContext) -> None:
    """Fingerprints, families and separators are made anew each night; look-alikes only for the pending failures."""
    schemas = {name: spark_schema(tables()[name]) for name in context.stage.writes}
    jobs = context.read("training_jobs")
    failed = transform.failures(jobs, context.read("diagnoses")).persist()
    plain = [
        words.withColumn("share", F.lit(1.0))
        for words in (
            transform.diagnosis_words(failed),
            transform.event_words(failed, context.read("node_events"), context.read("collective_findings")),
        )
    ]
    printed = transform.template_words(
        failed, context.read("job_templates"), context.read("templates"), context.read("normal_templates")
    )
    words = transform.weighted(printed.unionByName(plain[0]).unionByName(plain[1]), failed.count())
    context.write("job_fingerprints", transform.fingerprints(failed, words, schemas["job_fingerprints"]))
    known = context.read("job_fingerprints")
    pending = context.read_pending("training_jobs").select("job_id")
    classes, index = classes_from(context.settings), context.read("config_index")
    context.write_all(
        {
            "job_similarity": transform.look_alikes(known, pending, schemas["job_similarity"]),
            "failure_families": transform.families(known, context.batch, schemas["failure_families"]),
            "config_separators": separators.separators(known, index, schemas["config_separators"], classes),
        }
    )
    failed.unpersist()
