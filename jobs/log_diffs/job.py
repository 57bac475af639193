"""Logs compared on three axes: reads events and template counts, writes `log_findings`, `node_findings` and `onsets`."""

from __future__ import annotations

from jobs.core.runner import StageContext
from jobs.log_diffs.transform import TABLES, Inputs, bundles, diffs, exposures, findings, rows_of, sides, template_sums


def run(context: StageContext) -> None:
    """One set-based diff for all pending jobs, then the rules of each job; the findings are computed once for three tables."""
    inputs = Inputs(
        context.read_pending("training_jobs"),
        context.read_pending("ranks"),
        context.read_pending("log_events"),
        context.read_pending("job_templates"),
        context.read("templates"),
        context.read("normal_templates"),
        context.read_pending("baselines"),
        context.read_pending("iterations"),
        context.read_pending("operations"),
        context.read_pending("clock_offsets"),
        context.read("training_jobs"),
        context.read("job_templates"),
    )
    sums = template_sums(inputs.all_job_templates).persist()
    exposed = exposures(inputs.all_jobs, sums).persist()
    verdicts = diffs(sides(inputs.baselines, exposed, sums)).persist()
    found = findings(bundles(inputs, verdicts)).persist()
    try:
        context.write_all({name: rows_of(found, name) for name in TABLES})
    finally:
        for kept in (found, verdicts, exposed, sums):
            kept.unpersist()
