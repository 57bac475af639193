"""How far, and how long, one machine differs from its peers in one metric.

From the binned metric to a signed figure a machine, bin and window length: the difference to the peers in units of the
peers' own spread, as it lasts through the window. Five aspects of a metric are looked at, all with the same rule:

=========  =====================================================================================================
level      the machine's values against the peers' (its usual offset, where the fleet's history knows it, removed)
change     the same, against what the machine's own difference used to be earlier in the job
roughness  how much neighbouring values differ: noise up, a frozen sensor down
gaps       missing values where the peers have some
stuck      the same value, bit by bit, where the peers' values move
=========  =====================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from ml.machines.peers import band, floor_of, moving_mean, others_median, own_past
from ml.machines.windows import QUARTERS, Windows, cut, plain_weights, summarise

Array = np.ndarray

ROUGHNESS_FLOOR = 0.25
"""Spread of log roughness that is granted at least: a quarter more or less jitter is no difference."""
GAP_FLOOR = 0.1
STUCK_FLOOR = 0.1
CLIP = 2.0
USUAL_REPEATS = 0.1
FROZEN_SHARE = 0.5
BAND_QUARTERS = 8
"""Peers' spread is taken over this many quarters of a window around each point."""


class Aspect(StrEnum):
    """What is compared."""

    LEVEL = "level"
    CHANGE = "change"
    ROUGHNESS = "roughness"
    GAPS = "gaps"
    STUCK = "stuck"


@dataclass(frozen=True)
class Differences:
    """Differences of one aspect at one window length: machines × bins, signed, each for the window that ends there."""

    aspect: Aspect
    length_s: float
    values: Array


@dataclass(frozen=True)
class MetricEvidence:
    """All differences of one metric, and what they were made from, machines × bins, for saying what was seen."""

    windows: Windows
    level: Array
    rough: Array
    missing: Array
    repeats: Array
    floor: float
    differences: tuple[Differences, ...]

    def shown(self, aspect: Aspect) -> Array:
        """The figures that an aspect compares, in the metric's unit (shares for gaps and repeats)."""
        return {Aspect.ROUGHNESS: self.rough, Aspect.GAPS: self.missing, Aspect.STUCK: self.repeats}.get(aspect, self.level)


def measure(
    values: Array, period_s: float, unit: str | None = None, *, weights: Array | None = None, offsets: Array | None = None
) -> MetricEvidence:
    """Differences of one metric: `values` is machines × grid points with NaN.

    `weights` is the embedding's filter (see `windows.summarise`), the plain mean by default. `offsets` (one a machine, in
    the metric's unit, NaN where unknown) are what the fleet's history says that each machine usually differs by.
    """
    windows = cut(values.shape[1], period_s)
    level, rough, missing, repeats = summarise(values, windows.bin_points, plain_weights() if weights is None else weights)
    floor = floor_of(level, unit)
    if floor == 0.0:
        # All zero, or all missing: only gaps can differ.
        gaps = tuple(_aspect(Aspect.GAPS, missing, windows, GAP_FLOOR))
        return MetricEvidence(windows, level, rough, missing, repeats, floor, gaps)
    living = np.where(all_frozen(repeats), np.nan, level)
    known = np.zeros(len(level)) if offsets is None else np.nan_to_num(offsets)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rough = np.log(rough + floor)
    found = [
        *_aspect(Aspect.LEVEL, living - known[:, None], windows, floor),
        *_aspect(Aspect.CHANGE, living, windows, floor),
        *_aspect(Aspect.ROUGHNESS, log_rough, windows, ROUGHNESS_FLOOR),
        *_aspect(Aspect.GAPS, missing, windows, GAP_FLOOR),
        *_aspect(Aspect.STUCK, repeats, windows, STUCK_FLOOR),
    ]
    return MetricEvidence(windows, level, rough, missing, repeats, floor, tuple(found))


def all_frozen(repeats: Array) -> Array:
    """Where the peers' values stand still that otherwise move: the source of the metric stopped, nobody can be compared."""
    standing = others_median(repeats)
    known = standing[np.isfinite(standing)]
    if not len(known) or np.quantile(known, 0.25) > USUAL_REPEATS:
        return np.zeros(repeats.shape, dtype=bool)
    return standing >= FROZEN_SHARE


def _aspect(aspect: Aspect, binned: Array, windows: Windows, floor: float) -> list[Differences]:
    relative_to_past = aspect in (Aspect.CHANGE, Aspect.ROUGHNESS, Aspect.STUCK)
    # Nothing missing, nothing repeated: the usual case, and nothing to compare.
    is_idle = aspect in (Aspect.GAPS, Aspect.STUCK) and not binned.any()
    return [
        Differences(
            aspect,
            length_s,
            np.zeros(binned.shape) if is_idle else lasting(binned, span, floor, relative_to_past=relative_to_past),
        )
        for span, length_s in zip(windows.spans, windows.lengths_s, strict=True)
        if QUARTERS * span <= binned.shape[1]
    ]


def lasting(binned: Array, span: int, floor: float, *, relative_to_past: bool) -> Array:
    """Signed difference to the peers that lasts through the window of QUARTERS quarters of `span` bins that ends at each bin.

    In units of the peers' spread: the mean of the quarters, each at most CLIP times the second weakest one, so that no
    burst makes a window; zero unless all quarters but one lie on the same side; NaN where nothing can be said.
    """
    part = moving_mean(binned, span)
    centre = others_median(part)
    away = part - centre
    if relative_to_past:
        gone = away - own_past(away)
        # A machine that stops being different has not become different.
        away = np.where(np.abs(away) >= np.abs(gone) / 2, gone, gone * 0.0)
    away = beyond_shift(away, centre, QUARTERS * span // 2) / band(away, BAND_QUARTERS * span, floor)
    quarters = np.full((QUARTERS, *away.shape), np.nan)
    quarters[0] = away
    for number in range(1, QUARTERS):
        quarters[number][:, number * span :] = away[:, : -number * span]
    quarters.sort(axis=0)
    up, down = quarters[1], -quarters[-2]
    with np.errstate(invalid="ignore"):
        high = np.minimum(quarters, CLIP * up).mean(axis=0)
        low = np.maximum(quarters, -CLIP * down).mean(axis=0)
        return np.where(up > 0, np.maximum(high, 0), np.where(down > 0, np.minimum(low, 0), quarters.sum(axis=0) * 0.0))


def beyond_shift(away: Array, centre: Array, reach: int) -> Array:
    """What of a difference is left when the machine may run `reach` bins ahead of or behind its peers.

    Machines start, pause and end a little apart, and their clocks differ: a value that the peers' centre itself takes
    within `reach` bins is no difference.
    """
    size = 2 * reach + 1
    above = maximum_filter1d(np.where(np.isfinite(centre), centre, -np.inf), size, axis=1, mode="nearest") - centre
    below = centre - minimum_filter1d(np.where(np.isfinite(centre), centre, np.inf), size, axis=1, mode="nearest")
    return np.where(away > 0, np.maximum(away - above, 0), -np.maximum(-away - below, 0))
