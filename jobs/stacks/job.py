"""Stage `stacks`: reads stack samples and what surrounds them, writes stack_findings and stack_tries."""

from __future__ import annotations

from jobs.core.runner import StageContext
from jobs.stacks import transform


def run(context: StageContext) -> None:
    """Merge and compare the stacks of each pending job by themselves."""
    samples = context.read_pending("stack_samples")
    facts = transform.facts(
        context.read_pending("training_jobs"),
        context.read_pending("ranks"),
        context.read_pending("iterations"),
        transform.moments(context.read_pending("log_records"), samples),
    )
    context.write("stack_findings", transform.findings(samples, facts))
    context.write("stack_tries", transform.tries(samples))
