"""Ranks that pause now and then: few steps with a large excess, far more than any other node has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ml.operations.finding import Finding, milliseconds, strength
from ml.operations.ledger import BETWEEN, Ledger
from ml.operations.peers import WARM_UP, known_nodes, node_names, time_of

Floats = npt.NDArray[np.float64]

SPIKE = 0.5
"""A pause is an excess over the peers of at least this share of the typical step."""
LEAST_SPIKES = 4
SPIKE_HALF = 0.05
SPIKE_DOMINANCE = 3.0
LEAST_SCORE = 0.2


def pauses(ledger: Ledger, nodes: Mapping[int, str], excess: Floats, step: Floats, peers: list[list[int]]) -> list[Finding]:
    """A finding for each rank that loses most to pauses; `excess` is its work beyond its peers, (ranks, steps)."""
    typical = float(np.nanmedian(step[WARM_UP:])) if np.isfinite(step[WARM_UP:]).any() else 0.0
    total = float(np.nansum(step[WARM_UP:]))
    if typical <= 0 or total <= 0:
        return []
    usable = np.nan_to_num(excess, nan=0.0)
    usable[:, :WARM_UP] = 0.0
    is_spike = usable > SPIKE * typical
    lost = np.where(is_spike, usable, 0.0).sum(axis=1) / total
    found = []
    node_of = node_names(ledger, nodes)
    for position in sorted(p for members in peers for p in members):
        n_spikes = int(is_spike[position].sum())
        n_known = int(np.isfinite(excess[position, WARM_UP:]).sum())
        elsewhere = max([lost[p] for p in range(len(lost)) if node_of[p] != node_of[position]], default=0.0)
        if n_spikes < LEAST_SPIKES or n_spikes > 0.5 * n_known or lost[position] < SPIKE_DOMINANCE * elsewhere:
            continue
        found.append(_pause_finding(ledger, position, node_of[position], is_spike[position], usable, float(lost[position])))
    return [f for f in found if f.score >= LEAST_SCORE]


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
    place = "".join(f" on {known}" for known in known_nodes({node}))
    where = "between operations" if name == BETWEEN else f"in {name}"
    statement = (
        f"rank {rank}{place} pauses in {len(at)} of {len(ledger.steps)} steps, by {milliseconds(pause)} each, mostly {where}; "
        f"that is {100 * lost:.1f} % of the job's time"
    )
    score = strength(lost, SPIKE_HALF)
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
