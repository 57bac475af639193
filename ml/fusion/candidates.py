"""Findings become candidates: one a node, with the ranks that the evidence names, and groups or switches of several nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ml.fusion.rules import weight_of, weights
from ml.fusion.types import Candidate, Case, Evidence, Symptom, Window
from ml.log_diffs.topology import Finding, groups_holding, shared_switch

MIN_SCORE = 0.15
FAINT = 0.2
"""Findings below this say that a place does not stand out."""
MAX_CANDIDATES = 8
MAX_EVIDENCE = 12
CONSEQUENCE_AFTER_S = 15.0
"""Evidence that begins so long after the onset's window is a consequence."""
EXPLAINED = 0.4
"""What indirect evidence may reach elsewhere when a direct witness explains the failure already."""
DIRECT = 0.75
UNPLACED = "\0rank "
"""Stands for the node of a rank whose node nobody knows."""
SLOW_ELSEWHERE = 0.4
"""What a slow rank tells of a failure that is no slowdown."""


@dataclass(frozen=True)
class Witness:
    """One finding as it bears on one node: its worth there after reliability, sharing and timing."""

    finding: Finding
    node: str
    worth: float
    family: str
    is_direct: bool


def witnesses(case: Case, symptom: Symptom, onset: Window | None) -> list[Witness]:
    """Every accusing finding, node by node.

    A finding that names several nodes is worth less for each of them; one that begins after the failure is a
    consequence; for a slowdown only findings of speed and machines count.
    """
    slow = weights().slow_families if symptom == Symptom.SLOWDOWN else None
    found = []
    for finding in case.findings:
        weight = weight_of(finding)
        is_mute = not finding.accuses or finding.score < FAINT or weight.reliability == 0
        if is_mute or (slow is not None and weight.family not in slow):
            continue
        nodes = finding.nodes or case.job.nodes_under(finding.ranks) or tuple(f"{UNPLACED}{rank}" for rank in finding.ranks)
        n_all = max(len(case.job.nodes), len(nodes), 2)
        share = 1.0 - (len(nodes) - 1) / n_all
        if weight.is_slow and slow is None:
            share *= SLOW_ELSEWHERE
        worth = min(0.99, weight.reliability * finding.score) * share * _timing(finding, onset, weight.is_direct)
        found += [Witness(finding, node, worth, weight.family, weight.is_direct) for node in nodes]
    return found


def _timing(finding: Finding, onset: Window | None, is_direct: bool) -> float:
    if onset is None or onset.ended_at is None or finding.at is None or is_direct:
        return 1.0
    return 0.25 if finding.at > onset.ended_at + CONSEQUENCE_AFTER_S else 1.0


def combined(parts: Iterable[Witness]) -> float:
    """Noisy-or over families; within a family the strongest counts."""
    best: dict[str, float] = {}
    for part in parts:
        best[part.family] = max(best.get(part.family, 0.0), part.worth)
    doubt = 1.0
    for worth in best.values():
        doubt *= 1.0 - worth
    return 1.0 - doubt


def rank_candidates(case: Case, symptom: Symptom, onset: Window | None) -> list[Candidate]:
    """Candidates, best first; empty when nothing accuses a place."""
    by_node: dict[str, list[Witness]] = defaultdict(list)
    for each in witnesses(case, symptom, onset):
        by_node[each.node].append(each)
    scores = {node: combined(parts) for node, parts in by_node.items()}
    direct = {node: max((p.worth for p in parts if p.is_direct), default=0.0) for node, parts in by_node.items()}
    if max(direct.values(), default=0.0) >= DIRECT:
        scores = {n: s if direct[n] >= 0.5 * max(direct.values()) else min(s, EXPLAINED) for n, s in scores.items()}
    order = sorted(scores, key=lambda n: (-scores[n], -direct[n], _place(case, n), n))
    kept = [n for n in order if scores[n] >= MIN_SCORE][:MAX_CANDIDATES]
    found = [_candidate(case, node, scores[node], by_node[node], scores) for node in kept]
    return _with_shared_scope(case, found)


def _place(case: Case, node: str) -> int:
    return case.job.nodes.index(node) if node in case.job.nodes else len(case.job.nodes)


