"""Shifts of step time, silence, losses, and the onset chosen from them."""

import numpy as np
import pandas as pd
import pytest

from ml.log_diffs.course import (
    iteration_times,
    level_shift,
    loss_jump_findings,
    non_finite_findings,
    pauses,
    single_pause,
    slow_stretch,
    slowdown_findings,
)
from ml.log_diffs.onset import choose_onset, silence_findings
from ml.log_diffs.topology import Finding, Job


def noisy(levels, seed=3):
    """Step times around the given (level, steps) pairs, with the noise of shared machines: a sixth of the level."""
    random = np.random.default_rng(seed)
    return np.concatenate([random.lognormal(np.log(level), 0.16, n) for level, n in levels])


@pytest.mark.parametrize(
    ("levels", "onset"),
    [
        ([(0.2, 40), (0.4, 80)], 40),  # twice as slow
        ([(0.2, 30), (4.4, 37)], 30),  # twenty times
        ([(0.2, 60), (0.36, 10)], 60),  # late and short
    ],
)
def test_a_lasting_slowdown_is_found_within_five_steps(levels, onset):
    shift = level_shift(noisy(levels))
    assert shift is not None
    assert abs(shift.index - onset) <= 5


@pytest.mark.parametrize("levels", [[(0.2, 120)], [(0.4, 40), (0.2, 80)], [(0.2, 60), (0.24, 60)], [(0.2, 6), (0.4, 6)]])
def test_a_steady_faster_slightly_slower_or_short_run_has_no_shift(levels):
    assert level_shift(noisy(levels)) is None


@pytest.mark.parametrize("seed", range(20))
def test_healthy_noise_gives_no_finding(seed):
    times = pd.DataFrame({"step": range(120), "started_at": np.arange(120.0), "step_time_s": noisy([(0.2, 120)], seed)})
    assert slowdown_findings(times) == []


def test_a_slow_stretch_that_ends_again_is_found():
    begin, end, ratio = slow_stretch(noisy([(0.2, 40), (0.8, 30), (0.2, 60)]))
    assert abs(begin - 40) <= 5
    assert abs(end - 70) <= 6
    assert ratio == pytest.approx(4, rel=0.3)


def test_long_pauses_are_found_from_the_first_on():
    times = noisy([(0.1, 100)])
    times[50::10] += 3.0
    first, number, share = pauses(times)
    assert (first, number) == (50, 5)
    assert share > 0.5


def test_long_first_steps_are_the_warm_up_and_no_pause():
    times = noisy([(0.1, 60)])
    times[:3] = [9.0, 4.0, 2.0]
    assert pauses(times) is None


def test_a_printed_line_tells_of_the_steps_since_the_line_before():
    lines = pd.DataFrame({"rank": 0, "iteration": [5, 10, 15], "occurred_at": [1.0, 2.0, 5.0], "step_time_s": [0.2, 0.2, 0.6]})
    assert iteration_times(lines)["step"].tolist() == [5, 6, 11]


def test_step_times_that_are_not_printed_follow_from_the_stamps():
    lines = pd.DataFrame({"rank": 0, "iteration": [5, 10, 15], "occurred_at": [1.0, 2.0, 5.0], "step_time_s": [np.nan] * 3})
    assert iteration_times(lines)["step_time_s"].tolist() == pytest.approx([0.2, 0.6])


@pytest.mark.parametrize(
    ("losses", "found"), [([6.5, 6.4, float("nan")], 15), ([6.5, float("inf"), 6.3], 10), ([6.5, 6.4, 6.3], None)]
)
def test_the_first_loss_that_is_not_finite_is_told(losses, found):
    lines = pd.DataFrame(
        {"rank": 0, "iteration": [5, 10, 15], "occurred_at": [1.0, 2.0, 3.0], "loss": losses, "grad_norm": [0.3] * 3}
    )
    told = non_finite_findings(lines.assign(is_loss_printed=True, is_grad_norm_printed=True))
    assert [f.iteration for f in told] == ([] if found is None else [found])


def test_a_loss_that_is_not_printed_is_not_infinite():
    lines = pd.DataFrame({"rank": 0, "iteration": [5], "occurred_at": [1.0], "loss": [np.nan], "grad_norm": [np.nan]})
    assert non_finite_findings(lines.assign(is_loss_printed=False, is_grad_norm_printed=False)) == []


def test_a_loss_jump_of_five_times_is_told():
    lines = pd.DataFrame({"iteration": range(12), "loss": [2.0] * 8 + [11.0] + [2.0] * 3})
    assert [f.iteration for f in loss_jump_findings(lines)] == [8]
    assert loss_jump_findings(lines.assign(loss=2.0)) == []


JOB = Job("j", "FAILED", ended_at=200.0)


@pytest.mark.parametrize(
    ("progress_at", "failed_at", "pace", "is_hang"),
    [
        (100.0, 125.0, 0.2, True),
        (100.0, 101.0, 0.2, False),  # a crash at once
        (100.0, 125.0, 10.0, False),  # steps of ten seconds: this is no silence
        (100.0, None, 0.2, True),  # nothing failed, the job was just ended
        (100.0, 100.0 + 365 * 86_400, 0.2, False),  # a stamp in the wrong year is no silence
        (None, 125.0, 0.2, False),
    ],
)
def test_silence_is_long_against_the_clock_and_against_the_step(progress_at, failed_at, pace, is_hang):
    assert bool(silence_findings(JOB, progress_at, failed_at, pace, 60)) is is_hang


def finding(kind, iteration=None, at=None, **more):
    return Finding("operations", "temporal", kind, kind, 0.9, iteration=iteration, at=at, **more)


@pytest.mark.parametrize(
    ("findings", "iteration", "method"),
    [
        ([], 60, "last_progress"),
        ([finding("step_time_shift", 41, 10.0)], 41, "step_time_shift"),
        ([finding("operation_left_out", 44), finding("loss_nonfinite", 50, 5.0)], 44, "operation_left_out"),
    ],
)
def test_the_onset_is_the_earliest_departure_else_the_last_progress(findings, iteration, method):
    onset = choose_onset(findings, 90.0, 60, 100.0)
    assert (onset.iteration, onset.method) == (iteration, method)


def test_before_the_first_step_the_onset_is_the_failure_and_has_no_iteration():
    onset = choose_onset([finding("rank_exception", None, 70.0, phase="load", ranks=(1,))], None, None, 70.0)
    assert (onset.iteration, onset.phase, onset.started_at) == (None, "load", 70.0)


def test_one_long_pause_in_a_steady_run_is_found_and_a_slow_step_is_none():
    times = noisy([(0.1, 100)])
    times[60] = 8.0
    assert single_pause(times) == 60
    times[60] = 0.7
    assert single_pause(times) is None
