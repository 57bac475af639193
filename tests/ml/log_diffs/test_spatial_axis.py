"""Which peer writes unlike the others, and who lacks what all others have."""

import numpy as np
import pytest

from ml.log_diffs.spatial import MIN_FOR_FOREST, compare_peers, distances, forest_scores


def peers(n, loud=None, columns=6, seed=7):
    """n peers that print six templates about equally often; the one at `loud` prints the third thirty times as often."""
    counts = np.random.default_rng(seed).poisson(10, size=(n, columns)).astype(float)
    if loud is not None:
        counts[loud, 2] = 300
    return counts


@pytest.mark.parametrize("n", [3, 4, 6, 8, 16, 64])
def test_one_deviating_peer_comes_first_with_the_template_that_separates_it(n):
    found = compare_peers(peers(n, loud=2), [True] * 6)
    # with few peers a column that all print is global; only what not nearly all print may accuse
    assert found.outliers == ()
    news = peers(n, loud=2)
    news[:, 2] = 0
    news[2, 2] = 30
    first = compare_peers(news, [True] * 6).outliers[0]
    assert (first.index, first.separating) == (2, (2,))
    assert first.score > 0.7
    assert (first.forest_score is None) == (n < MIN_FOR_FOREST)


@pytest.mark.parametrize("n", [3, 4, 8, 64])
def test_alike_peers_accuse_nobody(n):
    assert compare_peers(peers(n), [True] * 6).outliers == ()


@pytest.mark.parametrize("n", [4, 8, 64])
def test_a_template_on_all_peers_is_global_and_accuses_nobody(n):
    counts = np.zeros((n, 1))
    counts[:, 0] = 1
    found = compare_peers(counts, [True])
    assert (found.outliers, found.global_columns, found.missing) == ((), (0,), ())


def test_63_of_64_time_out_and_the_silent_one_is_missing():
    counts = np.ones((64, 1))
    counts[17, 0] = 0
    found = compare_peers(counts, [True])
    assert found.outliers == ()
    assert found.missing == ((17, (0,)),)


def test_normal_templates_never_accuse():
    counts = peers(8)
    counts[:, 4] = 0
    counts[0, 4] = 500  # the spokesman's own line, normal for the fleet
    assert compare_peers(counts, [True, True, True, True, False, True]).outliers == ()


def test_half_of_the_peers_being_odd_is_no_oddity():
    counts = np.zeros((8, 2))
    counts[:4, 0] = 50
    assert compare_peers(counts, [True, True]).outliers == ()


def test_the_forest_agrees_and_does_not_vary():
    counts = peers(16)
    counts[:, 3] = 0
    counts[5, 3] = 40
    assert int(np.argmax(forest_scores(counts))) == 5
    assert int(np.argmax(distances(counts))) == 5
    assert forest_scores(counts).tolist() == forest_scores(counts).tolist()
