"""Stage `operations`: reads operations and step times, writes operation_findings and straggler_reports."""

from __future__ import annotations

from jobs.core.runner import StageContext
from jobs.operations import transform


def run(context: StageContext) -> None:
    """Analyse each pending job's operations by themselves, in its groups, and against its baselines."""
    operations = context.read_pending("operations")
    baselines = transform.chosen_baselines(context.read_pending("baselines"))
    facts = transform.facts(
        context.read_pending("training_jobs"),
        context.read_pending("ranks"),
        transform.iteration_times(context.read_pending("iterations")),
        transform.expected(
            baselines,
            transform.operation_profiles(transform.of_baselines(context.read("operations"), baselines)),
            transform.typical_iterations(transform.of_baselines(context.read("iterations"), baselines)),
        ),
    )
    analysed = transform.analysed(operations, facts).persist()
    try:
        context.write("operation_findings", transform.findings(analysed))
        context.write("straggler_reports", transform.reports(analysed))
    finally:
        analysed.unpersist()
