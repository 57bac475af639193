"""Ranks that work longer than their peers, steadily or now and then: the ones that the others wait for.

Only work counts: waiting inside collectives was taken out before (see `ledger`), so that a rank that arrives late
because an earlier collective left it late is not accused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ml.operations.changes import segments
from ml.operations.finding import Finding, milliseconds, numbered, strength
from ml.operations.ledger import BETWEEN, Ledger

Floats = npt.NDArray[np.float64]

WARM_UP = 3
LEAST_STEPS = 8
PERSISTENT_SHARE = 0.25
"""Probing's rule: a rank that is the slowest in a quarter of the steps is a persistent straggler."""
SPIKE = 0.5
LEAST_SPIKES = 4
SPIKE_HALF = 0.05
SPIKE_DOMINANCE = 3.0
_QUIET = 0.45
"""Highest score of what lacks a condition for an accusation."""


@dataclass(frozen=True)
class Excess:
    """One rank's work beyond its peers in one period: seconds a step (a lower bound) and share of the step."""

    position: int
    first: int
    end: int
    seconds: float
    share: float
    share_positive: float
    has_onset: bool


def beyond_peers(values: Floats, peers: list[list[int]]) -> Floats:
    """Each rank's value less the median of its peers in the same step (the lower one of two): (ranks, steps)."""
    excess = np.full_like(values, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for members in peers:
            block = values[members]
            excess[members] = block - np.nanpercentile(block, 50, axis=0, method="lower")
    return excess


def peers_of(ledger: Ledger, roles: Mapping[int, str]) -> list[list[int]]:
    """Positions of ranks of the same role; ranks that have no peer are left out."""
    by_role: dict[str, list[int]] = {}
    for position, rank in enumerate(ledger.ranks):
        by_role.setdefault(roles.get(rank, ""), []).append(position)
    return [members for members in by_role.values() if len(members) > 1]


def slow_workers(ledger: Ledger, nodes: Mapping[int, str], roles: Mapping[int, str]) -> list[Finding]:
    """A finding for each node whose ranks work longer than their peers, the strongest first."""
    peers = peers_of(ledger, roles)
    if not peers or len(ledger.steps) < LEAST_STEPS:
        return []
    excess = beyond_peers(ledger.busy_s, peers)
    step = _step_lengths(ledger)
    steady = {p: _steady(p, excess[p], step) for members in peers for p in members}
    half = _half(steady, nodes, ledger)
    found = []
    for node, positions in _by_node(ledger, nodes, steady).items():
        worst = max(positions, key=lambda p: (steady[p].share, -p))
        chosen = steady[worst]
        if chosen.share < 0.02:
            continue
        together = tuple(p for p in positions if _same_period(excess[p], chosen) >= 0.5 * chosen.seconds)
        found.append(_steady_finding(ledger, node, together, chosen, peers, half))
    explained = {rank for finding in found if finding.score >= 0.5 for rank in finding.ranks}
    found += [f for f in _pauses(ledger, nodes, excess, step, peers) if not explained & set(f.ranks)]
    return sorted(found, key=lambda f: (-f.score, f.ranks))


def _step_lengths(ledger: Ledger) -> Floats:
    """Median step length over ranks, one a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(ledger.step_s, axis=0))


def _steady(position: int, excess: Floats, step: Floats) -> Excess:
    """The period in which this rank's excess is the largest share of the step."""
    best: Excess | None = None
    usable = excess.copy()
    usable[:WARM_UP] = np.nan
    periods = segments(usable)
    for period in periods:
        part, length = usable[period.first : period.end], step[period.first : period.end]
        known = np.isfinite(part)
        if known.sum() < min(LEAST_STEPS, len(excess) - WARM_UP):
            continue
        seconds, typical = _surely(part[known]), float(np.median(length[known]))
        share = seconds / typical if typical > 0 else 0.0
        if best is None or share > best.share:
            has_onset = period.first > 0
            best = Excess(position, period.first, period.end, seconds, share, float((part[known] > 0).mean()), has_onset)
    return best or Excess(position, 0, len(excess), 0.0, 0.0, 0.0, False)


def _surely(excess: Floats) -> float:
    """The median excess less twice its standard error: few or noisy steps show little."""
    middle = float(np.median(excess))
    spread = 1.4826 * float(np.median(np.abs(excess - middle)))
    error = 1.253 * spread / math.sqrt(len(excess))
    return max(0.0, middle - 2 * error)


def _half(steady: Mapping[int, Excess], nodes: Mapping[int, str], ledger: Ledger) -> float:
    """Share of the step that scores one half: a tenth, less in jobs with enough nodes to know their spread."""
    by_node: dict[str, float] = {}
    for position, each in steady.items():
        node = nodes.get(ledger.ranks[position], str(ledger.ranks[position]))
        by_node[node] = max(by_node.get(node, -math.inf), each.share)
    shares = np.array(list(by_node.values()))
    if len(shares) < 8:
        return 0.1
    spread = 1.4826 * float(np.median(np.abs(shares - np.median(shares))))
    return float(np.clip(np.median(shares) + 5 * spread, 0.04, 0.1))


def _by_node(ledger: Ledger, nodes: Mapping[int, str], steady: Mapping[int, Excess]) -> dict[str, list[int]]:
    by_node: dict[str, list[int]] = {}
    for position in sorted(steady):
        by_node.setdefault(nodes.get(ledger.ranks[position], ""), []).append(position)
    if "" not in by_node:
        return by_node
    unplaced = by_node.pop("")
    return by_node | {f"\0{position}": [position] for position in unplaced}


def _same_period(excess: Floats, period: Excess) -> float:
    part = excess[period.first : period.end]
    known = part[np.isfinite(part)]
    return float(np.median(known)) if len(known) else -math.inf


def _steady_finding(
    ledger: Ledger, node: str, positions: tuple[int, ...], period: Excess, peers: list[list[int]], half: float
) -> Finding:
    ranks = tuple(ledger.ranks[p] for p in positions)
    collective, share_last, others_wait = last_arrival(ledger, positions, period.first, period.end)
    operation, layer, beyond = slowest_operations(ledger, period.position, period.first, period.end, peers)
    score = strength(period.share, half) * min(1.0, max(0.0, (period.share_positive - 0.5) / 0.25))
    if share_last is not None and share_last < PERSISTENT_SHARE:
        score = min(score, _QUIET)
    first = int(ledger.steps[period.first])
    place = "" if node.startswith("\0") else f" on {node}"
    what = {BETWEEN: "between operations"}.get(operation, f"in {operation}")
    since = f" from step {first} on" if period.has_onset else ""
    waiting = (
        f"; last to arrive at {collective} in {100 * share_last:.0f} % of the steps, the others wait "
        f"{milliseconds(others_wait)} for it"
        if share_last is not None and collective
        else ""
    )
    statement = (
        f"{numbered(ranks)}{place} work {milliseconds(period.seconds)} a step longer than the peers{since} "
        f"({100 * period.share:.0f} % of the step), mostly {what}{waiting}"
    )
    return Finding(
        "slow_worker", "spatial", score, statement, operation,
        nodes=() if node.startswith("\0") else (node,), ranks=ranks, iteration=first if period.has_onset else None,
        at_s=_time_of(ledger, period.first) if period.has_onset else None, layer=layer, operation=operation,
        excess_s=period.seconds, share_of_step=period.share, share_last=share_last, beyond=beyond,
    )  # fmt: skip


def last_arrival(ledger: Ledger, positions: tuple[int, ...], first: int, end: int) -> tuple[str | None, float | None, float]:
    """Where the others lose most to these ranks: collective, share of its steps in which one of them came last, seconds.

    Collectives inside these ranks alone do not count.
    """
    best: tuple[str | None, float | None, float] = (None, None, -1.0)
    mine = set(positions)
    for collective in ledger.collectives:
        came = collective.arrived_s[:, first:end]
        last, total, waits = 0, 0, []
        for members in collective.members:
            if not mine & set(members) or len(set(members) - mine) == 0:
                continue
            at = list(members)
            complete = np.isfinite(came[at]).all(axis=0)
            latest = np.argmax(came[at][:, complete], axis=0)
            last += int(np.isin(np.array(at)[latest], positions).sum())
            total += int(complete.sum())
            others = [m for m in members if m not in mine]
            waits.append(collective.waited_s[others, first:end][:, complete])
        if total:
            wait = float(np.median(np.concatenate([w.ravel() for w in waits])))
            if wait > best[2]:
                best = (collective.name, last / total, wait)
    return best[0], best[1], max(best[2], 0.0)


def slowest_operations(
    ledger: Ledger, position: int, first: int, end: int, peers: list[list[int]]
) -> tuple[str, str, dict[str, float]]:
    """The operation in which a rank exceeds its peers most, its layer, and the median excess of each, seconds a step."""
    members = next(m for m in peers if position in m)
    beyond: dict[str, float] = {}
    for k, name in enumerate(ledger.names):
        part = beyond_peers(ledger.work_s[k][:, first:end], [members])[position]
        known = part[np.isfinite(part)]
        beyond[name] = float(np.median(known)) if len(known) else 0.0
    worst = max(range(len(ledger.names)), key=lambda k: (beyond[ledger.names[k]], -k))
    ranked = dict(sorted(beyond.items(), key=lambda item: (-item[1], item[0]))[:5])
    return ledger.names[worst], ledger.layers[worst], ranked


def _pauses(ledger: Ledger, nodes: Mapping[int, str], excess: Floats, step: Floats, peers: list[list[int]]) -> list[Finding]:
    """Ranks that pause now and then: few steps with a large excess, far more than any other node has."""
    typical = float(np.nanmedian(step[WARM_UP:])) if np.isfinite(step[WARM_UP:]).any() else 0.0
    total = float(np.nansum(step[WARM_UP:]))
    if typical <= 0 or total <= 0:
        return []
    usable = np.nan_to_num(excess, nan=0.0)
    usable[:, :WARM_UP] = 0.0
    is_spike = usable > SPIKE * typical
    lost = np.where(is_spike, usable, 0.0).sum(axis=1) / total
    found = []
    node_of = [nodes.get(rank, f"\0{position}") for position, rank in enumerate(ledger.ranks)]
    for position in sorted(p for members in peers for p in members):
        n_spikes = int(is_spike[position].sum())
        n_known = int(np.isfinite(excess[position, WARM_UP:]).sum())
        elsewhere = max([lost[p] for p in range(len(lost)) if node_of[p] != node_of[position]], default=0.0)
        if n_spikes < LEAST_SPIKES or n_spikes > 0.5 * n_known or lost[position] < SPIKE_DOMINANCE * elsewhere:
            continue
        found.append(_pause_finding(ledger, position, node_of[position], is_spike[position], usable, float(lost[position])))
    return [f for f in found if f.score >= 0.2]


def _pause_finding(
    ledger: Ledger, position: int, node: str, is_spike: npt.NDArray[np.bool_], excess: Floats, lost: float
) -> Finding:
    at = _regular(np.flatnonzero(is_spike))
    pause = float(np.median(excess[position, at]))
    own = ledger.work_s[:, position, :]
    usual = np.nanmedian(own[:, ~is_spike], axis=1)
    beyond = np.nanmedian(own[:, at] - usual[:, None], axis=1)
    worst = int(np.argmax(beyond))
    rank, first = ledger.ranks[position], int(ledger.steps[at[0]])
    name = ledger.names[worst]
    place = "" if node.startswith("\0") else f" on {node}"
    where = "between operations" if name == BETWEEN else f"in {name}"
    statement = (
        f"rank {rank}{place} pauses in {len(at)} of {len(ledger.steps)} steps, by {milliseconds(pause)} each, mostly {where}; "
        f"that is {100 * lost:.1f} % of the job's time"
    )
    score = strength(lost, SPIKE_HALF)
    return Finding(
        "intermittent_pause", "spatial", score, statement, name, nodes=() if node.startswith("\0") else (node,),
        ranks=(rank,), iteration=first, at_s=_time_of(ledger, int(at[0])), layer=ledger.layers[worst], operation=name,
        excess_s=pause, share_of_step=lost, beyond={name: float(beyond[worst])},
    )  # fmt: skip


def _regular(at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Pauses without leading ones that stand far from the rest: any rank has one of these now and then."""
    while len(at) > LEAST_SPIKES and at[1] - at[0] > 3 * np.median(np.diff(at)):
        at = at[1:]
    return at


def _time_of(ledger: Ledger, index: int) -> float | None:
    """When a step began: the end of the one before it, on the common clock."""
    column = ledger.ended_s[:, max(index - 1, 0)]
    known = column[np.isfinite(column)]
    return float(np.median(known)) if len(known) else None
