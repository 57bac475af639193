"""Which setting separates failed from successful jobs, with counts, odds and correction."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import fisher_exact

from ml.similarity.separators import odds, separate, statement


def test_the_planted_setting_comes_first_with_its_counts_and_says_it_is_a_hint() -> None:
    keys = ["packages.nccl", "packages.nccl", "env.A", "env.A"]
    values = ["2.30", "2.29", "0", "1"]
    found = separate(keys, values, [12, 2, 7, 7], [3, 77, 41, 39], 14, 80)
    assert [(s.key, s.value, s.n_group_with, s.n_others_with, s.n_keys) for s in found] == [("packages.nccl", "2.30", 12, 3, 2)]
    assert statement(found[0], "failed").startswith("a hint, not a cause: packages.nccl = ")
    assert found[0].p_adjusted < 1e-6


def test_p_agrees_with_scipy_where_the_tables_are_balanced() -> None:
    # Twice the smaller tail equals scipy's two-sided p when both sides have as many jobs.
    found = separate(["k", "k"], ["a", "b"], [9, 1], [1, 9], 10, 10)
    assert found[0].p_value == pytest.approx(fisher_exact([[9, 1], [1, 9]]).pvalue)


def test_noise_over_many_keys_separates_nothing() -> None:
    random = np.random.default_rng(8)
    keys = [f"k{n}" for n in range(500) for _ in range(2)]
    values = ["0", "1"] * 500
    one = random.binomial(20, 0.5, 500)
    other = random.binomial(60, 0.5, 500)
    inside = np.column_stack([20 - one, one]).ravel().tolist()
    outside = np.column_stack([60 - other, other]).ravel().tolist()
    assert separate(keys, values, inside, outside, 20, 60) == []


def test_a_key_with_as_many_values_as_jobs_separates_nothing() -> None:
    n = 10
    keys, values = ["run"] * (2 * n), [str(k) for k in range(2 * n)]
    assert separate(keys, values, [1] * n + [0] * n, [0] * n + [1] * n, n, n) == []


@pytest.mark.parametrize(("n_group", "n_others"), [(2, 50), (50, 2)])
def test_fewer_than_three_jobs_on_a_side_say_nothing(n_group: int, n_others: int) -> None:
    assert separate(["k"], ["a"], [n_group], [0], n_group, n_others) == []


def test_what_all_jobs_share_is_not_tried() -> None:
    found = separate(["same", "k"], ["x", "a"], [10, 10], [10, 0], 10, 10)
    assert [(s.key, s.n_keys) for s in found] == [("k", 1)]


def test_the_interval_holds_the_ratio_and_narrows_with_more_jobs() -> None:
    few, many = odds(6, 10, 3, 10), odds(600, 1000, 300, 1000)
    assert few[1] < few[0] < few[2]
    assert many[2] / many[1] < few[2] / few[1]
    assert many[0] == pytest.approx(600 * 700 / (400 * 300), rel=0.01)
