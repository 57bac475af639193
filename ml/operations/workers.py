"""Ranks that work longer than their peers: the ones that the others wait for.

Only work counts: waiting inside collectives was taken out before (see `ledger`), so that a rank that arrives late
because an earlier collective left it late is not accused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ml.operations.changes import segments
from ml.operations.finding import Finding, milliseconds, numbered, strength, verb
from ml.operations.layers import beyond_group, in_words
from ml.operations.ledger import BETWEEN, Ledger
from ml.operations.pauses import pauses
from ml.operations.peers import (
    WARM_UP,
    beyond_peers,
    known_nodes,
    last_arrival,
    node_names,
    peers_of,
    slowest_operations,
    step_lengths,
    time_of,
)

Floats = npt.NDArray[np.float64]

LEAST_STEPS = 8
LEAST_PERIOD = 10
ACCUSES_FROM = 0.5
PERSISTENT_SHARE = 0.25
"""Probing's rule: a rank that is the slowest in a quarter of the steps is a persistent straggler."""
HALF = 0.1
"""Share of the step that scores one half when a rank is compared with its peers alone."""
ONSET_HALF = 0.05
"""The same when the rank's own past says, too, that it became slower."""
RANK_CHANGE, OPERATION_CHANGE = 4.2, 4.5
"""Clearness of a change (see `changes`) in a rank's excess: healthy jobs reach 3.4, and 3.7 in the best of its operations."""
CLEAR, CLEAR_ONSET, CLEAR_PEERS = 8.0, 0.5, 0.7
"""From an excess of eight standard errors on less of it is needed, down to this share with or without an onset."""
LEAST_REPORTED = 0.02
OPERATION_SHARE = 0.05
QUIET = 0.45
"""Highest score of what lacks a condition for an accusation."""


@dataclass(frozen=True)
class Excess:
    """One rank's work beyond its peers in one period: seconds a step (a lower bound) and share of the step.

    `clearness` is the excess in units of its standard error; `operation` is None for all its work together.
    """

    position: int
    first: int
    end: int
    seconds: float
    share: float
    share_positive: float
    has_onset: bool
    clearness: float = 0.0
    operation: str | None = None

    def score(self, half: float) -> float:
        """Strength of the effect, less where it shows in fewer than three of four steps.

        Quiet machines show small effects as clearly as noisy ones show large ones: what is far beyond its error needs
        less of an effect.
        """
        at_half = half * ONSET_HALF / HALF if self.has_onset else half
        least = CLEAR_ONSET if self.has_onset else CLEAR_PEERS
        at_half *= min(1.0, max(least, CLEAR / self.clearness)) if self.clearness > 0 else 1.0
        return strength(self.share, at_half) * min(1.0, max(0.0, (self.share_positive - 0.5) / 0.25))


def slow_workers(
    ledger: Ledger,
    nodes: Mapping[int, str],
    roles: Mapping[int, str],
    groups: Mapping[int, Mapping[str, Sequence[int]]] | None = None,
) -> list[Finding]:
    """A finding for each node (or parallel group) whose ranks work longer than their peers, the strongest first."""
    peers = peers_of(ledger, roles, groups or {})
    if not peers or len(ledger.steps) < LEAST_STEPS:
        return []
    step = step_lengths(ledger)
    excess = beyond_peers(ledger.busy_s, peers)
    steady = {p: _steady(p, excess[p], step, RANK_CHANGE) for members in peers for p in members}
    names = node_names(ledger, nodes)
    half = _half(steady, names)
    found = _of_groups(ledger, steady, names, groups or {}, peers, half) or _of_nodes(ledger, steady, names, excess, peers, half)
    explained = {rank for finding in found if finding.score >= ACCUSES_FROM for rank in finding.ranks}
    found += [f for f in _of_operations(ledger, names, step, peers, half) if not explained & set(f.ranks)]
    found += [f for f in pauses(ledger, nodes, excess, step, peers) if not explained & set(f.ranks)]
    return sorted(_not_everywhere(found, set(names)), key=lambda f: (-f.score, f.ranks, f.subject))


def _steady(position: int, excess: Floats, step: Floats, least_strength: float, operation: str | None = None) -> Excess:
    """The period in which this rank's excess is the largest share of the step."""
    usable = np.where(np.arange(len(excess)) < WARM_UP, np.nan, excess)
    best = Excess(position, 0, len(excess), 0.0, 0.0, 0.0, False, 0.0, operation)
    for period in segments(usable, LEAST_PERIOD, least_strength=least_strength):
        part, length = usable[period.first : period.end], step[period.first : period.end]
        known = np.isfinite(part)
        if known.sum() < min(LEAST_STEPS, len(excess) - WARM_UP):
            continue
        seconds, clearness = _surely(part[known])
        typical = float(np.median(length[known]))
        share = seconds / typical if typical > 0 else 0.0
        if share > best.share:
            positive = float((part[known] > 0).mean())
            has_onset = period.first > 0
            best = Excess(position, period.first, period.end, seconds, share, positive, has_onset, clearness, operation)
    return best


def _surely(excess: Floats) -> tuple[float, float]:
    """The median excess less twice its standard error (few or noisy steps show little), and how many errors it is."""
    middle = float(np.median(excess))
    spread = 1.4826 * float(np.median(np.abs(excess - middle)))
    error = 1.253 * spread / math.sqrt(len(excess))
    return max(0.0, middle - 2 * error), middle / error if error > 0 else CLEAR


