"""Reads the counts of all successful jobs; writes the normal library."""

from __future__ import annotations

from jobs.core.runner import StageContext
from jobs.library import transform


def run(context: StageContext) -> None:
    """Rewrite `normal_templates` from the counts of the fleet's successful jobs; setting `normal_min_jobs`."""
    counts = context.read("job_templates")
    jobs = transform.successful(context.read("training_jobs"), context.read("ranks"))
    each = transform.by_job(counts, jobs)
    min_jobs = int(context.settings.get("normal_min_jobs", transform.MIN_JOBS))
    context.write(
        "normal_templates",
        transform.normal_templates(each, transform.profiles(counts, jobs), context.read("templates"), min_jobs),
    )
