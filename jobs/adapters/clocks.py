"""Clocks of nodes, compared by what all nodes saw at the same moment: ends of steps and of collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SKEW_S = 5.0
"""Offsets below this are grain and waiting; above it (and well above their spread) stamps are corrected."""
MIN_SHARED = 3


@dataclass(frozen=True)
class Offset:
    """How far one node's clock is ahead of its peers', seconds, and how well that is known."""

    node: str
    offset_s: float
    spread_s: float
    n_shared: int

    @property
    def is_skewed(self) -> bool:
        """Whether the clock is off beyond doubt."""
        return self.n_shared >= MIN_SHARED and abs(self.offset_s) > max(SKEW_S, 5 * self.spread_s)


def offsets(shared: Iterable[tuple[object, str, float]]) -> list[Offset]:
    """Offsets from (event, node, seconds): of each event seen by two nodes or more, each node's distance to the median.

    With two nodes the half of their distance is given to each, which accuses neither: such jobs get no correction.

    >>> offsets([(i, n, i + (420.0 if n == "c" else 0.0)) for i in range(5) for n in "abc"])[2].offset_s
    420.0
    """
    seen: dict[object, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event, node, at in shared:
        seen[event][node].append(at)
    distances: dict[str, list[float]] = defaultdict(list)
    for by_node in seen.values():
        if len(by_node) < 2:
            continue
        times = {node: float(np.median(values)) for node, values in by_node.items()}
        middle = float(np.median(list(times.values())))
        for node, at in times.items():
            distances[node].append(at - middle)
    found = []
    for node in sorted(distances):
        values = np.array(distances[node])
        offset = float(np.median(values))
        found.append(Offset(node, offset, float(np.median(np.abs(values - offset))), len(values)))
    return found


def corrections(found: list[Offset]) -> dict[str, int]:
    """Microseconds to subtract from the stamps of nodes whose clock is off beyond doubt, given a majority that agrees."""
    if len(found) < 3:
        return {}
    skewed = [offset for offset in found if offset.is_skewed]
    if len(skewed) * 2 >= len(found):
        return {}
    return {offset.node: round(offset.offset_s * 1e6) for offset in skewed}
