"""The compiled rule of every aspect against the same rule written plainly."""

import numpy as np
import pytest

from ml.machines.evidence import NOTHING_OLD
from ml.machines.lasting import centred, judged, reached

QUARTERS, CLIP, TO_SD = 4, 2.0, 1.2533


def median_of_others(values):
    found = np.full(values.shape, np.nan)
    for row in range(len(values)):
        others = np.delete(values, row, axis=0)
        for at in range(values.shape[1]):
            known = others[np.isfinite(others[:, at]), at]
            found[row, at] = np.median(known) if len(known) >= 3 else np.nan
    return found


def mean_of(window, least):
    known = window[np.isfinite(window)]
    return known.mean() if len(known) and len(known) >= least else np.nan


def since_past(away):
    size = -(-away.shape[1] // 60)
    past = np.full(away.shape, np.nan)
    for row in range(len(away)):
        means = [mean_of(away[row, start : start + size], 0) for start in range(0, away.shape[1], size)]
        for number in range(6, len(means)):
            before = np.array(means[:number])
            known = before[np.isfinite(before)]
            past[row, number * size : (number + 1) * size] = np.median(known) if len(known) else np.nan
    gone = away - past
    return np.where(np.abs(away) >= np.abs(gone) / 2, gone, gone * 0)


def plainly(binned, span, floor, is_relative):
    n_rows, n_bins = binned.shape
    part = np.array([[mean_of(row[max(at + 1 - span, 0) : at + 1], span / 2) for at in range(n_bins)] for row in binned])
    centre = median_of_others(part)
    away = part - centre
    if is_relative:
        away = since_past(away)
    half = 4 * span
    size = np.array([[TO_SD * mean_of(np.abs(row[max(at - half, 0) : at + half + 1]), 0) for at in range(n_bins)] for row in away])
    spread = np.fmax(median_of_others(size), floor)
    result = np.full(binned.shape, np.nan)
    left = np.full(binned.shape, np.nan)
    reach = QUARTERS * span // 2
    for row in range(n_rows):
        for at in range(n_bins):
            own, around = away[row, at], centre[row, max(at - reach, 0) : at + reach + 1]
            if np.isfinite(own) and np.isfinite(centre[row, at]):
                above, below = np.nanmax(around) - centre[row, at], centre[row, at] - np.nanmin(around)
                left[row, at] = (max(own - above, 0) if own > 0 else -max(-own - below, 0)) / spread[row, at]
        for at in range(3 * span, n_bins):
            quarters = np.sort([left[row, at - number * span] for number in range(QUARTERS)])
            if np.isfinite(quarters).all():
                up, down = quarters[1], quarters[2]
                high, low = np.minimum(quarters, CLIP * up).mean(), np.maximum(quarters, CLIP * down).mean()
                result[row, at] = max(high, 0) if up > 0 else (min(low, 0) if down < 0 else 0)
    return result


@pytest.mark.parametrize(("n_rows", "n_bins", "span"), [(4, 70, 1), (5, 61, 2), (9, 130, 3)])
@pytest.mark.parametrize("is_relative", [False, True])
def test_the_compiled_rule_is_the_plain_one(n_rows, n_bins, span, is_relative):
    draw = np.random.default_rng(n_rows)
    values = draw.normal(0, 1, (n_rows, n_bins)) + 3 * np.sin(np.arange(n_bins) / 9)
    values[2, 40:60] += 6
    values[draw.random(values.shape) < 0.1] = np.nan
    values[1, 20:40] = np.nan
    turned = np.ascontiguousarray(values.T)
    away, centre = centred(turned, span)
    found = judged(away, *reached(centre, span), span, 0.1, is_relative, NOTHING_OLD).T
    assert found == pytest.approx(plainly(values, span, 0.1, is_relative), nan_ok=True)
    assert np.nanmax(np.abs(found)) > 1  # there is something to find


@pytest.mark.parametrize(
    ("course", "n_old", "is_found"),
    [
        ([0, 9, 9, 9], 0, True),  # three of four quarters, each measured
        ([0, 9, 9, 9], 3, False),  # one measurement, given three times
        ([9, 9, 9, 9], 3, True),  # the same for the whole window
        ([-9, -9, -9, -9], 3, True),
        ([0, 9, 9, 9], 2, False),
        ([0, 9, 9, 9], 1, True),
    ],
)
def test_an_old_answer_is_no_new_measurement(course, n_old, is_found):
    values = np.tile([[0.0], [0.1], [-0.1], [0.2], [-0.2], [0.1]], (1, 20))
    values[0, 10:14] = course
    old = np.zeros(values.shape, dtype=np.uint8)
    old[0, 14 - n_old : 14] = 1
    away, centre = centred(np.ascontiguousarray(values.T), 1)
    found = judged(away, *reached(centre, 1), 1, 1.0, False, np.ascontiguousarray(old.T))[13, 0]
    assert (abs(found) > 2) == is_found
