"""The order of a job's machines, the oddest first, and what is told of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

STANDS_OUT = 0.5
"""Scores from here on name a machine."""
MOST_OTHERS = 5
"""Further metrics that are told of one machine: a machine that is gone differs in all of them."""


@dataclass(frozen=True)
class MachineScore:
    """One machine in one metric of one job; `ratio` is its difference in units of the threshold."""

    node: str
    device: str | None
    metric: str
    unit: str | None
    aspect: str
    ratio: float
    score: float
    window_start_us: int
    window_end_us: int
    continuity_s: float
    value: float | None
    peer_low: float | None
    peer_high: float | None
    n_peers: int
    model_id: str
    method: str
    is_shared: bool = False
    is_global: bool = False


def ranked(found: Iterable[MachineScore], priorities: Mapping[str, int]) -> tuple[MachineScore, ...]:
    """Per machine its strongest metric, then its other metrics that stand out; strongest machines first.

    Equals are ordered by the metrics' priority (see `order`), then by name.
    """

    def rank(row: MachineScore) -> tuple[float, int, str, str]:
        return (-row.score, priorities.get(row.metric, 0), row.metric, row.device or "")

    by_node: dict[str, list[MachineScore]] = {}
    for row in found:
        by_node.setdefault(row.node, []).append(row)
    kept = []
    for own in by_node.values():
        own.sort(key=rank)
        own[0] = _with_support(own)
        others = [row for row in own[1:] if row.score >= STANDS_OUT or (row.is_shared and row.ratio >= 1)]
        kept.append([own[0], *others[:MOST_OTHERS]])
    kept.sort(key=lambda own: (*rank(own[0]), own[0].node))
    return tuple(row for own in kept for row in own)


def _with_support(own: Sequence[MachineScore]) -> MachineScore:
    """The strongest metric, raised a little when others say the same independently."""
    n_metrics = len({row.metric for row in own if row.score >= STANDS_OUT})
    if own[0].score < STANDS_OUT or n_metrics < 2:
        return own[0]
    return replace(own[0], score=min(1 - (1 - own[0].score) / min(n_metrics, 4) ** 0.5, 0.98))
