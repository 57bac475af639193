"""Stage `machine_scores`: reads metrics, models and node events, writes machine_scores and machine_drift."""

from __future__ import annotations

from jobs.core.runner import StageContext
from jobs.machine_scores import transform


def run(context: StageContext) -> None:
    """Score the machines of each pending job, then sum up every machine's weeks."""
    stored = context.read("machine_models").select("metric", "model_id", "model").toArrow().to_pylist()
    models = {row["metric"]: f"{row['model_id']} {row['model']}" for row in stored}
    compared = transform.compared(context.read_pending("machine_metrics"), context.read_pending("ranks"), models)
    events = transform.events_of(context.read("node_events"), context.read_pending("training_jobs"))
    context.write("machine_scores", transform.scores(compared, events, models))
    until = context.as_of.isoformat() if context.as_of else None
    context.write("machine_drift", transform.drift(context.read("machine_scores"), context.read("training_jobs"), until))
