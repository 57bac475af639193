"""One job's bundle of findings becomes a case, and its diagnosis a row of `diagnoses`.

A bundle is a mapping: `job`, and lists of rows `ranks`, `findings` (rows of any `*_findings` table with a key `table`),
`baselines` (`baseline_job_id, score, differing`), `node_events`; numbers and texts `has_library`, `library`, `code`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.core.rows import finding_of, instant, job_of, listed, number, seconds
from ml.fusion.document import text
from ml.fusion.fuse import LOCALISED, diagnose
from ml.fusion.node_events import NodeEvent, event_findings
from ml.fusion.rules import Rule
from ml.fusion.types import Baseline, Case, Template


def case_of(bundle: Mapping[str, Any]) -> Case:
    """The case of a bundle: every finding typed, node events turned into findings."""
    job = job_of(bundle["job"], bundle.get("ranks") or ())
    rows = list(bundle.get("findings") or ())
    findings = [finding_of(r, r["table"]) for r in rows]
    events = event_findings(job, [event_of(r) for r in bundle.get("node_events") or ()])
    templates = [template_of(r) for r in rows if r.get("template_id")]
    versions = {key: str(bundle[key]) for key in ("library", "code") if bundle.get(key)}
    if models := models_of(rows):
        versions["models"] = models
    return Case(
        job, tuple(sorted([*findings, *events], key=lambda f: (f.table, f.kind, f.statement))), tuple(templates),
        tuple(baselines_of(bundle.get("baselines") or ())), bool(bundle.get("has_library", True)), versions,
    )  # fmt: skip


def models_of(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """One hash for all machine models whose scores a diagnosis rests on, None when there were none.

    First 16 hex digits of the SHA-256 of their sorted ids; the ids themselves stand in `machine_scores`.
    """
    ids = sorted({str(r["model_id"]) for r in rows if r.get("model_id")})
    return hashlib.sha256("|".join(ids).encode()).hexdigest()[:16] if ids else None


def diagnosis_row(case: Case, rules: Sequence[Rule] = ()) -> dict[str, Any]:
    """The row of `diagnoses` for a case."""
    found = diagnose(case, rules)
    best = found.candidates[0] if found.candidates else None
    onset = found.onset
    return {
        "job_id": case.job.job_id, "state": case.job.state, "symptom": found.symptom.value, "cause_class": found.cause.name,
        "cause_confidence": found.cause.confidence, "spatial_signal": found.spatial_signal.value,
        "onset_at": instant(onset.started_at) if onset else None, "onset_end_at": instant(onset.ended_at) if onset else None,
        "onset_iteration": onset.iteration if onset else None, "onset_phase": onset.phase if onset else None,
        "top_node": best.nodes[0] if best and best.nodes else None, "top_ranks": list(best.ranks) if best else [],
        "top_score": best.score if best else None, "n_candidates": len(found.candidates),
        "candidate_nodes": list(dict.fromkeys(n for c in found.candidates if c.score >= LOCALISED for n in c.nodes)),
        "n_findings": len(case.findings), "n_baselines": len(case.baselines), "is_verified": False,
        "library_version": case.versions.get("library"), "code_version": case.versions.get("code"), "document": text(found),
    }  # fmt: skip


def template_of(row: Mapping[str, Any]) -> Template:
    """A `log_findings` row that is about one template."""
    return Template(
        row["template_id"],
        row.get("template") or "",
        row.get("alert"),
        float(row["score"]),
        number(row.get("n_events")) or 0,
        seconds(row.get("first_at")),
        number(row.get("iteration")),
        tuple(listed(row.get("nodes"))),
        tuple(int(r) for r in listed(row.get("ranks"))),
        bool(row.get("in_baselines")),
        bool(row.get("in_library")),
        row.get("example") or "",
    )


def event_of(row: Mapping[str, Any]) -> NodeEvent:
    """A `node_events` row."""
    return NodeEvent(
        row.get("node"),
        row.get("device"),
        seconds(row.get("occurred_at")),
        row["kind"],
        number(row.get("code")),
        row["severity"],
        row["message"],
        row.get("file"),
    )


def baselines_of(rows: Iterable[Mapping[str, Any]]) -> list[Baseline]:
    """`baselines` rows, best first."""
    found = [
        Baseline(
            r["baseline_job_id"], float(r["score"]),
            tuple((d["key"], d.get("this"), d.get("baseline")) for d in listed(r.get("differing"))),
        )
        for r in rows if r.get("baseline_job_id")
    ]  # fmt: skip
    return sorted(found, key=lambda b: (-b.score, b.job_id))
