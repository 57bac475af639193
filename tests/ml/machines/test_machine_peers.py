"""Statistics over the others, and windows by time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml.machines.peers import floor_of, others_median
from ml.machines.windows import cut, plain_weights, required_continuity_s, summarise

cells = st.one_of(st.just(float("nan")), st.integers(-5, 5).map(float))


@settings(max_examples=200, deadline=None)
@given(st.integers(4, 9).flatmap(lambda n: st.lists(st.lists(cells, min_size=3, max_size=3), min_size=n, max_size=n)))
def test_the_median_of_the_others_is_what_leaving_each_out_gives(rows):
    values = np.array(rows)
    found = others_median(values)
    for row in range(len(values)):
        for point in range(3):
            others = np.delete(values[:, point], row)
            others = others[np.isfinite(others)]
            wanted = np.median(others) if len(others) >= 3 else np.nan
            assert found[row, point] == pytest.approx(wanted, nan_ok=True)


def test_three_machines_are_too_few():
    assert np.isnan(others_median(np.ones((3, 5)))).all()


@pytest.mark.parametrize(
    ("hours", "period_s", "wanted_s"),
    [
        (1, 1, 240),  # an hour: four minutes
        (24, 60, 240),  # four samples of a minute
        (140 / 3600, 0.5, 15),  # two minutes: an eighth, not below fifteen seconds
        (0.25, 15, 120),  # a quarter of an hour, eight samples of 15 s
        (1, 300, 1800),  # five minutes between samples: four of them, on the ladder
    ],
)
def test_required_continuity_is_a_time_not_a_count(hours, period_s, wanted_s):
    assert required_continuity_s(hours * 3600, period_s) == wanted_s


@pytest.mark.parametrize("period_s", [0.5, 1, 15, 60])
def test_windows_of_one_job_last_equally_long_at_any_sampling(period_s):
    windows = cut(round(7200 / period_s), period_s)
    assert windows.lengths_s[:3] == (240.0, 480.0, 960.0)
    assert windows.spans[0] * 4 * windows.bin_s == pytest.approx(240)


def test_a_bin_says_level_roughness_gaps_and_repeats():
    level, rough, missing, repeats = summarise(np.array([[1.0, 3.0, 1.0, 3.0, 7.0, 7.0, np.nan, 7.0]]), 4, plain_weights())
    assert level.tolist() == [[2.0, 7.0]]
    assert rough[0].tolist() == [2.0, 2.0]  # steps 2, 2, 2; then 4 and 0
    assert missing[0].tolist() == [0.0, 0.25]
    assert repeats[0].tolist() == [0.0, 0.25]


def test_the_floor_follows_the_metric_s_size_and_unit():
    assert floor_of(np.full((4, 9), 1000.0), None) == pytest.approx(3.0)
    assert floor_of(np.full((4, 9), 50.0), "pct") == 1.0
    assert floor_of(np.zeros((4, 9)), None) == 0.0
