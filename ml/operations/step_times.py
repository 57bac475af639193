"""Step times: slow periods against a job's own best and against its baselines, and what they cost.

A degradation is 5 % or more, as EROICA triggers: the mean of the last 50 steps against the recent shortest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ml.operations.changes import segments

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DEGRADED_FROM = 1.05
WINDOW = 50
WARM_UP = 3
LEAST_PERIOD = 10


@dataclass(frozen=True)
class Period:
    """Steps `first` to `last` of one level: median step time, and how many times the best level that is."""

    first: int
    last: int
    step_time_s: float
    slowdown: float


@dataclass(frozen=True)
class StepTimes:
    """A job's step times. `slowdown` is the mean of the last steps over the best level, `baseline_slowdown` the typical
    step over that of the baselines (NaN without any). `lost_s` is the time beyond the best level, all steps together.
    """

    n_steps: int
    typical_s: float
    best_s: float
    last_s: float
    slowdown: float
    baseline_s: float
    baseline_slowdown: float
    periods: tuple[Period, ...]
    onset: int | None
    n_slow_steps: int
    lost_s: float

    @property
    def is_degraded(self) -> bool:
        """Slower by 5 % or more than its own best or than its baselines."""
        worst = max((p.slowdown for p in self.periods), default=1.0)
        return worst >= DEGRADED_FROM or self.baseline_slowdown >= DEGRADED_FROM


def step_times(steps: Integers, seconds: Floats, baselines_s: Sequence[float] = ()) -> StepTimes | None:
    """Levels and cost of a job's step times, one value a step, in order; None with too few steps.

    The first steps (start-up) and every unknown value are left out. `onset` is the step from which a slow level lasts.
    """
    usable = np.where(np.arange(len(seconds)) < WARM_UP, np.nan, seconds)
    known = np.isfinite(usable) & (usable > 0)
    if known.sum() < LEAST_PERIOD:
        return None
    levels = [level for level in segments(np.where(known, usable, np.nan), LEAST_PERIOD) if math.isfinite(level.level)]
    best = min(level.level for level in levels)
    periods = tuple(Period(int(steps[level.first]), int(steps[level.end - 1]), level.level, level.level / best) for level in levels)
    values = usable[known]
    last = float(np.median(values[-WINDOW:]))
    baseline = float(np.median(baselines_s)) if len(baselines_s) else math.nan
    slow = values > DEGRADED_FROM * best
    onset = next((p.first for before, p in pairwise(periods) if p.slowdown >= DEGRADED_FROM * before.slowdown), None)
    typical = float(np.median(values))
    return StepTimes(
        int(known.sum()), typical, best, last, last / best, baseline, typical / baseline, periods, onset,
        int(slow.sum()), float(np.maximum(values - best, 0.0).sum()),
    )  # fmt: skip


def gpu_hours(seconds: float, n_gpus: int) -> float:
    """GPU-hours of a job's seconds on all its accelerators."""
    return seconds * n_gpus / 3600.0
