"""Each rank beside its peers: ranks of the same role do the same work in the same step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ml.operations.ledger import Ledger

Floats = npt.NDArray[np.float64]

WARM_UP = 3
NOWHERE = "\0"
"""Begins the stand-in for the node of a rank whose node is not known."""


def beyond_peers(values: Floats, peers: list[list[int]]) -> Floats:
    """Each rank's value less the median of its peers in the same step (the lower one of two): (ranks, steps)."""
    excess = np.full_like(values, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for members in peers:
            block = values[members]
            excess[members] = block - np.nanpercentile(block, 50, axis=0, method="lower")
    return excess


def peers_of(ledger: Ledger, roles: Mapping[int, str], groups: Mapping[int, Mapping[str, Sequence[int]]]) -> list[list[int]]:
    """Positions of ranks of the same role and pipeline stage; ranks that have no peer are left out."""
    alike: dict[tuple[str, int], list[int]] = {}
    for position, rank in enumerate(ledger.ranks):
        pipeline = list(groups.get(rank, {}).get("pp", ()))
        stage = pipeline.index(rank) if rank in pipeline else 0
        alike.setdefault((roles.get(rank, ""), stage), []).append(position)
    return [members for members in alike.values() if len(members) > 1]


def step_lengths(ledger: Ledger) -> Floats:
    """Median step length over ranks, seconds, one a step; NaN where no rank has one."""
    return median_of_known(ledger.step_s)


def median_of_known(values: Floats) -> Floats:
    """The median over ranks of each step, NaN where nothing is known."""
    result = np.full(values.shape[1], np.nan)
    known = np.isfinite(values).any(axis=0)
    if known.any():
        result[known] = np.nanmedian(values[:, known], axis=0)
    return result


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
    """The operation in which a rank exceeds its peers most, its layer, and the median excess of each, seconds a step.

    The layer is the one in which most of the difference lies; the operation is the worst one of it.
    """
    members = next(m for m in peers if position in m)
    beyond: dict[str, float] = {}
    for k, name in enumerate(ledger.names):
        part = beyond_peers(ledger.work_s[k][:, first:end], [members])[position]
        known = part[np.isfinite(part)]
        beyond[name] = float(np.median(known)) if len(known) else 0.0
    by_layer: dict[str, float] = {}
    for name, layer in zip(ledger.names, ledger.layers):
        by_layer[layer] = by_layer.get(layer, 0.0) + beyond[name]
    begins = max(sorted(by_layer), key=lambda layer: by_layer[layer])
    mine = [k for k in range(len(ledger.names)) if ledger.layers[k] == begins]
    worst = max(mine, key=lambda k: (beyond[ledger.names[k]], -k))
    ranked = dict(sorted(beyond.items(), key=lambda item: (-item[1], item[0]))[:5])
    return ledger.names[worst], ledger.layers[worst], ranked


def time_of(ledger: Ledger, index: int) -> float | None:
    """When a step began: the end of the one before it, on the common clock."""
    column = ledger.ended_s[:, max(index - 1, 0)]
    known = column[np.isfinite(column)]
    return float(np.median(known)) if len(known) else None


def node_names(ledger: Ledger, nodes: Mapping[int, str]) -> list[str]:
    """The node of each position of the ledger; ranks without one stand by themselves."""
    return [nodes.get(rank) or f"{NOWHERE}{rank}" for rank in ledger.ranks]


def known_nodes(names: set[str]) -> tuple[str, ...]:
    """Real nodes among these, in order."""
    return tuple(sorted(name for name in names if not name.startswith(NOWHERE)))
