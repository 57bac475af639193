"""Windows by time: how long a difference must last, and the one fused pass that reads a metric's samples.

Required continuity, the rule: four minutes; in a job shorter than 32 minutes an eighth of the job, but never less than
fifteen seconds nor less than eight samples (four when samples are half a minute apart or more). It is rounded to the
ladder 15, 30, 60, 120, 240 s, so that thresholds learnt from one job fit the next. Longer windows (twice, four times …
up to 30 minutes or a third of the job) are looked at as well: what is too weak for four minutes may be plain in thirty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from ml.machines.lasting import QUARTERS

Array = np.ndarray
Lines = Array | Sequence[Array]
"""Samples of some machines, equally many each: a matrix, or a line each where they lie (float64 or float32, NaN for missing)."""

LADDER_S = (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1800.0)
LONGEST_REQUIRED_S = 240.0
SHARE_OF_JOB = 8
FILTER_POINTS = 8
"""Samples of one embedded window (Minder, NSDI '25, takes eight)."""


@dataclass(frozen=True)
class Windows:
    """How one metric of one job is cut: bins of `bin_points` grid points, windows of `spans` bins each quarter."""

    period_s: float
    bin_points: int
    spans: tuple[int, ...]
    lengths_s: tuple[float, ...]

    @property
    def bin_s(self) -> float:
        """Seconds of one bin."""
        return self.bin_points * self.period_s


def required_continuity_s(duration_s: float, period_s: float) -> float:
    """Seconds for which a machine must differ in a job of this length.

    >>> required_continuity_s(3600, 1), required_continuity_s(140, 0.5), required_continuity_s(86400, 60)
    (240.0, 15.0, 240.0)
    """
    wanted = min(max(duration_s / SHARE_OF_JOB, LADDER_S[0]), LONGEST_REQUIRED_S)
    near = min(LADDER_S, key=lambda step: abs(math.log(step / wanted)))
    least = (8 if period_s < 30 else QUARTERS) * period_s
    return max(near, next((step for step in LADDER_S if step >= least), least))


def cut(n_points: int, period_s: float) -> Windows:
    """The windows of a metric: lengths from the required continuity on, doubling."""
    duration_s = n_points * period_s
    shortest = required_continuity_s(duration_s, period_s)
    longest = max(min(LADDER_S[-1], duration_s / 3), shortest)
    lengths = [shortest]
    while lengths[-1] * 2 <= longest:
        lengths.append(lengths[-1] * 2)
    bin_points = max(round(shortest / (2 * QUARTERS) / period_s), 1)
    spans = tuple(max(round(length / QUARTERS / (bin_points * period_s)), 1) for length in lengths)
    return Windows(period_s, bin_points, spans, tuple(lengths))


@numba.njit(cache=True, nogil=True)
def _denoised(line: Array, weights: Array) -> float:
    """Mean of a bin whose whole windows go through the filter; windows with missing samples, and the rest, as they are."""
    total, n_known = 0.0, 0
    width = len(weights)
    for first in range(0, len(line), width):
        last = min(first + width, len(line))
        plain, dot, known = 0.0, 0.0, 0
        for place in range(first, last):
            value = line[place]
            if value == value:
                plain += value
                dot += weights[place - first] * value
                known += 1
        total += dot * known if known == width else plain
        n_known += known
    return total / n_known if n_known > 0 else np.nan


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _read(line: Array, before: float) -> tuple[float, int, float, int, int]:
    """Of one bin: sum and number of known values, sum and number of steps between neighbours, number of equal neighbours.

    Without branches, and sums in any order (`reassoc`; NaN stays NaN): this is all that touches each sample.
    """
    total, count, step_total, n_steps, n_equal = 0.0, 0, 0.0, 0, 0
    for place in range(len(line)):
        value = line[place]
        total += value if value == value else 0.0
        count += value == value
    step = abs(line[0] - before)
    if step == step:
        step_total, n_steps, n_equal = step, 1, int(step == 0.0)
    for place in range(1, len(line)):
        step = abs(line[place] - line[place - 1])
        step_total += step if step == step else 0.0
        n_steps += step == step
        n_equal += step == 0.0
    return total, count, step_total, n_steps, n_equal


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _summarise(line: Array, bin_points: int, weights: Array, is_plain: bool, found: Array, row: int) -> None:
    """Fill one row of `found` (level, roughness, missing share, repeats × machines × bins), see `summarise`."""
    before = np.nan
    for number in range(found.shape[2]):
        part = line[number * bin_points : min(number * bin_points + bin_points, len(line))]
        total, count, step_total, n_steps, n_equal = _read(part, before)
        before = part[-1]
        found[0, row, number] = (total / count if is_plain else _denoised(part, weights)) if count * 2 >= len(part) else np.nan
        found[1, row, number] = step_total / n_steps if n_steps > 0 else np.nan
        found[2, row, number] = 1.0 - count / len(part)
        found[3, row, number] = n_equal / len(part)


def summarise(values: Lines, bin_points: int, weights: Array) -> tuple[Array, Array, Array, Array]:
    """One pass over a metric: per machine and bin the level, the roughness, the missing share and the repeats.

    `weights` (FILTER_POINTS of them) turns one window of samples into its denoised level: the mean of the window as the
    embedding gives it back. Windows with missing samples, and the rest of a bin, take the plain mean. Roughness is the mean
    absolute step between neighbours. Repeats count neighbours that are equal to the last bit. Each result is machines × bins.
    """
    found = np.empty((4, len(values), -(-len(values[0]) // bin_points)))
    is_plain = bool(weights.max() == weights.min())
    for row in range(len(values)):
        _summarise(values[row], bin_points, weights, is_plain, found, row)
    return found[0], found[1], found[2], found[3]


def plain_weights() -> Array:
    """Weights of the plain mean: no embedding."""
    return np.full(FILTER_POINTS, 1.0 / FILTER_POINTS)
