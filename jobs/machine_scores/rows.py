"""Rows of `machine_scores` and `machine_drift`: scores with their node events, told in sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from ml.machines.drift import Drift
from ml.machines.ranking import STANDS_OUT, MachineScore, ranked
from schemas import machine_drift, machine_scores

SCORE_SCHEMA = pa.schema([pa.field(c.name, c.type) for c in machine_scores.TABLE.columns])
DRIFT_SCHEMA = pa.schema([pa.field(c.name, c.type) for c in machine_drift.TABLE.columns])

SLACK = timedelta(seconds=60)
"""Events this near a window belong to it: clocks differ, and a fault may be logged before or after it shows."""
NEAR_THRESHOLD = 0.25
MOST_REMARKS = 20
TELLING = ("warning", "critical")
SILENT_KINDS = ("drain", "health_check", "other", "link_up")
"""Events that say nothing of a fault by themselves."""

KINDS = {
    "level": "machine_differs", "change": "machine_changed", "roughness": "machine_unsteady", "gaps": "machine_silent",
    "stuck": "machine_frozen", "unexplained": "machine_apart", "erratic": "machine_erratic",
}  # fmt: skip


def job_rows(
    job_id: str, found: Iterable[MachineScore], payloads: Sequence[Mapping[str, Any]], priorities: Mapping[str, int],
    events: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:  # fmt: skip
    """All rows of one job: machines by rank, then one row for what was not compared, if anything."""
    facts: dict[str, dict[str, Any]] = {}
    usual: dict[str, dict[str, float]] = {}
    remarks: set[str] = set()
    for payload in payloads:
        remarks.update(payload["remarks"])
        for node, own in payload["usual"].items():
            usual.setdefault(node, {}).update(own)
        for node, fact in payload["facts"].items():
            known = facts.setdefault(node, dict(fact))
            known["seen_s"] = max(known["seen_s"], fact["seen_s"])
    raised = [_with_events(score, events) for score in ranked(found, priorities)]
    raised = sorted(raised, key=lambda pair: -pair[0].score)
    places: dict[str, int] = {}
    rows = []
    for score, near in raised:
        is_first = score.node not in places
        place = places.setdefault(score.node, len(places) + 1)
        row = _score_row(job_id, score, near, events, facts.get(score.node, {}), place)
        row["usual_differences"] = sorted(usual.get(score.node, {}).items()) if is_first else None
        rows.append(row)
    if remarks or not rows:
        rows.append(_remark_row(job_id, sorted(remarks) or ["no metric could be compared"]))
    return rows


def _with_events(score: MachineScore, events: Sequence[Mapping[str, Any]]) -> tuple[MachineScore, list[Mapping[str, Any]]]:
    """The score, raised when node events of the machine fell into its window; and these events, first one first."""
    start, end = _moment(score.window_start_us) - SLACK, _moment(score.window_end_us) + SLACK
    near = [
        event for event in events
        if event["node"] == score.node and event["occurred_at"] is not None and start <= event["occurred_at"] <= end
        and event["severity"] in TELLING and event["kind"] not in SILENT_KINDS
    ]  # fmt: skip
    near.sort(key=lambda event: (event["occurred_at"], event["kind"], event["code"] or 0))
    if not near or score.score < NEAR_THRESHOLD or score.is_shared:
        return score, near
    return replace(score, score=min(1 - (1 - score.score) / 2, 0.99)), near


def _score_row(
    job_id: str, score: MachineScore, near: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]],
    fact: Mapping[str, Any], place: int,
) -> dict[str, Any]:  # fmt: skip
    kind = KINDS[score.aspect]
    where = score.node if score.device is None else f"{score.node}|{score.device}"
    stands_out = score.ratio >= 1
    return {
        "job_id": job_id, "finding_id": _id(job_id, kind, score.metric, where), "source": "metrics", "axis": "spatial",
        "kind": kind, "nodes": [score.node], "ranks": fact.get("ranks", []),
        "devices": [] if score.device is None else [score.device], "group_kind": None, "score": round(score.score, 6),
        "is_echo": False, "is_global": score.is_global, "at": _moment(score.window_start_us) if stands_out else None,
        "iteration": None, "phase": None, "statement": statement(score, near, bool(events)), "subject": score.metric,
        "refs": [{"file": fact["file"], "line": None}] if fact.get("file") else [], "machine_rank": place,
        "metric": score.metric, "unit": score.unit, "aspect": score.aspect,
        "window_start_at": _moment(score.window_start_us), "window_end_at": _moment(score.window_end_us),
        "continuity_s": score.continuity_s, "value": score.value, "peer_low": score.peer_low, "peer_high": score.peer_high,
        "n_peers": score.n_peers, "ratio": round(score.ratio, 6), "model_id": score.model_id, "method": score.method,
        "n_events": len(near), "exposure_s": fact.get("seen_s"), "usual_differences": None, "remarks": [],
    }  # fmt: skip


def _remark_row(job_id: str, remarks: Sequence[str]) -> dict[str, Any]:
    """The row that says what could not be compared: it accuses nobody."""
    shown = list(remarks[:MOST_REMARKS])
    if len(remarks) > MOST_REMARKS:
        shown.append(f"and {len(remarks) - MOST_REMARKS} more")
    row: dict[str, Any] = dict.fromkeys(SCORE_SCHEMA.names)
    row.update({
        "job_id": job_id, "finding_id": _id(job_id, "machines_not_compared", "", ""), "source": "metrics", "axis": "spatial",
        "kind": "machines_not_compared", "nodes": [], "ranks": [], "devices": [], "score": 0.0, "is_echo": False,
        "is_global": False, "statement": "Not compared: " + "; ".join(shown[:3]), "refs": [], "remarks": shown,
    })  # fmt: skip
    return row


def statement(score: MachineScore, near: Sequence[Mapping[str, Any]], has_events: bool) -> str:
    """One sentence: what the machine showed, for how long, what its peers showed, by which threshold, and its events."""
    where = score.node if score.device is None else f"{score.node} device {score.device}"
    unit = f" {score.unit}" if score.unit else ""
    if score.aspect in ("gaps", "stuck"):
        unit, what = "", {"gaps": "share of missing samples in", "stuck": "share of repeated values in"}[score.aspect] + " "
    else:
        what = {"roughness": "jitter of ", "erratic": "course apart from its other metrics of "}.get(score.aspect, "")
        what = "allowing for its other metrics, " if score.aspect == "unexplained" else what
    seen = f"{what}{score.metric} {_figure(score.value)}{unit}"
    band = f"{score.n_peers} peers show {_figure(score.peer_low)} to {_figure(score.peer_high)}{unit}"
    by = "calibrated threshold" if score.method == "calibrated" else "default threshold"
    if score.ratio < 1:
        return f"{where} does not stand out: at most {score.ratio:.2f} of the {by} ({seen}, {band})."
    start = _moment(score.window_start_us).strftime("%H:%M:%S")
    told = f"{where}: {seen} from {start} UTC on, {score.continuity_s:.0f} s without a break, while {band}"
    if score.is_shared:
        return f"{told}; other machines do the same, so it accuses none."
    return f"{told}: {score.ratio:.1f} times the {by}; {_events_told(near, has_events)}."


def _events_told(near: Sequence[Mapping[str, Any]], has_events: bool) -> str:
    if near:
        first = near[0]
        code = f" {first['code']}" if first["code"] is not None else ""
        more = f" and {len(near) - 1} more" if len(near) > 1 else ""
        return f"corroborated by its node event {first['kind']}{code} at {first['occurred_at'].strftime('%H:%M:%S')}{more}"
    return "no event of this node in the window" if has_events else "no node events are on record for this job"


def _figure(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4g}"


def _moment(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def _id(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def drift_row(habit: Drift, starts: Sequence[datetime]) -> dict[str, Any]:
    """A row of `machine_drift`."""
    side = "above" if habit.mean_difference > 0 else "below"
    verdict = "constantly" if habit.score >= STANDS_OUT else "not constantly"
    return {
        "node": habit.node, "metric": habit.metric, "score": habit.score, "mean_difference": habit.mean_difference,
        "same_side_share": habit.same_side_share, "n_jobs": habit.n_jobs, "exposure_s": habit.exposure_s,
        "first_job_at": starts[0] if starts else None, "last_job_at": starts[-1] if starts else None,
        "statement": f"{habit.node} is {verdict} off: {habit.metric} {abs(habit.mean_difference):.1f} spreads {side} its peers on "
        f"average, {habit.same_side_share:.0%} of {habit.exposure_s / 3600:.1f} h in {habit.n_jobs} jobs.",
    }  # fmt: skip
