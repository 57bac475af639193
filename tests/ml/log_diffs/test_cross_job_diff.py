"""A job's templates against several baselines: new, missing, changed rates, odd phases."""

import numpy as np
import pandas as pd
import pytest

from ml.log_diffs.cross_job import grouped_q_values, job_diff, phase_findings, pooled, q_values, rate_p_values

HOUR = {"hours": 8.0, "ranks": 8.0, "iterations": 100.0}
NORMAL = {"banner": 8, "progress": 100, "heartbeat": 480}


def changes(counts, exposures, baselines):
    diff = job_diff(counts, exposures, baselines)
    return {r.template_id: r.change for r in diff.itertuples() if r.change != "same"}


def test_identical_logs_give_nothing():
    assert changes(NORMAL, HOUR, [(NORMAL, HOUR)] * 3) == {}


def test_half_a_run_with_half_of_the_lines_gives_nothing():
    # banners count by rank, progress by iteration, heartbeats by hour: none has changed in its own way of counting
    half = {"banner": 8, "progress": 50, "heartbeat": 240}
    assert changes(half, {"hours": 4.0, "ranks": 8.0, "iterations": 50.0}, [(NORMAL, HOUR)] * 3) == {}


def test_a_run_on_twice_the_ranks_gives_nothing():
    twice = {"banner": 16, "progress": 100, "heartbeat": 960}
    assert changes(twice, {"hours": 16.0, "ranks": 16.0, "iterations": 100.0}, [(NORMAL, HOUR)] * 3) == {}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({**NORMAL, "nccl error": 3}, {"nccl error": "new"}),
        ({"banner": 8, "progress": 100}, {"heartbeat": "missing"}),
        ({**NORMAL, "heartbeat": 4800}, {"heartbeat": "more"}),
        ({**NORMAL, "heartbeat": 48}, {"heartbeat": "fewer"}),
        ({**NORMAL, "banner": 9}, {}),  # one line more is no change
    ],
)
def test_what_differs_is_new_missing_more_or_fewer(counts, expected):
    assert changes(counts, HOUR, [(NORMAL, HOUR)] * 3) == expected


def test_a_template_that_one_of_three_baselines_lacks_is_not_missing():
    baselines = [(NORMAL, HOUR), (NORMAL, HOUR), ({"banner": 8, "progress": 100}, HOUR)]
    assert "heartbeat" not in changes({"banner": 8, "progress": 100}, HOUR, baselines)


def test_one_baseline_is_no_ground_for_missing():
    assert changes({"banner": 8, "progress": 100}, HOUR, [(NORMAL, HOUR)]) == {}


def test_a_rate_within_the_range_of_the_baselines_has_not_changed():
    # baselines themselves range from 100 to 900 retries an hour
    baselines = [({"retry": n}, HOUR) for n in (100, 500, 900)]
    assert changes({"retry": 1200}, HOUR, baselines) == {}


def test_the_rate_test_is_two_sided_exact_and_symmetric():
    p = rate_p_values(np.array([10.0, 0.0, 30.0, 5.0]), np.ones(4), np.array([10.0, 10.0, 10.0, 0.0]), np.ones(4))
    assert p[0] == pytest.approx(1.0)  # equal rates
    assert p[1] == pytest.approx(0.5**10, rel=0.01)  # ten to none: mid-p of the binomial tail, both sides
    assert p[2] < 0.01
    assert rate_p_values(np.array([10.0]), np.ones(1), np.array([30.0]), np.ones(1)) == pytest.approx(p[2])


def test_no_exposure_is_no_evidence():
    assert rate_p_values(np.array([5.0]), np.zeros(1), np.array([9.0]), np.ones(1)) == [1.0]


def test_many_tests_are_corrected():
    # Benjamini and Hochberg: p * n / rank, made monotone from the largest down
    assert q_values(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert q_values(np.array([])).tolist() == []


BASE = [{"init": (0.0, 10.0), "load": (10.0, 30.0), "train": (30.0, 100.0)}] * 3


@pytest.mark.parametrize(
    ("phases", "kinds"),
    [
        ({"init": (0.0, 10.0), "load": (10.0, 30.0), "train": (30.0, 90.0)}, []),
        ({"init": (0.0, 10.0), "load": (10.0, 30.0)}, ["phase_absent"]),
        ({"init": (0.0, 10.0), "load": (10.0, 200.0), "train": (200.0, 270.0)}, ["phase_longer"]),
        ({"load": (0.0, 20.0), "init": (20.0, 30.0), "train": (30.0, 100.0)}, ["phase_order"]),
    ],
)
def test_phases_are_absent_longer_or_out_of_order(phases, kinds):
    assert [f.kind for f in phase_findings(phases, BASE)] == kinds


def test_one_baseline_is_no_measure_of_phases():
    assert phase_findings({}, BASE[:1]) == []


def test_corrections_of_many_jobs_at_once_are_those_of_each_alone():
    random = np.random.default_rng(5)
    groups, p = random.integers(0, 7, 200), random.random(200)
    together = grouped_q_values(groups, p)
    for group in range(7):
        assert together[groups == group] == pytest.approx(q_values(p[groups == group]))
    assert grouped_q_values(np.array([], int), np.array([])).tolist() == []


def test_sides_are_pooled_over_the_baselines_that_exist():
    # two jobs with two baselines and one; of the first job's baselines one lacks the template that the other prints
    sides = pd.DataFrame(
        [
            {"job_id": "j", "position": 0, "hours": 2.0, "ranks": 8.0, "iterations": 10.0},
            {"job_id": "k", "position": 0, "hours": 1.0, "ranks": 8.0, "iterations": 10.0},
            {"job_id": "j", "position": 1, "hours": 2.0, "ranks": 8.0, "iterations": 10.0},
            {"job_id": "j", "position": 2, "hours": 8.0, "ranks": 8.0, "iterations": 40.0},
            {"job_id": "k", "position": 1, "hours": 4.0, "ranks": 8.0, "iterations": 40.0},
        ]
    )
    found = pooled(sides, np.array([0, 2, 4]), np.array(["t", "t", "u"], object), np.array([6.0, 4.0, 3.0]))
    first, second = found.iloc[0], found.iloc[1]
    assert (first.job_id, first.template_id) == ("j", "t")
    assert (first.n_events, first.n_baseline_events, first.n_baselines, first.n_baselines_with) == (6.0, 4.0, 2, 1)
    assert (first.hours, first.base_hours, first.min_hours, first.max_hours, first.median_hours) == (2.0, 10.0, 0.0, 2.0, 1.0)
    assert (second.job_id, second.template_id, second.n_events, second.n_baseline_events) == ("k", "u", 0.0, 3.0)
    assert (second.n_baselines, second.base_hours, second.min_hours, second.median_hours) == (1, 4.0, 0.75, 0.75)
