"""Stage `collectives`: reads flight-recorder entries, writes collective_findings."""

from __future__ import annotations

from functools import partial

from jobs.collectives import transform
from jobs.core.lake import answer
from jobs.core.runner import StageContext


def run(context: StageContext) -> None:
    """Match the collectives of each pending job by themselves and name whom the others wait for."""
    facts = transform.facts(context.read_pending("training_jobs"), context.read_pending("ranks"))
    context.write("collective_findings", transform.findings(facts, partial(answer, context.root_of("collectives"), "collectives")))
