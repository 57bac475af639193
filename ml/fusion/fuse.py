"""The fusion: a case in, a diagnosis out. Pure: same case, same diagnosis, in any order of its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ml.fusion.candidates import best_score, rank_candidates
from ml.fusion.rules import Rule, cause_of
from ml.fusion.symptoms import symptom_of
from ml.fusion.types import Candidate, Case, Diagnosis, Missing, SpatialSignal, Symptom, Template, Window
from ml.log_diffs.topology import Finding

LOCALISED = 0.5
"""A candidate below this is a hint, not an accusation."""
HINT = 0.45
"""Score of the first to fail where every rank fails alike: worth knowing, no accusation."""
WITHOUT_BASELINES = 0.9
MAX_TEMPLATES = 20
ONSET_KIND = "onset"
DENSEST = frozenset({"slow_stretch", "step_pauses", "single_pause"})
"""Onsets at the thickest of a slowdown that comes and goes; it may have begun before."""
QUIET = frozenset({Symptom.NONE})
UNPLACED = frozenset({Symptom.CANCELLED, Symptom.TIME_LIMIT})


def diagnose(case: Case, rules: Sequence[Rule] = ()) -> Diagnosis:
    """Fuse all findings of one job.

    A completed job without a slowdown has symptom `none` and no candidate, whatever its logs look like. An error that
    nearly every rank shows makes the signal `global`: only direct evidence against one place can still outweigh it, and
    the first to fail is kept as a hint.
    """
    symptom = symptom_of(case)
    onset = onset_of(case, symptom)
    candidates = [] if symptom in QUIET else rank_candidates(case, symptom, onset)
    candidates = _weighed(case, symptom, candidates)
    signal = _signal(case, symptom, candidates)
    if signal is SpatialSignal.NOT_APPLICABLE:
        candidates = []
    if signal is SpatialSignal.GLOBAL:
        candidates = [replace(c, score=min(c.score, HINT)) for c in candidates if c.is_direct][:3]
    cause = cause_of(case, symptom, rules)
    return Diagnosis(
        case.job, symptom, cause, onset, signal, tuple(candidates), ordered_templates(case.templates), missing_of(case),
        case.baselines, notes_of(case), case.versions,
    )  # fmt: skip


def onset_of(case: Case, symptom: Symptom) -> Window | None:
    """The window that the temporal axis chose; nothing began in a job that went well."""
    if symptom in QUIET:
        return None
    chosen = [f for f in case.findings if f.kind == ONSET_KIND]
    if not chosen:
        return None
    first = min(chosen, key=lambda f: (f.at or 0.0, f.statement))
    earlier = _slow_before(case, first) if symptom is Symptom.SLOWDOWN and first.subject in DENSEST else None
    if earlier is not None:
        return Window(earlier.at, None if earlier.at is None else earlier.at + 10.0, earlier.iteration, first.phase)
    return Window(first.at, None if first.at is None else first.at + 10.0, first.iteration, first.phase)


def _slow_before(case: Case, onset: Finding) -> Finding | None:
    """The slow place that began to be slow before the densest stretch of slow steps."""
    slow = [
        f for f in case.of("slow_worker", "intermittent_pause", "slow_link")
        if f.accuses and f.score >= LOCALISED and f.iteration is not None
        and (onset.iteration is None or f.iteration < onset.iteration)
    ]  # fmt: skip
    return min(slow, key=lambda f: (f.iteration or 0, f.statement), default=None)


def _is_global(case: Case) -> bool:
    """Nearly every rank shows the same origin."""
    return any(f.is_global and not f.is_echo and f.score >= 0.5 for f in case.of("rank_exception", "rank_exit_signal"))


def _weighed(case: Case, symptom: Symptom, candidates: list[Candidate]) -> list[Candidate]:
    """Lower every score where the case is weaker than its findings: no baselines, no library, an end from outside."""
    factor = 1.0 if case.baselines or case.has_library else WITHOUT_BASELINES
    if symptom in UNPLACED:
        factor *= 0.45
    return [replace(c, score=round(c.score * factor, 4)) for c in candidates]


def _signal(case: Case, symptom: Symptom, candidates: list[Candidate]) -> SpatialSignal:
    if symptom in QUIET:
        return SpatialSignal.NONE
    if max(len(case.job.nodes), len(case.job.places), case.job.world_size or 0) == 1:
        return SpatialSignal.NOT_APPLICABLE
    if _is_global(case) and best_score(candidates) < 0.9:
        return SpatialSignal.GLOBAL
    if best_score(candidates) >= LOCALISED:
        return SpatialSignal.LOCALISED
    return SpatialSignal.NONE


def ordered_templates(templates: Sequence[Template]) -> tuple[Template, ...]:
    """Best first; equal scores by time, then by id."""
    return tuple(sorted(templates, key=lambda t: (-t.score, t.first_at or 0.0, t.template_id)))[:MAX_TEMPLATES]


def missing_of(case: Case) -> tuple[Missing, ...]:
    """Evidence that ought to be there and is not: silent ranks and nodes, sources without coverage."""
    found = [_missing(f) for f in case.findings if f.subject == "missing"]
    flat = [m for group in found for m in group]
    return tuple(sorted(set(flat), key=lambda m: (m.node or "", -1 if m.rank is None else m.rank, m.what)))


def _missing(finding: Finding) -> list[Missing]:
    node = finding.nodes[0] if len(finding.nodes) == 1 else None
    if finding.ranks:
        return [Missing(node, rank, finding.statement) for rank in finding.ranks]
    return [Missing(n, None, finding.statement) for n in finding.nodes]


def notes_of(case: Case) -> tuple[str, ...]:
    """What limits this diagnosis, in sentences."""
    notes = list(case.job.notes)
    if not case.baselines:
        notes.append("no comparable successful job: compared with the fleet's normal templates only, scores are lower")
    if not case.has_library:
        notes.append("no library of normal templates: nothing was filtered")
    notes += [f.statement for f in case.of("coverage_note")]
    return tuple(notes)
