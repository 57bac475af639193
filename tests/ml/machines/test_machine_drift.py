"""Machines that are off in every job: habit, not incident."""

import numpy as np

from ml.machines.drift import JobDifference, drift_of
from ml.machines.score import score_job
from ml.machines.series import Series


def jobs(node, differences, hours=1.0):
    return [JobDifference(node, "clock", f"job-{i}", hours * 3600, d) for i, d in enumerate(differences)]


def score_of(node, found):
    return {d.node: d.score for d in drift_of(found)}.get(node)


def test_a_machine_off_in_every_job_scores_high_and_a_normal_one_low():
    found = [*jobs("slow", [-4, -5, -4, -6, -5, -4]), *jobs("fine", [0.3, -0.5, 0.2, 0.1, -0.4, 0.6])]
    assert score_of("slow", found) > 0.5
    assert score_of("fine", found) < 0.05


def test_one_bad_job_is_an_incident_and_no_habit():
    assert score_of("n", jobs("n", [9, 0, 0, 0, 0, 0])) < 0.1


def test_sides_that_change_are_no_drift():
    assert score_of("n", jobs("n", [5, -5, 5, -5, 5, -5])) < 0.2


def test_jobs_count_by_their_time():
    long_and_fine = [JobDifference("n", "clock", "long", 36000.0, 0.0), *jobs("n", [5, 5, 5], hours=0.1)]
    assert score_of("n", long_and_fine) < 0.05


def test_many_jobs_alone_make_nobody_suspect():
    assert score_of("busy", jobs("busy", [0.4] * 200)) < 0.05


def test_two_jobs_are_too_few_and_a_repeated_one_counts_once():
    assert drift_of(jobs("n", [9, 9])) == []
    assert drift_of([*jobs("n", [9, 9]), *jobs("n", [9, 9])]) == []


def test_a_machine_that_is_a_little_off_in_every_job_stands_out_over_weeks_and_in_no_single_job():
    # eight jobs on five or six of nine machines; n2 runs a percent low wherever it serves: below any single job's threshold
    draw = np.random.default_rng(0)
    habits, accused = [], set()
    for number in range(8):
        nodes = [f"n{i}" for i in sorted({2, *draw.permutation(9)[:5].tolist()})]
        hours = 1 + number % 3
        values = 500 + draw.normal(0, 2, (len(nodes), 1)) + draw.normal(0, 8, (len(nodes), 1200 * hours))
        values[nodes.index("n2")] -= 6
        found = score_job([Series(n, None, "clock", "MHz", 0, 3.0, own) for n, own in zip(nodes, values, strict=True)], {}, {})
        accused |= {row.node for row in found.rows if row.score >= 0.5}
        habits += [
            JobDifference(node, metric, f"job-{number}", 3600.0 * hours, difference)
            for node, own in found.usual.items()
            for metric, difference in own.items()
        ]
    assert accused == set()
    drifts = drift_of(habits)
    worst = max(drifts, key=lambda each: each.score)
    assert worst.node == "n2"
    assert worst.mean_difference < -1.5
    assert worst.same_side_share >= 0.75
    assert worst.score > 2 * sorted(each.score for each in drifts)[-2]
