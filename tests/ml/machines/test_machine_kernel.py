"""The closed form and the fused pass against all pairs; peers' ways of measuring."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from ml.machines.kernel import closed_scores, fused_scores, minder_scores, pairwise_scores
from ml.machines.rivals import distance_sums, fit_rivals, standing

BASIS = np.linalg.qr(np.vander(np.linspace(-1, 1, 8), 3, increasing=True))[0].T.astype(np.float32)


def job(n_machines=24, n_points=200, odd=7):
    values = np.random.default_rng(0).normal(100, 1, (n_machines, n_points)).astype(np.float32)
    values[odd, 50:150] += 6
    return values


def test_the_closed_form_equals_the_sum_over_all_pairs():
    embedded = np.random.default_rng(1).normal(size=(11, 5, 3))
    for window in range(5):
        pairs = cdist(embedded[:, window], embedded[:, window], "sqeuclidean").sum(axis=1)
        assert distance_sums(embedded)[:, window] == pytest.approx(pairs)


@pytest.mark.parametrize("fast", ["closed", "fused"])
def test_fast_ways_give_the_pairwise_scores(fast):
    values = job()
    top, peak = pairwise_scores(values.astype(np.float64), 8, 1, BASIS.astype(np.float64))
    if fast == "closed":
        other_top, other_peak = closed_scores(values.astype(np.float64), 8, 1, BASIS.astype(np.float64))
    else:
        other_top, other_peak = fused_scores(np.ascontiguousarray(values.T), 8, 1, BASIS)
    assert (top == other_top).mean() > 0.99  # single precision may turn a tie
    assert other_peak == pytest.approx(peak, rel=0.01)


def test_squared_distances_find_the_machine_that_plain_ones_find():
    values = job()
    squared = fused_scores(np.ascontiguousarray(values.T), 8, 1, BASIS)[0][50:142]
    plain = minder_scores(values.astype(np.float64), 8, 1, BASIS.astype(np.float64))[0][50:142]
    assert abs((squared == 7).mean() - (plain == 7).mean()) <= 0.01


def test_every_peer_method_finds_a_plain_fault():
    healthy = np.random.default_rng(2).normal(100, 1, (16, 1200))
    faulty = np.random.default_rng(3).normal(100, 1, (16, 1200))
    faulty[5, 400:800] += 12
    for name, rival in fit_rivals([healthy], 8).items():
        score = rival(faulty, 8)
        assert score.shape == (16, 150)
        oddest = score[:, 55:95].mean(axis=1).argmax()
        assert oddest == 5, name


def test_another_machine_in_between_ends_the_continuity():
    score = np.array([[5.0, 5, 1, 5, 5, 5], [1, 1, 5, 1, 1, 1]])
    assert standing(score, 3)[0].tolist() == [0, 0, 0, 0, 0, 5]
