"""Lineages: the attempts of one task, what they made of the time, and what the fleet's failure rate would have left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.core.lake import arrow_schema
from jobs.reliability.transform import as_run, datetime_of, ddl
from ml.reliability import ettr


def lineages(runs: DataFrame, steps: DataFrame, failures_per_node_day: float) -> DataFrame:
    """Rows of reliability_lineages. The fleet's rate gives each lineage's expected ratio."""
    rows = runs.where("started_at IS NOT NULL AND ended_at > started_at").join(steps, "job_id", "left")
    return rows.groupBy("lineage_id").applyInArrow(lineage_maker(failures_per_node_day), ddl("reliability_lineages"))


def lineage_maker(failures_per_node_day: float) -> Callable[[pa.Table], pa.Table]:
    """A function from the runs of one lineage to its row."""

    def make(rows: pa.Table) -> pa.Table:
        found = sorted(rows.to_pylist(), key=lambda r: (r["started_at"], r["job_id"]))
        attempts = [as_run(r) for r in found]
        steps = {
            r["job_id"]: ettr.Steps(r["first_iteration"], r["last_iteration"], r["first_iteration_at"], r["step_time_s"])
            for r in found
        }
        interval = _checkpoint_min(found)
        measured = ettr.measured_ettr(attempts, steps, checkpoint_min=interval or ettr.CHECKPOINT_MIN)
        nodes = max(a.n_nodes for a in attempts)
        expected = ettr.expected_ettr(nodes, failures_per_node_day, interval or ettr.CHECKPOINT_MIN)
        said = (
            "start-up and repeated iterations from the logs" if measured.is_progress_known else "start-up or repeated work assumed"
        )
        said += (
            f"; checkpoints every {interval:.3g} min by its configuration"
            if interval
            else f"; {ettr.CHECKPOINT_MIN:g} min between checkpoints assumed"
        )
        row = {
            "lineage_id": found[0]["lineage_id"],
            "n_attempts": measured.n_attempts,
            "n_failures": measured.n_failures,
            "is_censored": measured.is_censored,
            "n_nodes": float(nodes),
            "first_submitted_at": _first(found),
            "last_ended_at": datetime_of(max(r["ended_at"] for r in found)),
            "wall_s": measured.wall_s,
            "queue_s": measured.queue_s,
            "running_s": measured.running_s,
            "lost_s": measured.lost_s,
            "ettr_measured": measured.ettr,
            "ettr_expected": _known(expected),
            "ettr_difference": _known(measured.ettr - expected),
            "checkpoint_interval_s": interval * 60 if interval else None,
            "method": said,
            "source_rows": [r["job_id"] for r in found],
        }
        return pa.Table.from_pylist([row], schema=arrow_schema("reliability_lineages"))

    return make


def _known(value: float) -> float | None:
    return None if value != value else value


def _first(rows: list[dict[str, Any]]) -> datetime | None:
    known = [r["submitted_at"] for r in rows if r["submitted_at"] is not None]
    return datetime_of(min(known)) if known else None


def _checkpoint_min(rows: list[dict[str, Any]]) -> float | None:
    """Minutes between checkpoints: iterations between saves by the configuration, times the step time of the logs."""
    known = [
        r["save_interval"] * r["step_time_s"] / 60 for r in rows if (r["save_interval"] or 0) > 0 and (r["step_time_s"] or 0) > 0
    ]
    return sorted(known)[len(known) // 2] if known else None
