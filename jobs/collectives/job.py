"""Stage `collectives`: reads flight-recorder entries, writes collective_findings."""

from __future__ import annotations

from jobs.collectives import transform
from jobs.core.runner import StageContext


def run(context: StageContext) -> None:
    """Match the collectives of each pending job by themselves and name whom the others wait for."""
    collectives = context.read_pending("collectives")
    found = transform.findings(
        transform.telling(transform.entries(collectives)),
        transform.progress(collectives),
        transform.facts(context.read_pending("training_jobs"), context.read_pending("ranks")),
    )
    context.write("collective_findings", found)
