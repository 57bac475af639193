"""Times in fault: overlaps merged, availability, time to repair, recurrence."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ml.reliability.rates import Estimate, rate


@dataclass(frozen=True)
class Fault:
    """One fault of one node from `start` to `end` (days, or any one unit); `end` None: not yet over."""

    node: str
    start: float
    end: float | None
    kind: str = ""
    part: str = ""


def pair(events: Iterable[tuple[str, float, bool, str, str]]) -> tuple[list[Fault], int]:
    """Faults from (node, time, is_start, kind, part) events: each end closes the earliest open start of its node, kind and part.

    Returns the faults in order of their start, and the number of ends without a start.
    """
    open_: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    faults, n_lone = [], 0
    for node, at, is_start, kind, part in sorted(events, key=lambda e: (e[1], not e[2], e[0], e[3], e[4])):
        waiting = open_[node, kind, part]
        if is_start:
            waiting.append(at)
        elif waiting:
            faults.append(Fault(node, waiting.pop(0), at, kind, part))
        else:
            n_lone += 1
    faults += [Fault(node, start, None, kind, part) for (node, kind, part), starts in open_.items() for start in starts]
    return sorted(faults, key=lambda f: (f.start, f.node, f.kind, f.part)), n_lone


def merged(faults: Sequence[Fault], horizon: tuple[float, float]) -> dict[str, list[tuple[float, float]]]:
    """By node: intervals in fault within the horizon, overlapping ones joined; open faults last to its end."""
    begin, finish = horizon
    by_node: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in sorted(faults, key=lambda f: (f.node, f.start)):
        start, end = max(fault.start, begin), min(finish if fault.end is None else fault.end, finish)
        if end < start:
            continue
        own = by_node[fault.node]
        if own and start < own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], end))
        else:
            own.append((start, end))
    return dict(by_node)


@dataclass(frozen=True)
class FaultHistory:
    """What a list of faults says of a fleet over a horizon; times in the unit of the faults (days)."""

    n_faults: int
    n_nodes: int
    n_nodes_hit: int
    n_merged: int
    down: float
    down_unmerged: float
    availability: float
    repair_median: float
    repair_mean: float
    repair_p90: float
    repair_max: float
    faults_per_1000_node_days: Estimate
    share_of_top: float
    n_top: int
    n_repeaters: int
    share_of_repeaters: float
    worst_node_faults: int
    by_kind: dict[str, int]
    by_part: dict[str, int]


def history(
    faults: Sequence[Fault],
    n_nodes: int,
    horizon: tuple[float, float],
    days: float | None = None,
    top_share: float = 0.05,
    repeats: int = 3,
) -> FaultHistory:
    """Figures of a fault history of `n_nodes` machines over `horizon`; `days` is its length where it differs from the clip.

    Repair times are those of single faults that ended; down time is that of merged intervals. Recurrence: the share of faults
    on the `top_share` of machines with the most, and on those with at least `repeats`.
    """
    spans = merged(faults, horizon)
    down = sum(end - start for own in spans.values() for start, end in own)
    exposure = n_nodes * (horizon[1] - horizon[0] if days is None else days)
    repairs = np.array([f.end - f.start for f in faults if f.end is not None], dtype=float)
    per_node = sorted(Counter(f.node for f in faults).values(), reverse=True)
    n_top = max(1, round(n_nodes * top_share))
    repeaters = [n for n in per_node if n >= repeats]
    n = len(faults)

    def stat(f: object) -> float:
        return float(f(repairs)) if len(repairs) else math.nan  # type: ignore[operator]

    return FaultHistory(
        n,
        n_nodes,
        len(per_node),
        sum(len(own) for own in spans.values()),
        down,
        float(repairs.sum()),
        1 - down / exposure if exposure > 0 else math.nan,
        stat(np.median),
        stat(np.mean),
        stat(lambda r: np.percentile(r, 90, method="higher")),
        stat(np.max),
        rate(n, exposure).scaled(1000.0),
        sum(per_node[:n_top]) / n if n else math.nan,
        n_top,
        len(repeaters),
        sum(repeaters) / n if n else math.nan,
        per_node[0] if per_node else 0,
        dict(sorted(Counter(f.kind for f in faults).items(), key=lambda i: (-i[1], i[0]))),
        dict(sorted(Counter(f.part for f in faults).items(), key=lambda i: (-i[1], i[0]))),
    )
