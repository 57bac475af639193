"""Machines against their peers, point by point: residuals, the spread that peers show, and robust Z-scores.

A matrix has one row a machine (or device) and one column a grid point; NaN is a missing value. Every statistic of a
machine is taken over the *others* only, so a machine that is far off neither pulls the centre towards itself nor
widens the band that it is judged by, and nothing depends on how many machines there are.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

MIN_PEERS = 3
"""With fewer others than this there is no majority to differ from: no answer."""
MEAN_ABS_TO_SD = 1.2533
"""sd / mean absolute deviation of a normal distribution, sqrt(pi / 2)."""

UNIT_FLOORS = {"ratio": 0.01, "pct": 1.0, "s/s": 0.02, "C": 0.5, "W": 0.5, "MHz": 1.0}
"""Differences below these are of no interest, whatever the spread of the peers: resolution of usual sensors."""
RELATIVE_FLOOR = 0.003
"""Differences below this share of the metric's usual size are of no interest."""
RARE_FLOOR = 0.05
"""For metrics that rest at zero nearly always: share of the largest value seen."""


def others_median(values: Array) -> Array:
    """Median of the other rows at each point: same shape; NaN where fewer than MIN_PEERS others have a value.

    >>> others_median(np.array([[1.0], [2.0], [3.0], [9.0]])).ravel().tolist()
    [3.0, 3.0, 2.0, 2.0]
    """
    if len(values) <= MIN_PEERS:
        return np.full(values.shape, np.nan)
    count = np.isfinite(values).sum(axis=0)
    below, middle, above = _middle_three(values, count)
    with np.errstate(invalid="ignore"):
        # Odd count: two of the others are in the middle; even count: one is.
        odd = np.where(values < middle, (middle + above) / 2, np.where(values > middle, (below + middle) / 2, (below + above) / 2))
        even = np.where(values <= below, middle, below)
        centre = np.where(count % 2 == 1, odd, even)
        present = np.isfinite(values)
    # A machine without a value here takes nothing away from the others, whose plain median it may know.
    plain = np.where(count % 2 == 1, middle, (below + middle) / 2)
    centre = np.where(present, centre, plain)
    enough = count - present >= MIN_PEERS
    return np.where(enough, centre, np.nan)


def _middle_three(values: Array, count: Array) -> tuple[Array, Array, Array]:
    """Of each column's known values in order the one before the middle, the middle one, and the one after it."""
    n_rows, n_points = values.shape
    half = count // 2
    if n_points and (count == count[0]).all():
        # Selecting three ranks is cheaper than sorting, and turned rows lie together in memory.
        ranks = sorted({int(r) for r in (half[0] - 1, half[0], half[0] + 1) if 0 <= r < n_rows})
        ordered = np.partition(np.ascontiguousarray(values.T), ranks, axis=1).T
    else:
        ordered = np.sort(values, axis=0)
    columns = np.arange(n_points)
    below, middle, above = (ordered[(half + shift).clip(0, n_rows - 1), columns] for shift in (-1, 0, 1))
    return below, middle, above


def moving_mean(values: Array, width: int) -> Array:
    """Mean of the last `width` points at each point, over known values; NaN where fewer than half are known.

    Shorter at the start: the first points average what there is, from a whole half width on.
    """
    width = max(width, 1)
    known = np.isfinite(values)
    total = np.cumsum(np.where(known, values, 0.0), axis=-1)
    count = np.cumsum(known, axis=-1, dtype=np.int64)
    total[..., width:] -= total[..., :-width].copy()
    count[..., width:] -= count[..., :-width].copy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count * 2 >= width, total / count, np.nan)


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
    known = np.abs(values[np.isfinite(values)])
    if not len(known):
        return 0.0
    usual = float(np.quantile(known, 0.95))
    relative = RELATIVE_FLOOR * usual if usual > 0 else RARE_FLOOR * float(known.max())
    return max(relative, UNIT_FLOORS.get(unit or "", 0.0))


def band(residuals: Array, width: int, floor: float) -> Array:
    """Spread that the others show around each point: their mean absolute residual over `width` points, as an sd.

    Local in time, because phases differ: while every machine starts up at its own pace nobody stands out.
    """
    own = MEAN_ABS_TO_SD * centred_mean(np.abs(residuals), width)
    return np.fmax(others_median(own), floor)


def own_past(residuals: Array, n_blocks: int = 60, n_warm: int = 6) -> Array:
    """What a machine's residual used to be: at each point the median of its blocks so far, the current one left out.

    NaN during the first `n_warm` blocks. Blocks bound the work: a day costs as much as an hour.
    """
    n_rows, n_points = residuals.shape
    size = max(-(-n_points // n_blocks), 1)
    starts = np.arange(0, n_points, size)
    means = np.full((n_rows, len(starts)), np.nan)
    for number, start in enumerate(starts):
        piece = residuals[:, start : start + size]
        known = np.isfinite(piece)
        count = known.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            means[:, number] = np.where(known, piece, 0.0).sum(axis=1) / count
    past = np.full(residuals.shape, np.nan)
    for number, start in enumerate(starts):
        if number >= n_warm:
            past[:, start : start + size] = _median_of_known(means[:, :number])[:, None]
    return past


def _median_of_known(values: Array) -> Array:
    """Row medians over known values, NaN for rows without any; no warnings."""
    ordered = np.sort(values, axis=1)
    count = np.isfinite(ordered).sum(axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, ((count - 1) // 2).clip(0)]
    high = ordered[rows, (count // 2).clip(max=values.shape[1] - 1)]
    return np.where(count > 0, (low + high) / 2, np.nan)
