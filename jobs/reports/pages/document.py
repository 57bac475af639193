"""A diagnosis as pages read it: every word of the contract present, whatever the document left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOP: dict[str, Any] = {
    "state": "UNKNOWN", "verified": False, "symptom": "undetermined", "cause_class": "undetermined", "cause_confidence": 0.0,
    "spatial_signal": "none", "candidates": [], "templates": [], "missing": [], "baselines": [], "versions": {},
}  # fmt: skip
_CANDIDATE: dict[str, Any] = {"score": 0.0, "nodes": [], "ranks": [], "devices": [], "groups": [], "evidence": []}
_EVIDENCE: dict[str, Any] = {"source": "", "axis": "", "statement": "", "at": None, "table": "", "refs": []}
_TEMPLATE: dict[str, Any] = {
    "template_id": "", "template": "", "alert": None, "score": 0.0, "n_events": 0, "first_at": None, "iteration": None,
    "nodes": [], "ranks": [], "in_baselines": False, "in_library": False, "example": "",
}  # fmt: skip
_ONSET: dict[str, Any] = {"window_start_at": None, "window_end_at": None, "iteration": None, "phase": None}
_COVERAGE: dict[str, Any] = {"logs": 0.0, "stacks": 0.0, "operations": 0.0, "metrics": 0.0, "notes": []}


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with every key of the contract; nulls in place of lists and numbers become empty."""
    done = _over(_TOP, document)
    done["onset"] = _over(_ONSET, document.get("onset") or {})
    done["coverage"] = _over(_COVERAGE, document.get("coverage") or {})
    done["candidates"] = [
        {**_over(_CANDIDATE, c), "evidence": [_over(_EVIDENCE, e) for e in c.get("evidence") or []]} for c in done["candidates"]
    ]
    done["templates"] = [_over(_TEMPLATE, t) for t in done["templates"]]
    done["missing"] = [_over({"node": None, "rank": None, "what": ""}, m) for m in done["missing"]]
    done["baselines"] = [_over({"job_id": "", "score": 0.0, "differing": []}, b) for b in done["baselines"]]
    return done


def _over(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {**defaults, **{k: v for k, v in given.items() if v is not None or defaults.get(k) is None}}


def undiagnosed(job: Mapping[str, Any]) -> dict[str, Any]:
    """An honest empty diagnosis of a job that has none yet."""
    notes = {"notes": ["this job has not been diagnosed yet"]}
    return completed({"job_id": job["job_id"], "state": job.get("state"), "coverage": notes})
