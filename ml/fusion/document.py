"""A diagnosis as the contract's JSON: same diagnosis, same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ml.fusion.types import Candidate, Diagnosis, Evidence, Template

SOURCES = ("logs", "stacks", "operations", "metrics")
MAX_EXAMPLE = 1_000
MAX_STATEMENT = 600


def iso(at: float | None) -> str | None:
    """`2026-01-31T12:00:00.250Z`, or None."""
    if at is None:
        return None
    return datetime.fromtimestamp(round(at, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis in the contract's words and order."""
    job, onset = diagnosis.job, diagnosis.onset
    return {
        "job_id": job.job_id,
        "state": job.state,
        "verified": False,
        "symptom": diagnosis.symptom.value,
        "cause_class": diagnosis.cause.name,
        "cause_confidence": diagnosis.cause.confidence,
        "onset": None
        if onset is None
        else {
            "window_start_at": iso(onset.started_at),
            "window_end_at": iso(onset.ended_at),
            "iteration": onset.iteration,
            "phase": onset.phase,
        },
        "spatial_signal": diagnosis.spatial_signal.value,
        "candidates": [_candidate(c) for c in diagnosis.candidates],
        "templates": [_template(t) for t in diagnosis.templates],
        "missing": [{"node": m.node, "rank": m.rank, "what": m.what[:MAX_STATEMENT]} for m in diagnosis.missing],
        "baselines": [
            {
                "job_id": b.job_id,
                "score": round(b.score, 4),
                "differing": [{"key": k, "this": this, "baseline": other} for k, this, other in b.differing],
            }
            for b in diagnosis.baselines
        ],
        "coverage": _coverage(job.coverage, diagnosis.notes),
        "versions": {key: diagnosis.versions.get(key) for key in ("library", "models", "code")},
    }


def text(diagnosis: Diagnosis) -> str:
    """The document as JSON text without a line break."""
    return json.dumps(document(diagnosis), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _coverage(shares: Mapping[str, float], notes: tuple[str, ...]) -> dict[str, Any]:
    more = sorted(set(shares) - set(SOURCES))
    return {**{s: round(float(shares.get(s) or 0.0), 4) for s in (*SOURCES, *more)}, "notes": list(notes)}


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "score": candidate.score,
        "nodes": list(candidate.nodes),
        "ranks": list(candidate.ranks),
        "devices": list(candidate.devices),
        "groups": [{"kind": kind, "ranks": list(ranks)} for kind, ranks in candidate.groups],
        "evidence": [_evidence(e) for e in candidate.evidence],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "source": evidence.source,
        "axis": evidence.axis,
        "statement": evidence.statement[:MAX_STATEMENT],
        "at": iso(evidence.at),
        "table": evidence.table,
        "refs": [{"file": file, "line": line} for file, line in evidence.refs],
    }


def _template(template: Template) -> dict[str, Any]:
    return {
        "template_id": template.template_id,
        "template": template.template,
        "alert": template.alert,
        "score": round(template.score, 4),
        "n_events": template.n_events,
        "first_at": iso(template.first_at),
        "iteration": template.iteration,
        "nodes": list(template.nodes),
        "ranks": list(template.ranks),
        "in_baselines": template.in_baselines,
        "in_library": template.in_library,
        "example": template.example[:MAX_EXAMPLE],
    }