def _half(steady: Mapping[int, Excess], names: Sequence[str]) -> float:
    """Share of the step that scores one half: a tenth, less in jobs with enough nodes to know their spread."""
    by_node: dict[str, float] = {}
    for position, each in steady.items():
        by_node[names[position]] = max(by_node.get(names[position], 0.0), each.share)
    shares = np.array(list(by_node.values()))
    if len(shares) < 8:
        return HALF
    spread = 1.4826 * float(np.median(np.abs(shares - np.median(shares))))
    return float(np.clip(np.median(shares) + 5 * spread, 0.4 * HALF, HALF))


def _of_nodes(
    ledger: Ledger, steady: Mapping[int, Excess], names: Sequence[str], excess: Floats, peers: list[list[int]], half: float
) -> list[Finding]:
    by_node: dict[str, list[int]] = {}
    for position in sorted(steady):
        by_node.setdefault(names[position], []).append(position)
    found = []
    for node, positions in by_node.items():
        worst = max((steady[p] for p in positions), key=lambda e: (e.score(half), e.share, -e.position))
        if worst.share < LEAST_REPORTED:
            continue
        alike = tuple(p for p in positions if _level(excess[p], worst) >= 0.5 * worst.seconds)
        found.append(_finding(ledger, worst, alike, known_nodes({node}), peers, half))
    return found


def _of_groups(
    ledger: Ledger, steady: Mapping[int, Excess], names: Sequence[str],
    groups: Mapping[int, Mapping[str, Sequence[int]]], peers: list[list[int]], half: float,
) -> list[Finding]:  # fmt: skip
    """One finding where the slow ranks are exactly one parallel group that is spread over nodes with other, normal ranks."""
    slow = {p for p, each in steady.items() if each.score(half) >= ACCUSES_FROM}
    ranks = {ledger.ranks[p] for p in slow}
    touched = {names[p] for p in slow}
    whole = {n for n in touched if all(p in slow for p in steady if names[p] == n)}
    if len(touched) < 2 or whole:
        return []
    for kind in sorted({kind for rank in ranks for kind in groups.get(rank, {})}):
        if any(set(groups.get(rank, {}).get(kind, ())) == ranks for rank in ranks):
            worst = max((steady[p] for p in slow), key=lambda e: (e.score(half), -e.position))
            return [replace(_finding(ledger, worst, tuple(sorted(slow)), (), peers, half), group_kind=kind)]
    return []


def _of_operations(ledger: Ledger, names: Sequence[str], step: Floats, peers: list[list[int]], half: float) -> list[Finding]:
    """Ranks in which one operation became slower, too little for all their work together to show it."""
    spent = np.nansum(ledger.work_s[:, :, WARM_UP:], axis=(1, 2))
    found = []
    for k in np.flatnonzero(spent >= OPERATION_SHARE * max(float(spent.sum()), 1e-12)):
        excess = beyond_peers(ledger.work_s[k], peers)
        for position in (p for members in peers for p in members):
            each = _steady(position, excess[position], step, OPERATION_CHANGE, ledger.names[k])
            if each.has_onset and each.share >= LEAST_REPORTED:
                found.append(_finding(ledger, each, (position,), known_nodes({names[position]}), peers, half))
    return found


def _not_everywhere(found: list[Finding], names: set[str]) -> list[Finding]:
    """What more than half of the nodes show is no difference between nodes: it accuses nobody."""
    accused = {node for f in found if f.score >= ACCUSES_FROM for node in f.nodes}
    if len(accused) < 2 or 2 * len(accused) <= len(names):
        return found
    return [replace(f, score=min(f.score, QUIET), is_global=True) if f.nodes else f for f in found]


def _level(excess: Floats, period: Excess) -> float:
    part = excess[period.first : period.end]
    known = part[np.isfinite(part)]
    return float(np.median(known)) if len(known) else -math.inf


def _finding(
    ledger: Ledger, period: Excess, positions: tuple[int, ...], nodes: tuple[str, ...], peers: list[list[int]], half: float
) -> Finding:
    ranks = tuple(ledger.ranks[p] for p in positions)
    collective, share_last, others_wait = last_arrival(ledger, positions, period.first, period.end)
    operation, layer, beyond = slowest_operations(ledger, period.position, period.first, period.end, peers)
    if period.operation is not None:
        operation, layer = period.operation, ledger.layers[ledger.names.index(period.operation)]
    score = period.score(half)
    if share_last is not None and share_last < PERSISTENT_SHARE:
        score = min(score, QUIET)
    first = int(ledger.steps[period.first])
    place = f" on {', '.join(nodes)}" if nodes else ""
    where = "between operations" if operation == BETWEEN else f"in {operation}"
    since = f" from step {first} on" if period.has_onset else ""
    waiting = (
        f"; last to arrive at {collective} in {100 * share_last:.0f} % of the steps, the others wait {milliseconds(others_wait)}"
        if share_last is not None and collective
        else ""
    )
    mostly = "" if period.operation is not None else "mostly "
    members = next(m for m in peers if period.position in m)
    layers = in_words(beyond_group(ledger, period.position, members, period.first, period.end))
    statement = (
        f"{numbered(ranks)}{place} {verb(ranks, 'work')} {milliseconds(period.seconds)} a step longer than the peers{since} "
        f"({100 * period.share:.0f} % of the step), {mostly}{where} ({layer} layer){waiting}; "
        f"layer by layer against its group: {layers}"
    )
    return Finding(
        "slow_worker" if period.operation is None else "slow_operation", "spatial", score, statement, operation,
        nodes=nodes, ranks=ranks, iteration=first if period.has_onset else None,
        at_s=time_of(ledger, period.first) if period.has_onset else None, layer=layer, operation=operation,
        excess_s=period.seconds, share_of_step=period.share, share_last=share_last, beyond=beyond,
    )  # fmt: skip
