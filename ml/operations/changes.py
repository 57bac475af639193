"""Robust change points: when did a series move to another level, whatever its outliers do?

The series is replaced by its ranks, so that a checkpoint or a pause weighs no more than any other large value; then the
point is sought that separates the ranks best (normalised cumulative sums; Pettitt's test weighs the same sums).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]

LEAST_SEGMENT = 5
LEAST_STRENGTH = 4.5
"""In units of the standard deviation without a change; a hundred independent steps reach 3.3 once in a hundred runs."""

EXCURSION_MORE = 1.0
"""A level that is left and taken up again must show this much more clearly: there are many more places for it."""
MOST_EDGES = 400
MOST_OVERLAP = 0.05
"""Levels that overlap less than this are different however much neighbouring steps resemble each other."""


@dataclass(frozen=True)
class Change:
    """The first position of the new level, the medians before and after, and how clearly they differ."""

    index: int
    before: float
    after: float
    strength: float


@dataclass(frozen=True)
class Segment:
    """Positions `first` to `end` (not included) of one level."""

    first: int
    end: int
    level: float


def change_point(values: Floats, least_segment: int = LEAST_SEGMENT, least_strength: float = LEAST_STRENGTH) -> Change | None:
    """The clearest change of level, or None. NaN are skipped; `index` counts positions of `values`.

    >>> change_point(np.array([1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 5.0] * 2 + [2.0, 2.1, 1.9, 2.0, 2.2, 2.1, 9.0] * 3)).index
    16
    """
    at = np.flatnonzero(np.isfinite(values))
    n = len(at)
    if n < 2 * least_segment:
        return None
    x = values[at]
    ranks = rankdata(x) - (n + 1) / 2
    spread = float(ranks.std())
    if spread == 0:
        return None
    t = np.arange(1, n)
    sums = np.cumsum(ranks)[:-1]
    strength = np.abs(sums) / (spread * np.sqrt(t * (n - t) / n))
    strength[: least_segment - 1] = strength[n - least_segment :] = 0.0
    best = int(np.argmax(strength))
    after = x[best + 1 :]
    before = x[: best + 1]
    plain = float(strength[best])
    clear = plain / _inflation(ranks, best + 1)
    if clear < least_strength and (plain < least_strength or _overlap(ranks, best + 1) > MOST_OVERLAP):
        return None
    middle = _placed(x, float(np.median(before)), float(np.median(after)), least_segment)
    return Change(int(at[middle]), float(np.median(x[:middle])), float(np.median(x[middle:])), clear)


def _placed(x: Floats, before: float, after: float, least_segment: int) -> int:
    """The first position of the new level that fits both levels best, a far value costing no more than a near miss."""
    most = 1.5 * abs(after - before)
    cost_before = np.concatenate([[0.0], np.cumsum(np.minimum(np.abs(x - before), most))])
    cost_after = np.concatenate([[0.0], np.cumsum(np.minimum(np.abs(x - after), most))])
    cost = cost_before + (cost_after[-1] - cost_after)
    return least_segment + int(np.argmin(cost[least_segment : len(x) - least_segment + 1]))


def segments(values: Floats, least_segment: int = 10, depth: int = 2, least_strength: float = LEAST_STRENGTH) -> list[Segment]:
    """The series cut at its change points, in order; each cut is looked into `depth` times."""
    return _segments(values, 0, least_segment, depth, least_strength)


def _segments(values: Floats, offset: int, least_segment: int, depth: int, least_strength: float) -> list[Segment]:
    change = change_point(values, least_segment, least_strength) if depth else None
    cuts = [change.index] if change is not None else []
    if depth and not cuts:
        cuts = list(_excursion(values, least_segment, least_strength + EXCURSION_MORE) or ())
    if not cuts:
        known = values[np.isfinite(values)]
        level = float(np.median(known)) if len(known) else math.nan
        return [Segment(offset, offset + len(values), level)]
    found: list[Segment] = []
    for first, end in pairwise([0, *cuts, len(values)]):
        found += _segments(values[first:end], offset + first, least_segment, depth - 1, least_strength)
    return found


def _excursion(values: Floats, least_segment: int, least_strength: float) -> tuple[int, int] | None:
    """Where a series leaves its level and where it comes back, which no single change shows well; or None."""
    at = np.flatnonzero(np.isfinite(values))
    n = len(at)
    if n < 3 * least_segment:
        return None
    ranks = rankdata(values[at]) - (n + 1) / 2
    spread = float(ranks.std())
    if spread == 0:
        return None
    sums = np.concatenate([[0.0], np.cumsum(ranks)])
    edges = np.unique(np.linspace(least_segment, n - least_segment, min(n - 2 * least_segment + 1, MOST_EDGES)).astype(int))
    length = edges[None, :] - edges[:, None]
    usable = (length >= least_segment) & (n - length >= least_segment)
    share = np.where(usable, length * (n - length) / n, 1.0)
    strength = np.where(usable, np.abs(sums[edges][None, :] - sums[edges][:, None]) / (spread * np.sqrt(share)), 0.0)
    first, end = (int(edges[k]) for k in np.unravel_index(int(np.argmax(strength)), strength.shape))
    inside, outside = ranks[first:end], np.concatenate([ranks[:first], ranks[end:]])
    if float(strength.max()) / _inflation(np.concatenate([outside, inside]), len(outside)) < least_strength:
        return None
    return int(at[first]), int(at[end])


def _overlap(ranks: Floats, split: int) -> float:
    """Share of pairs (before, after) that stand the other way round than most: 0 for levels that never touch."""
    n_before, n_after = split, len(ranks) - split
    higher = float(rankdata(ranks)[split:].sum() - n_after * (n_after + 1) / 2) / (n_before * n_after)
    return min(higher, 1 - higher)


def _inflation(ranks: Floats, split: int) -> float:
    """How much neighbours that resemble each other widen the cumulative sums, both levels taken out."""
    levelled = np.concatenate([ranks[:split] - ranks[:split].mean(), ranks[split:] - ranks[split:].mean()])
    power = float(levelled @ levelled)
    if power == 0:
        return 1.0
    r = float(levelled[1:] @ levelled[:-1]) / power
    return math.sqrt((1 + r) / (1 - r)) if 0 < r < 0.95 else 1.0 if r <= 0 else 6.2
