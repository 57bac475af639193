"""Events become utterances, and findings become rows of the stage's three tables: plain Python, no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jobs.core.rows import finding_row, instant, number, seconds
from ml.log_diffs.evidence import NodeFinding, TemplateFinding
from ml.log_diffs.topology import Finding
from ml.log_diffs.utterances import Utterance

MAX_MESSAGES = 8


def utterance(rows: Sequence[Mapping[str, Any]], offsets: Mapping[str, float], is_normal: bool) -> Utterance:
    """The events of one template of one writer, as one utterance; rows are in order of time."""
    first = rows[0]
    offset = offsets.get(first.get("node") or "", 0.0)
    at, onset = seconds(first.get("occurred_at")), seconds(first.get("onset_at"))
    spread = first.get("time_uncertainty_s")
    return Utterance(
        first["template_id"],
        first["message"] or "",
        first.get("node"),
        number(first.get("rank")),
        first.get("role"),
        first.get("stream"),
        first.get("level"),
        first.get("alert"),
        first.get("template"),
        int(first.get("n_total") or len(rows)),
        None if at is None else at - offset,
        None if onset is None else onset - offset,
        float("inf") if spread is None or not np.isfinite(spread) else float(spread),
        offset,
        number(first.get("iteration")),
        first.get("phase"),
        first.get("file"),
        number(first.get("line")),
        is_normal,
        tuple(dict.fromkeys(r["message"] or "" for r in rows[:MAX_MESSAGES])),
    )


def log_row(job_id: str, finding: Finding | TemplateFinding) -> dict[str, Any]:
    """A row of `log_findings`."""
    if isinstance(finding, TemplateFinding):
        return finding_row(job_id, finding.finding) | {
            "template_id": finding.template_id,
            "template": finding.template,
            "alert": finding.alert,
            "n_events": finding.n_events,
            "first_at": instant(finding.first_at),
            "rate": finding.rate,
            "baseline_rate": finding.baseline_rate,
            "q_value": finding.q_value,
            "in_baselines": finding.in_baselines,
            "in_library": finding.in_library,
            "example": finding.example,
        }
    empty = dict.fromkeys(
        ("template_id", "template", "alert", "n_events", "first_at", "rate", "baseline_rate", "q_value", "example")
    )
    return finding_row(job_id, finding) | empty | {"in_baselines": False, "in_library": False}


def node_row(job_id: str, finding: NodeFinding) -> dict[str, Any]:
    """A row of `node_findings`."""
    return finding_row(job_id, finding.finding) | {
        "distance": finding.distance,
        "forest_score": finding.forest_score,
        "separating": list(finding.separating),
        "n_peers": finding.n_peers,
    }


def onset_row(job_id: str, finding: Finding) -> dict[str, Any]:
    """A row of `onsets`."""
    end = None if finding.at is None else finding.at + 10.0
    return finding_row(job_id, finding) | {"window_start_at": instant(finding.at), "window_end_at": instant(end)}
