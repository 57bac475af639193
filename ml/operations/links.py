"""Slow transfer: collectives that take longer although all ranks were there, and between which nodes.

All members of a collective wait for a slow link, so nobody arrives late and nobody works longer. What is left is the
order in which they finish. In a ring each block goes around and crosses the slow link last for the rank behind it:
that rank, the receiver, {verb(receivers, 'end')} last in nearly every step, and the others end earlier with their distance from it.
A sender is limited more often than a receiver (traffic is shaped, and queues build up, where it leaves), so the
sending node is named first, and the receiving node below the level of an accusation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ml.operations.changes import change_point
from ml.operations.finding import Finding, milliseconds, numbered, strength, verb
from ml.operations.ledger import Collective, Ledger
from ml.operations.peers import WARM_UP, step_lengths

Floats = npt.NDArray[np.float64]

LEAST_RISE = 1.3
LEAST_SHARE = 0.05
PEAK_SHARE = 0.5
PEAK_HEIGHT = 0.08
SENDER, RECEIVER = 0.75, 0.45
"""How much of the effect is held against either end of a slow link."""
RECEIVES_FROM = {"gloo": 1, "nccl": -1}
"""Ring neighbour from which a rank receives: gloo hands blocks down to the next lower rank, NCCL up to the next one."""


@dataclass(frozen=True)
class _Rise:
    """Transfer of one kind of collective that takes longer from step index `first` on (0: throughout)."""

    name: str
    first: int
    before_s: float
    after_s: float
    share: float
    transfer_s: Floats
    members: tuple[tuple[int, ...], ...]
    group_kind: str


@dataclass(frozen=True)
class _Link:
    """Ranks at the two ends of a slow link, and the share of steps in which the receiver ended last."""

    sender: int
    receiver: int
    share_last: float


def slow_transfers(
    ledger: Ledger, nodes: Mapping[int, str], backend: str = "gloo", expected_s: Mapping[str, float] | None = None
) -> list[Finding]:
    """Findings about collectives whose transfer takes longer than before, or than `expected_s` (baselines, by name)."""
    found: list[Finding] = []
    step = step_lengths(ledger)
    for name in sorted({c.name for c in ledger.collectives}):
        rise = _rise([c for c in ledger.collectives if c.name == name], step, (expected_s or {}).get(name))
        if rise is not None:
            found += _findings(ledger, nodes, rise, RECEIVES_FROM.get(backend, 1))
    return sorted(found, key=lambda f: (-f.score, f.nodes, f.operation or ""))


def _rise(collectives: Sequence[Collective], step: Floats, expected: float | None) -> _Rise | None:
    transfer = np.sum([c.transfer_s for c in collectives], axis=0)
    transfer[:, :WARM_UP] = np.nan
    if not np.isfinite(transfer).any():
        return None
    known = np.isfinite(transfer).all(axis=0)
    common = np.full(transfer.shape[1], np.nan)
    common[known] = np.median(transfer[:, known], axis=0)
    change = change_point(common)
    first, before, after = 0, expected, float(np.nanmedian(common)) if known.any() else 0.0
    if change is not None and change.after > change.before:
        first, before, after = change.index, change.before, change.after
    if before is None or before <= 0 or after < LEAST_RISE * before:
        return None
    length = float(np.nanmedian(step[first:]))
    share = (after - before) / length if length > 0 else 0.0
    if share < LEAST_SHARE:
        return None
    return _Rise(collectives[0].name, first, before, after, share, transfer, collectives[0].members, collectives[0].group_kind)


def _findings(ledger: Ledger, nodes: Mapping[int, str], rise: _Rise, upstream: int) -> list[Finding]:
    links = [link for members in rise.members if (link := _link(ledger, rise, members, upstream)) is not None]
    crossing = [link for link in links if nodes.get(link.sender) and nodes.get(link.sender) != nodes.get(link.receiver)]
    if not crossing:
        return [_everywhere(ledger, rise)]
    return [
        _one_side(ledger, nodes, rise, crossing, node, is_sender)
        for is_sender in (True, False)
        for node in sorted({nodes[link.sender if is_sender else link.receiver] for link in crossing})
    ]


def _slower(ledger: Ledger, rise: _Rise) -> str:
    since = f" from step {ledger.steps[rise.first]} on" if rise.first else ""
    return (
        f"the transfer of {rise.name} takes {milliseconds(rise.after_s)} instead of {milliseconds(rise.before_s)} "
        f"({100 * rise.share:.0f} % of the step){since}"
    )


def _base(ledger: Ledger, rise: _Rise, kind: str, axis: str, score: float, statement: str) -> Finding:
    at = ledger.ended_s[:, max(rise.first - 1, 0)]
    return Finding(
        kind, axis, score, statement, rise.name, layer="collective", operation=rise.name,
        iteration=int(ledger.steps[rise.first]) if rise.first else None,
        at_s=float(np.nanmedian(at)) if rise.first and np.isfinite(at).any() else None,
        excess_s=rise.after_s - rise.before_s, share_of_step=rise.share,
    )  # fmt: skip


def _everywhere(ledger: Ledger, rise: _Rise) -> Finding:
    statement = f"{_slower(ledger, rise)}, on all ranks alike"
    base = _base(ledger, rise, "slow_transfer", "temporal", strength(rise.share), statement)
    return replace(base, group_kind=rise.group_kind, is_global=True)


def _one_side(
    ledger: Ledger, nodes: Mapping[int, str], rise: _Rise, crossing: Sequence[_Link], node: str, is_sender: bool
) -> Finding:
    mine = [link for link in crossing if nodes[link.sender if is_sender else link.receiver] == node]
    others = sorted({nodes[link.receiver if is_sender else link.sender] for link in mine})
    share = min(link.share_last for link in mine)
    receivers = tuple(sorted(link.receiver for link in mine))
    statement = (
        f"{_slower(ledger, rise)}; {numbered(receivers)} {verb(receivers, 'end')} last in {100 * share:.0f} % of the "
        f"steps, so the link between {node}, which {'sends' if is_sender else 'receives'}, and {', '.join(others)} is slow"
    )
    score = strength(rise.share) * (SENDER if is_sender else RECEIVER) * len(mine) / len(crossing)
    ranks = tuple(rank for rank in ledger.ranks if nodes.get(rank) == node)
    base = _base(ledger, rise, "slow_link", "spatial", score, statement)
    # one slow link is a matter of a host's network, not of the collective that shows it
    return replace(base, nodes=(node,), ranks=ranks, layer="host")


def _link(ledger: Ledger, rise: _Rise, members: tuple[int, ...], upstream: int) -> _Link | None:
    """Sender, receiver, and the share of steps in which the receiver ended last; None when no rank stands out."""
    if len(members) < 3:
        return None
    at = list(members)
    block = rise.transfer_s[at]
    known = np.isfinite(block).all(axis=0)
    after = known & (np.arange(block.shape[1]) >= rise.first)
    if after.sum() < 3:
        return None
    shape = _shape(block[:, after])
    before = known & ~after
    if before.sum() >= 3:
        shape = shape - _shape(block[:, before]) * min(1.0, rise.before_s / rise.after_s)
    peak = int(np.argmax(shape))
    share = float((np.argmax(block[:, after], axis=0) == peak).mean())
    if share < PEAK_SHARE or shape[peak] - shape.min() < PEAK_HEIGHT:
        return None
    sender = (peak + upstream) % len(members)
    return _Link(ledger.ranks[members[sender]], ledger.ranks[members[peak]], share)


def _shape(block: Floats) -> Floats:
    """Each rank's transfer as a share of the longest of its step, the median over steps."""
    return np.asarray(np.median(block / np.maximum(block.max(axis=0), 1e-9), axis=1))
