"""Logs compared on three axes: reads events and template counts, writes `log_findings`, `node_findings` and `onsets`."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from jobs.core.lake import aggregates
from jobs.core.runner import StageContext
from jobs.log_diffs.transform import TABLES, Inputs, bundles, diffs, findings, rows_of, sides


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
    verdicts = diffs(sides(inputs.baselines, inputs.all_jobs), partial(counts, context.root_of("job_templates"))).persist()
    found = findings(bundles(inputs, verdicts)).persist()
    try:
        context.write_all({name: rows_of(found, name) for name in TABLES})
    finally:
        for kept in (found, verdicts):
            kept.unpersist()


def counts(lake: str, jobs: list[str]) -> pa.Table:
    """Events and last iteration by job and template, of these jobs."""
    summed = {"n_events": "sum", "last_iteration": "max"}
    return aggregates(lake, "job_templates", ["job_id", "template_id"], summed, [("job_id", "in", jobs)])
