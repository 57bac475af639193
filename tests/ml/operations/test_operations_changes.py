"""Change points, step times and patterns."""

import math

import numpy as np
import pytest

from ml.operations.changes import change_point, segments
from ml.operations.step_times import gpu_hours, step_times

RANDOM = np.random.default_rng(11)


def noisy(*levels, noise=0.2):
    """Levels of (value, steps) with noise, and an outlier of ten times the value every twenty steps."""
    values = np.concatenate([np.full(n, level) for level, n in levels])
    values = values * (1 + noise * RANDOM.standard_normal(len(values)))
    values[7::20] *= 10
    return values


@pytest.mark.parametrize("at", [20, 50, 80])
def test_a_change_of_half_is_found_within_five_steps_in_spite_of_outliers(at):
    found = [change_point(noisy((1.0, at), (1.5, 100 - at), noise=0.15)) for _ in range(100)]
    assert sum(change is not None and abs(change.index - at) <= 5 for change in found) >= 97
    assert np.median([change.after / change.before for change in found if change]) == pytest.approx(1.5, rel=0.05)


def test_a_steady_series_has_no_change():
    assert [change_point(noisy((1.0, 100))) for _ in range(30)].count(None) == 30


def test_unknown_values_are_skipped_and_positions_kept():
    values = noisy((1.0, 40), (3.0, 40))
    values[:10] = np.nan
    assert abs(change_point(values).index - 40) <= 2
    assert change_point(np.full(50, np.nan)) is None


def test_a_slow_period_in_between_is_cut_out():
    found = segments(noisy((1.0, 40), (2.0, 40), (1.0, 40)))
    assert [round(s.level) for s in found] == [1, 2, 1]


def test_step_times_are_compared_with_the_best_level_and_the_baselines():
    times = step_times(np.arange(100), noisy((1.0, 50), (1.3, 50), noise=0.1), [0.8, 0.9])
    assert times.is_degraded
    assert abs(times.onset - 50) <= 5
    assert times.slowdown == pytest.approx(1.3, rel=0.1)
    assert times.baseline_slowdown > 1.05
    # fifty steps of 0.3 s more, and what the outliers add
    assert times.lost_s > 0.3 * 50


# rise of the step time from step 100 of 200 on, whether it counts as a degradation
@pytest.mark.parametrize(("rise", "is_degraded"), [(0.0, False), (0.03, False), (0.06, True), (0.10, True), (0.50, True)])
def test_five_percent_of_the_step_is_where_a_degradation_begins(rise, is_degraded):
    seconds = np.r_[np.full(100, 1.0), np.full(100, 1.0 + rise)] * (1 + 0.01 * np.random.default_rng(3).standard_normal(200))
    seconds[11::25] *= 6  # checkpoints
    times = step_times(np.arange(200), seconds)
    assert times.is_degraded is is_degraded
    assert (times.onset is not None and abs(times.onset - 100) <= 5) is is_degraded


def test_a_steady_job_is_not_degraded_and_has_no_baselines():
    times = step_times(np.arange(100), noisy((1.0, 100)))
    assert (times.is_degraded, times.onset) == (False, None)
    assert math.isnan(times.baseline_slowdown)


def test_too_few_steps_say_nothing():
    assert step_times(np.arange(8), np.ones(8)) is None


def test_cost_in_gpu_hours():
    assert gpu_hours(1800, 8) == 4.0
