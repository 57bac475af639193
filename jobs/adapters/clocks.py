"""Clocks of nodes, compared by what all nodes saw at the same moment: ends of steps and of collectives."""

from __future__ import annotations

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
    codes: dict[object, int] = {}
    rows = [(codes.setdefault(event, len(codes)), node, at) for event, node, at in shared]
    if not rows:
        return []
    events, nodes, times = zip(*rows)
    names = sorted(set(nodes))
    return offsets_of(np.array(events), names, np.array([names.index(node) for node in nodes]), np.array(times, float))


def offsets_of(events: np.ndarray, names: list[str], node: np.ndarray, times_s: np.ndarray) -> list[Offset]:
    """The same from columns: number of the event, which of the named nodes, seconds. In order of the nodes' names."""
    if len(names) < 2:
        return []
    pairs, at = _medians(events.astype(np.int64) * len(names) + node, times_s)
    event, node = pairs // len(names), pairs % len(names)
    kept = event[1:] == event[:-1]
    is_shared = np.concatenate([kept, [False]]) | np.concatenate([[False], kept])
    event, node, at = event[is_shared], node[is_shared], at[is_shared]
    seen, middle = _medians(event, at)
    distance = at - middle[np.searchsorted(seen, event)]
    found = []
    for i in np.unique(node).tolist():
        values = distance[node == i]
        offset = float(np.median(values))
        found.append(Offset(names[i], offset, float(np.median(np.abs(values - offset))), len(values)))
    return sorted(found, key=lambda each: each.node)


def _medians(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in order, and the median of each one's values."""
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    begins = np.flatnonzero(np.concatenate([[len(keys) > 0], keys[1:] != keys[:-1]]))
    sizes = np.diff(np.append(begins, len(keys)))
    return keys[begins], (values[begins + (sizes - 1) // 2] + values[begins + sizes // 2]) / 2


def corrections(found: list[Offset]) -> dict[str, int]:
    """Microseconds to subtract from the stamps of nodes whose clock is off beyond doubt, given a majority that agrees."""
    if len(found) < 3:
        return {}
    skewed = [offset for offset in found if offset.is_skewed]
    if len(skewed) * 2 >= len(found):
        return {}
    return {offset.node: round(offset.offset_s * 1e6) for offset in skewed}
