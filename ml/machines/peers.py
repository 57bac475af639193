"""Machines against their peers, point by point: residuals, the spread that peers show, and robust Z-scores.

A matrix has one row a machine (or device) and one column a grid point; NaN is a missing value. Every statistic of a
machine is taken over the *others* only, so a machine that is far off neither pulls the centre towards itself nor
widens the band that it is judged by, and nothing depends on how many machines there are.
"""

from __future__ import annotations

import numba
import numpy as np

from ml.machines.medians import largest_and_quantile, others_median_turned, turned

Array = np.ndarray

MEAN_ABS_TO_SD = 1.2533
"""sd / mean absolute deviation of a normal distribution, sqrt(pi / 2)."""

MANY_PEERS = 20
"""From here on the peers' band is told by percentiles, below by the extremes."""

UNIT_FLOORS = {"ratio": 0.01, "pct": 1.0, "s/s": 0.02, "C": 0.5, "W": 0.5, "MHz": 1.0}
"""Differences below these are of no interest, whatever the spread of the peers: resolution of usual sensors."""
RELATIVE_FLOOR = 0.003
"""Differences below this share of the metric's usual size are of no interest."""
USUAL_SHARE = 0.95
"""Quantile of a metric's magnitudes that is its usual size."""
RARE_FLOOR = 0.05
"""For metrics that rest at zero nearly always: share of the largest value seen."""


def others_median(values: Array) -> Array:
    """Median of the other rows at each point: same shape; NaN where fewer than MIN_PEERS others have a value.

    >>> others_median(np.array([[1.0], [2.0], [3.0], [9.0]])).ravel().tolist()
    [3.0, 3.0, 2.0, 2.0]
    """
    return others_median_turned(turned(values)).T


def centred_mean(values: Array, width: int) -> Array:
    """Mean over `width` points around each point, over known values; NaN where none is known."""
    n_points = values.shape[-1]
    half = max(width // 2, 0)
    known = np.isfinite(values)
    zeros = np.zeros((*values.shape[:-1], 1))
    total = np.concatenate([zeros, np.cumsum(np.where(known, values, 0.0), axis=-1)], axis=-1)
    count = np.concatenate([zeros, np.cumsum(known, axis=-1, dtype=np.float64)], axis=-1)
    low = (np.arange(n_points) - half).clip(0)
    high = (np.arange(n_points) + half + 1).clip(max=n_points)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (total[..., high] - total[..., low]) / (count[..., high] - count[..., low])
    return mean


def floor_of(values: Array, unit: str | None) -> float:
    """The smallest spread that a metric is credited with, in its own unit; above zero unless all values are zero."""
    largest, usual = largest_and_quantile(np.ascontiguousarray(values), USUAL_SHARE)
    if largest != largest:
        return 0.0
    relative = RELATIVE_FLOOR * usual if usual > 0 else RARE_FLOOR * largest
    return max(relative, UNIT_FLOORS.get(unit or "", 0.0))


def band(residuals: Array, width: int, floor: float) -> Array:
    """Spread that the others show around each point: their mean absolute residual over `width` points, as an sd.

    Local in time, because phases differ: while every machine starts up at its own pace nobody stands out.
    """
    own = MEAN_ABS_TO_SD * centred_mean(np.abs(residuals), width)
    return np.fmax(others_median(own), floor)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _means(shown: Array, first: int, covered: Array) -> Array:
    """Row means of what is known among the covered points from the first one on; NaN where nothing is."""
    means = np.empty(len(shown))
    for row in range(len(shown)):
        total, count = 0.0, 0
        for place in range(len(covered)):
            value = shown[row, first + place]
            is_used = covered[place] & (abs(value) < np.inf)
            total += value if is_used else 0.0
            count += is_used
        means[row] = total / count
    return means


def bands_of(shown: Array, covered: Array | None = None) -> tuple[Array, Array, Array]:
    """Each machine's mean, and the lowest and highest of the others' (5th and 95th percentile if many); NaN if unknown.

    Of the covered points only, if they are given.

    >>> [own.tolist() for own in bands_of(np.array([[1.0], [2.0], [4.0]]))]
    [[1.0, 2.0, 4.0], [2.0, 1.0, 1.0], [4.0, 4.0, 2.0]]
    """
    covered = np.ones(shown.shape[1], dtype=bool) if covered is None else covered
    ends = np.flatnonzero(covered)[[0, -1]] + (0, 1)
    means = _means(shown, int(ends[0]), covered[ends[0] : ends[1]])
    order = np.argsort(means, kind="stable")
    ordered = means[order]
    n_known = int(np.isfinite(ordered).sum())
    rank = np.empty(len(means), dtype=np.int64)
    rank[order] = np.arange(len(means))
    # Of a known machine one fewer is left, and those behind it move up by one.
    n_others = n_known - np.isfinite(means)
    edge = np.where(n_others >= MANY_PEERS, 0.05, 0.0)

    def at(share: Array) -> Array:
        place = share * (n_others - 1)
        low = np.floor(place).astype(np.int64).clip(0)
        high = np.minimum(low + 1, (n_others - 1).clip(0))
        ends = [ordered[(each + (each >= rank)).clip(max=len(means) - 1)] for each in (low, high)]
        return np.where(n_others > 0, ends[0] + (ends[1] - ends[0]) * (place - low), np.nan)

    return means, at(edge), at(1 - edge)
