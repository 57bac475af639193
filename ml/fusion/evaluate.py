"""Diagnoses against known truth: the contract's figures, each with its numerator and denominator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

ACCUSED = 0.5
"""Score from which a candidate names a place, as the contract counts accusations; weaker ones are told in words."""
TOP = 5
WITHIN = 5


def evaluate(truths: Sequence[Mapping[str, Any]], documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures over all truths, and a row a job in order of its id.

    A job without a diagnosis counts as wrong wherever its truth is scored: silence of the pipeline is no right answer.
    """
    rows = [row(truth, documents.get(str(truth["job_id"]))) for truth in sorted(truths, key=lambda t: str(t["job_id"]))]
    figures = {
        "symptom_accuracy": _share(rows, "symptom_right"),
        "node_top1": _share(rows, "node_top1"),
        "node_top3": _share(rows, "node_top3"),
        "rank_top1": _share(rows, "rank_top1"),
        "false_accusation_rate": _share(rows, "is_falsely_accusing"),
        "template_top5": _share(rows, "template_top5"),
        "onset_within_5": _share(rows, "onset_within_5"),
        "onset_median_error": _median(rows),
    }
    return {**figures, "jobs": rows}


def row(truth: Mapping[str, Any], found: Mapping[str, Any] | None) -> dict[str, Any]:
    """One job: what was said, what is true, and each score as true, false or None (not scored)."""
    said = found or {}
    candidates = said.get("candidates") or []
    right = {truth.get("symptom"), *(truth.get("symptom_also") or ())}
    is_localised = truth.get("spatial") == "localised"
    error = _onset_error(truth, said)
    return {
        "job_id": truth["job_id"],
        "is_diagnosed": found is not None,
        "symptom": said.get("symptom"),
        "true_symptom": truth.get("symptom"),
        "symptom_right": None if truth.get("symptom") is None else said.get("symptom") in right,
        "nodes": [node for c in candidates[:3] for node in c.get("nodes", [])],
        "true_nodes": list(truth.get("faulty_nodes") or ()),
        "node_top1": _names_node(candidates[:1], truth) if is_localised and truth.get("faulty_nodes") else None,
        "node_top3": _names_node(candidates[:3], truth) if is_localised and truth.get("faulty_nodes") else None,
        "ranks": list(candidates[0].get("ranks", [])) if candidates else [],
        "true_ranks": list(truth.get("faulty_ranks") or ()),
        "rank_top1": _names_rank(candidates[:1], truth) if is_localised and truth.get("faulty_ranks") else None,
        "is_falsely_accusing": _accuses(candidates) if truth.get("spatial") in ("none", "global") else None,
        "template_top5": _indicates(truth, said),
        "onset_iteration": (said.get("onset") or {}).get("iteration"),
        "true_onset_iteration": truth.get("onset_iteration"),
        "onset_error": error,
        "onset_within_5": None if truth.get("onset_iteration") is None else error is not None and error <= WITHIN,
    }


def _names_node(candidates: Sequence[Mapping[str, Any]], truth: Mapping[str, Any]) -> bool:
    """Whether a candidate's first node is a faulty one: a long list of nodes is no hit by luck."""
    faulty = set(truth["faulty_nodes"])
    return any(set(c.get("nodes", [])[: len(faulty)]) & faulty for c in candidates)


def _names_rank(candidates: Sequence[Mapping[str, Any]], truth: Mapping[str, Any]) -> bool:
    faulty = set(truth["faulty_ranks"])
    return any(set(c.get("ranks", [])[: len(faulty)]) & faulty for c in candidates)


def _accuses(candidates: Sequence[Mapping[str, Any]]) -> bool:
    return any(c.get("nodes") and float(c.get("score") or 0.0) >= ACCUSED for c in candidates)


def _indicates(truth: Mapping[str, Any], said: Mapping[str, Any]) -> bool | None:
    patterns = truth.get("indicating")
    if not patterns:
        return None
    top = (said.get("templates") or [])[:TOP]
    return any(re.search(p, t.get(key) or "") for p in patterns for t in top for key in ("template", "example"))


def _onset_error(truth: Mapping[str, Any], said: Mapping[str, Any]) -> int | None:
    at = (said.get("onset") or {}).get("iteration")
    return None if truth.get("onset_iteration") is None or at is None else abs(int(at) - int(truth["onset_iteration"]))


def _share(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    scored = [bool(r[key]) for r in rows if r[key] is not None]
    return {"value": round(sum(scored) / len(scored), 4) if scored else None, "numerator": sum(scored), "denominator": len(scored)}


def _median(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [r["onset_error"] for r in rows if r["onset_error"] is not None]
    scored = sum(r["true_onset_iteration"] is not None for r in rows)
    return {"value": float(median(errors)) if errors else None, "numerator": len(errors), "denominator": scored}
