"""Ranks that pause now and then: few steps with a large excess, far more than any other node has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ml.operations.finding import Finding, milliseconds, strength
from ml.operations.ledger import BETWEEN, Ledger
from ml.operations.peers import WARM_UP, known_nodes, node_names, time_of

Floats = npt.NDArray[np.float64]

SPIKE, LEAST_SPIKE, SPIKE_DEVIATIONS = 0.5, 0.1, 8.0
"""A pause is an excess over the peers of half a typical step, or of eight deviations where that is less (but a tenth)."""
LEAST_SPIKES = 5
SPIKE_HALF = 0.05
SPIKE_DOMINANCE = 3.0
LEAST_ELSEWHERE, CLEAR_FROM, CLEAREST = 0.0005, 6.0, 0.3
"""Where ranks of other nodes lose a sixth or less as much to pauses, a smaller loss scores one half, down to three tenths of it."""
LEAST_SCORE = 0.2


def pauses(ledger: Ledger, nodes: Mapping[int, str], excess: Floats, step: Floats, peers: list[list[int]]) -> list[Finding]:
    """A finding for each rank that loses most to pauses; `excess` is its work beyond its peers, (ranks, steps)."""
    typical = float(np.nanmedian(step[WARM_UP:])) if np.isfinite(step[WARM_UP:]).any() else 0.0
    total = float(np.nansum(step[WARM_UP:]))
    if typical <= 0 or total <= 0:
        return []
    usable = np.nan_to_num(excess, nan=0.0)
    usable[:, :WARM_UP] = 0.0
    is_spike = usable > _least_pause(excess, typical)
    lost = _share_lost(np.where(is_spike, usable, 0.0), np.nan_to_num(step), total)
    found = []
    node_of = node_names(ledger, nodes)
    for position in sorted(p for members in peers for p in members):
        n_spikes = int(is_spike[position].sum())
        n_known = int(np.isfinite(excess[position, WARM_UP:]).sum())
        elsewhere = max([lost[p] for p in range(len(lost)) if node_of[p] != node_of[position]], default=0.0)
        if n_spikes < LEAST_SPIKES or n_spikes > 0.5 * n_known or lost[position] < SPIKE_DOMINANCE * elsewhere:
            continue
        clearness = lost[position] / max(elsewhere, LEAST_ELSEWHERE)
        half = SPIKE_HALF * float(np.clip(CLEAR_FROM / clearness, CLEAREST, 1.0))
        finding = _pause_finding(ledger, position, node_of[position], is_spike[position], usable, float(lost[position]), half)
        found.append(finding)
    return [f for f in found if f.score >= LEAST_SCORE]


def _least_pause(excess: Floats, typical: float) -> float:
    known = excess[:, WARM_UP:]
    known = known[np.isfinite(known)]
    deviation = 1.4826 * float(np.median(np.abs(known - np.median(known)))) if len(known) else 0.0
    return float(np.clip(SPIKE_DEVIATIONS * deviation, LEAST_SPIKE * typical, SPIKE * typical))


def _share_lost(pauses_s: Floats, step: Floats, total: float) -> Floats:
    """Share of the time since its first pause, or of half the run if that is longer, that each rank spends in pauses."""
    lost = np.zeros(len(pauses_s))
    for position, own in enumerate(pauses_s):
        at = np.flatnonzero(own)
        if len(at):
            lost[position] = own.sum() / max(float(step[at[0] :].sum()), total / 2)
    return lost


def _pause_finding(
    ledger: Ledger, position: int, node: str, is_spike: npt.NDArray[np.bool_], excess: Floats, lost: float, half: float
) -> Finding:
    at = _regular(np.flatnonzero(is_spike))
    pause = float(np.median(excess[position, at]))
    own = ledger.work_s[:, position, :]
    usual = np.nanmedian(own[:, ~is_spike], axis=1)
    beyond = np.nanmedian(own[:, at] - usual[:, None], axis=1)
    worst = int(np.argmax(beyond))
    rank, first = ledger.ranks[position], int(ledger.steps[at[0]])
    name = ledger.names[worst]
    place = "".join(f" on {known}" for known in known_nodes({node}))
    where = "between operations" if name == BETWEEN else f"in {name}"
    statement = (
        f"rank {rank}{place} pauses in {len(at)} of {len(ledger.steps)} steps, by {milliseconds(pause)} each, mostly {where}; "
        f"that is {100 * lost:.1f} % of the time"
    )
    score = strength(lost, half)
    return Finding(
        "intermittent_pause", "spatial", score, statement, name, nodes=known_nodes({node}),
        ranks=(rank,), iteration=first, at_s=time_of(ledger, int(at[0])), layer=ledger.layers[worst], operation=name,
        excess_s=pause, share_of_step=lost, beyond={name: float(beyond[worst])},
    )  # fmt: skip


def _regular(at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Pauses without leading ones that stand far from the rest: any rank has one of these now and then."""
    while len(at) > LEAST_SPIKES and at[1] - at[0] > 3 * np.median(np.diff(at)):
        at = at[1:]
    return at
