"""Medians by bracketing and counting against the same by sorting; lines read where they lie against a matrix."""

import numpy as np
import pytest

from ml.machines.medians import largest_and_quantile, lower_medians_turned, median_of_known, others_median_turned
from ml.machines.windows import plain_weights, summarise

N = 200
SHAPES = {
    "normal": lambda draw: draw.normal(size=(12, N)),
    "moving": lambda draw: draw.normal(size=(12, N)) + 50 * np.arange(12)[:, None],
    "ties": lambda draw: draw.integers(-2, 3, (12, N)).astype(float),
    "all equal": lambda draw: np.full((12, N), 3.0),
    "one far out": lambda draw: np.where(np.arange(N) == 7, 1e12, draw.normal(size=(12, N))),
    "two levels": lambda draw: np.where(draw.random((12, N)) < 0.5, 0.0, 1e6) + draw.normal(size=(12, N)),
}


@pytest.fixture(params=[(name, gaps) for name in SHAPES for gaps in (0.0, 0.3)], ids=lambda p: f"{p[0]}, {p[1]:.0%} unknown")
def values(request):
    """Bins × machines, too many machines to be put in order at once."""
    name, gaps = request.param
    draw = np.random.default_rng(3)
    made = SHAPES[name](draw)
    return np.where(draw.random(made.shape) < gaps, np.nan, made)


def test_the_median_of_many_others_is_what_leaving_each_out_gives(values):
    found = others_median_turned(values)
    wanted = np.array([np.nanmedian(np.delete(values, row, axis=1), axis=1) for row in range(N)]).T
    np.testing.assert_array_equal(found, wanted)


def test_medians_of_rows_and_of_bins_are_those_of_numpy(values):
    np.testing.assert_array_equal(median_of_known(values), np.nanmedian(values, axis=1))
    lower = [np.sort(line[np.isfinite(line)])[(np.isfinite(line).sum() - 1) // 2] for line in values]
    np.testing.assert_array_equal(lower_medians_turned(values), lower)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_a_quantile_of_magnitudes_is_that_of_numpy(values, share):
    known = np.abs(values[np.isfinite(values)])
    assert largest_and_quantile(values, share) == (known.max(), np.quantile(known, share))


def test_nothing_known_has_no_median():
    nothing = np.full((2, 5), np.nan)
    assert np.isnan([*largest_and_quantile(nothing, 0.5), *median_of_known(nothing), *lower_medians_turned(nothing)]).all()


def test_lines_that_may_not_be_written_give_what_a_matrix_gives():
    matrix = np.random.default_rng(0).normal(size=(5, 100))
    lines = [line.copy() for line in matrix]
    for line in lines:
        line.flags.writeable = False  # as the columns of a table are
    for own, other in zip(summarise(lines, 30, plain_weights()), summarise(matrix, 30, plain_weights()), strict=True):
        np.testing.assert_array_equal(own, other)
