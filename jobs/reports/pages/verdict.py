"""A diagnosis in one sentence, its confidence and coverage in a second one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.reports.words import count, listed, number, percent, ranges, sentence_case, utc

SYMPTOMS = {
    "none": "Nothing stands out",
    "launch_failure": "The job failed to start",
    "crash": "The job crashed",
    "hang": "The job hung",
    "slowdown": "The job was slow",
    "oom": "The job ran out of memory",
    "comm_timeout": "Communication timed out",
    "loss_nonfinite": "The loss stopped being a number",
    "time_limit": "The job reached its time limit",
    "cancelled": "The job was cancelled",
    "node_failure": "A machine failed under the job",
    "undetermined": "What went wrong is undetermined",
}
SPATIAL = {
    "localised": "",
    "global": "Nearly all peers show it: no single place stands out.",
    "none": "No place stands out against its peers.",
    "not_applicable": "",
}
SOURCES = ("logs", "stacks", "operations", "metrics")


def place(candidate: Mapping[str, Any]) -> str:
    """Where a candidate points: `node n1, rank 5`."""
    said = []
    nodes, ranks, devices = (candidate.get(k) or [] for k in ("nodes", "ranks", "devices"))
    if nodes:
        said.append(f"{'node' if len(nodes) == 1 else 'nodes'} {listed(nodes, 4)}")
    if ranks:
        said.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks, 5)}")
    if devices:
        said.append(f"{'device' if len(devices) == 1 else 'devices'} {listed(devices, 4)}")
    said += [
        f"{g.get('kind') or 'a'} group of ranks {ranges(g.get('ranks') or [], 3)}"
        for g in (candidate.get("groups") or [])[:1]
        if not said
    ]
    return ", ".join(said) or "no named place"


def headline(document: Mapping[str, Any]) -> str:
    """The verdict: what was seen, when it began, and the first candidate."""
    symptom = str(document.get("symptom") or "undetermined")
    said = SYMPTOMS.get(symptom, sentence_case(symptom)) + _onset(document)
    candidates = document.get("candidates") or []
    cause = str(document.get("cause_class") or "undetermined")
    if symptom == "none" and not candidates:
        state = document.get("state", "UNKNOWN")
        return f"{said}: it ended as {state}, and no difference from its peers or baselines is strong enough to name."
    if candidates:
        word = "confirmed place" if document.get("verified") else "strongest candidate"
        said += f"; {word}: {place(candidates[0])} (score {number(candidates[0].get('score'), 2)})"
    if cause not in ("undetermined", "none", ""):
        said += f". {'Confirmed' if document.get('verified') else 'Candidate'} cause class: {cause.replace('_', ' ')}"
    tail = "" if candidates else SPATIAL.get(str(document.get("spatial_signal")), "")
    return f"{said}." + (f" {tail}" if tail else "")


def _onset(document: Mapping[str, Any]) -> str:
    onset = document.get("onset") or {}
    said = ""
    if onset.get("iteration") is not None:
        said += f" at iteration {onset['iteration']:,}"
    if onset.get("phase"):
        said += f" in phase {onset['phase']}"
    if not said and onset.get("window_start_at"):
        said = f" from {utc(onset['window_start_at'])}"
    return said


def confidence(document: Mapping[str, Any]) -> str:
    """How sure the verdict is, and what share of the job each kind of evidence covers."""
    coverage = document.get("coverage") or {}
    shares = ", ".join(f"{source} {percent(float(coverage.get(source) or 0.0), 0)}" for source in SOURCES)
    sources = sorted({e.get("source", "") for c in (document.get("candidates") or [])[:1] for e in c.get("evidence") or []})
    said = f"Coverage: {shares}."
    if document.get("cause_confidence"):
        said = f"Cause confidence {number(float(document['cause_confidence']), 2)} of 1. {said}"
    if sources:
        words = [source.replace("_", " ") for source in sources]
        said += f" The first candidate rests on {count(len(words), 'kind')} of evidence: {listed(words)}."
    return said