def accused_ranks(case: Case, node: str, parts: Sequence[Witness]) -> tuple[int, ...]:
    """The ranks of a node that the evidence names: those near the best one, or all of the node when only the node is named."""
    own = {int(node.removeprefix(UNPLACED))} if node.startswith(UNPLACED) else set(case.job.ranks_on((node,)))
    by_rank: dict[int, list[Witness]] = defaultdict(list)
    for part in parts:
        named = set(part.finding.ranks) & own if own else set(part.finding.ranks)
        if own and named == own and len(own) > 1:
            continue
        for rank in named:
            by_rank[rank].append(part)
    whole = combined([p for p in parts if not p.finding.ranks or set(p.finding.ranks) >= own])
    votes = {rank: combined(named) for rank, named in by_rank.items()}
    best = max(votes.values(), default=0.0)
    if best < 0.3 or (whole > 0.5 and best < 0.8 * whole):
        return tuple(sorted(own)) or tuple(sorted(votes))
    return tuple(sorted((r for r in votes if votes[r] >= 0.6 * best), key=lambda r: (-votes[r], r)))


def _candidate(case: Case, node: str, score: float, parts: list[Witness], scores: dict[str, float]) -> Candidate:
    ranks = accused_ranks(case, node, parts)
    devices = tuple(sorted({d for p in parts for d in p.finding.devices}))
    ordered = sorted(parts, key=lambda p: (-p.worth, p.finding.at or 0.0, p.finding.statement))
    told: dict[str, Evidence] = {}
    for part in ordered:
        f = part.finding
        told.setdefault(f.statement, Evidence(f.source, f.axis, f.statement, f.at, f.table, f.refs[:8]))
    evidence = list(told.values())[:MAX_EVIDENCE]
    absent = _absent(case, node, parts, scores)
    if absent:
        evidence.append(Evidence(ordered[0].finding.source, "spatial", absent, None, "diagnoses"))
    nodes = () if node.startswith(UNPLACED) else (node,)
    is_direct = any(p.is_direct and p.worth >= 0.25 for p in parts)
    return Candidate(
        round(score, 4), nodes, ranks, devices, tuple(groups_holding(case.job.places, ranks)), tuple(evidence), is_direct
    )


def _absent(case: Case, node: str, parts: list[Witness], scores: dict[str, float]) -> str:
    """What could have contradicted the candidate and was not found."""
    others = {n.lstrip("\0") for n, s in scores.items() if n != node and s >= 0.5}
    present = sorted(s for s in ("collectives", "logs", "metrics", "operations", "stacks") if case.job.coverage.get(s, 0.0) > 0)
    silent = [
        s for s in present if not any(f.source == s and f.accuses and node not in f.nodes and f.score >= 0.5 for f in case.findings)
    ]
    speaking = {p.finding.source for p in parts if p.worth >= 0.3}
    if others:
        return f"against it: {', '.join(sorted(others))} is accused as well"
    if not silent:
        return ""
    quiet = [s for s in silent if s not in speaking]
    words = f"nothing in the {' and '.join(silent)} points to another node"
    return words + (f"; the {' and '.join(quiet)} do not speak for this one either" if quiet else "")


def _with_shared_scope(case: Case, found: list[Candidate]) -> list[Candidate]:
    """Adds the switch or parallel group that consists of exactly the strongest candidates' nodes, behind the best of them."""
    strong = [c for c in found if c.score >= 0.5 and c.score >= 0.8 * found[0].score] if found else []
    nodes = tuple(n for c in strong for n in c.nodes)
    if len(nodes) < 2:
        return found
    ranks = tuple(sorted({r for c in strong for r in c.ranks}))
    switch = shared_switch(case.job.places, nodes)
    groups = tuple(groups_holding(case.job.places, ranks))
    if switch is None and not groups:
        return found
    what = f"switch {switch}" if switch else f"{groups[0][0]} group"
    said = Evidence("logs", "spatial", f"{what} holds exactly the accused nodes {', '.join(nodes)}", None, "ranks")
    shared = Candidate(round(strong[-1].score * 0.95, 4), nodes, ranks, (), groups, (said, *strong[0].evidence[:2]))
    return sorted([*found, shared], key=lambda c: (-c.score, len(c.nodes), c.nodes))[:MAX_CANDIDATES]


def best_score(candidates: Sequence[Candidate]) -> float:
    """Score of the first candidate, 0 without one."""
    return candidates[0].score if candidates else 0.0
