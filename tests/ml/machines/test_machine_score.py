"""Scores of a job: who stands out, who does not, and what is refused."""

import numpy as np
import pytest

from ml.machines.model import MachineModel, fallback
from ml.machines.score import score_job
from ml.machines.series import Series

PERIOD_S = 1.0
N_POINTS = 3600


def job(n_machines=8, seed=0, metric="power", unit="W", level=500.0, period_s=PERIOD_S, n_points=N_POINTS):
    """Values of a healthy job: a common course, small constant offsets, noise of 10."""
    draw = np.random.default_rng(seed)
    common = level + 50 * np.sin(np.arange(n_points) / 200)
    return common + draw.normal(0, 5, (n_machines, 1)) + draw.normal(0, 10, (n_machines, n_points))


def series(values, metric="power", unit="W", period_s=PERIOD_S, start_us=0, nodes=None):
    names = nodes or [f"n{i}" for i in range(len(values))]
    return [Series(n, None, metric, unit, start_us, period_s, own) for n, own in zip(names, values, strict=True)]


def named(scored):
    return named_of(scored.rows)


def named_of(rows):
    return {row.node for row in rows if row.score >= 0.5}


def test_healthy_machines_are_not_named():
    assert named(score_job(series(job()), {}, {})) == set()


def test_a_shifted_machine_is_named_with_its_window_and_its_peers_band():
    values = job()
    values[3, 1800:2400] += 60
    (row, *_) = score_job(series(values), {}, {}).rows
    assert (row.node, row.metric) == ("n3", "power")
    assert row.score > 0.5
    assert row.window_start_us / 1e6 == pytest.approx(1800, abs=60)
    assert row.window_end_us / 1e6 == pytest.approx(2400, abs=90)
    assert row.continuity_s >= 240
    assert row.peer_low < row.peer_high < row.value
    assert row.n_peers == 7


def test_a_minute_is_too_short_and_five_are_enough():
    short, long = job(), job()
    short[3, 1800:1860] += 60
    long[3, 1800:2100] += 60
    assert named(score_job(series(short), {}, {})) == set()
    assert named(score_job(series(long), {}, {})) == {"n3"}


@pytest.mark.parametrize("period_s", [0.5, 1.0, 15.0, 60.0])
def test_the_same_ten_minutes_are_found_at_any_sampling(period_s):
    n_points = round(4 * 3600 / period_s)
    values = job(n_points=n_points)
    start = round(7200 / period_s)
    values[2, start : start + round(600 / period_s)] += 80
    assert named(score_job(series(values, period_s=period_s), {}, {})) == {"n2"}


def test_all_moving_together_names_nobody():
    values = job()
    values[:, 1800:2400] += 300
    assert named(score_job(series(values), {}, {})) == set()


def test_two_machines_are_named_when_each_stands_out():
    values = job(n_machines=12)
    values[3, 1800:2400] += 60
    values[7, 1800:2400] -= 60
    assert named(score_job(series(values), {}, {})) == {"n3", "n7"}


def test_half_of_the_machines_moving_names_nobody():
    values = job()
    values[:4, 1800:2400] += 60
    scored = score_job(series(values), {}, {})
    assert named(scored) == set()


@pytest.mark.parametrize("n_machines", [1, 2, 3])
def test_fewer_than_three_peers_is_no_answer(n_machines):
    values = job(n_machines=n_machines)
    values[0, 1800:2400] += 500
    scored = score_job(series(values), {}, {})
    assert scored.rows == ()
    assert "too few to compare" in " ".join(scored.remarks)


def test_accelerators_are_compared_each_and_many_cores_as_one_machine():
    values = job(6, n_points=1200)
    odd = values + 80 * (np.arange(6) == 2)[:, None] * (np.arange(1200) > 400)

    def scored(n_devices):
        own = [
            Series(f"n{i}", f"{d}", "load", "pct", 0, PERIOD_S, (odd if d == 0 else values)[i])
            for i in range(6)
            for d in range(n_devices)
        ]
        return score_job(own, {}, {}).rows

    accelerators, cores = scored(2), scored(64)
    assert (accelerators[0].node, accelerators[0].device, accelerators[0].score >= 0.5) == ("n2", "0", True)
    assert {row.device for row in cores} == {None}
    assert named_of(cores) == set()  # one of 64 cores is no odd machine


def test_roles_are_compared_inside_themselves():
    # four machines of each of two pipeline stages; the stages differ by nature
    values = np.concatenate([job(4, seed=1), 3 * job(4, seed=2)])
    roles = {f"n{i}": f"trainer/{i // 4}" for i in range(8)}
    assert named(score_job(series(values), roles, {})) == set()
    values[5, 1800:2400] += 400
    assert named(score_job(series(values), roles, {})) == {"n5"}


def test_rank_0_s_host_has_thresholds_of_its_own():
    values = job(level=0.0)
    values[0, 600:3000] += 20
    plain = score_job(series(values), {}, {}).rows[0]
    first = next(row for row in score_job(series(values), {}, {}, "n0").rows if row.node == "n0")
    assert first.ratio == pytest.approx(plain.ratio / 2)


def test_a_machine_that_freezes_is_named():
    # frozen at a value that is quite usual: only its standing still is odd
    values = np.random.default_rng(0).normal(500, 10, (8, N_POINTS))
    values[4, 1800:2700] = 503.0
    (row, *_) = score_job(series(values), {}, {}).rows
    assert (row.node, row.score > 0.5) == ("n4", True)
    assert row.aspect in ("stuck", "roughness")


def test_a_machine_that_falls_silent_is_named_and_not_filled():
    values = job()
    values[4, 1800:2700] = np.nan
    (row, *_) = score_job(series(values), {}, {}).rows
    assert (row.node, row.aspect) == ("n4", "gaps")


def test_noise_is_named_as_roughness():
    values = job()
    values[4, 1800:2700] += np.random.default_rng(1).normal(0, 60, 900)
    rows = [row for row in score_job(series(values), {}, {}).rows if row.score >= 0.5]
    assert {(row.node, row.aspect) for row in rows} == {("n4", "roughness")}


def test_the_score_does_not_depend_on_the_number_of_machines():
    values = job(n_machines=10)
    values[3, 1800:2400] += 60
    twice = np.concatenate([values, values])
    nodes = [f"n{i}" for i in range(10)] + [f"copy{i}" for i in range(10)]
    once = score_job(series(values), {}, {}).rows[0]
    both = score_job(series(twice, nodes=nodes), {}, {}).rows[0]
    assert both.node in ("n3", "copy3")
    assert both.ratio == pytest.approx(once.ratio, rel=0.15)


def test_order_of_machines_does_not_change_a_score():
    values = job()
    values[3, 1800:2400] += 60
    forward = score_job(series(values), {}, {})
    backward = score_job(list(reversed(series(values))), {}, {})
    assert forward.rows == backward.rows


# --- bad input: an answer or a stated refusal ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [np.full((6, N_POINTS), 3.0), np.zeros((6, N_POINTS)), np.full((6, N_POINTS), np.nan)],
    ids=["constant", "zero", "all nulls"],
)
def test_metrics_without_information_name_nobody(values):
    assert named(score_job(series(values), {}, {})) == set()


@pytest.mark.parametrize("n_points", [0, 1, 3], ids=["no value", "one value", "three values"])
def test_a_job_too_short_for_any_window_is_no_answer_and_said(n_points):
    scored = score_job(series(job(n_points=n_points, period_s=60.0), period_s=60.0), {}, {})
    assert scored.rows == ()
    assert "points 60 s apart, too few to compare" in " ".join(scored.remarks)


def test_a_machine_that_appears_twice_is_used_once_and_said():
    values = job()
    doubled = [*series(values), Series("n2", None, "power", "W", 0, PERIOD_S, np.full(N_POINTS, np.nan))]
    scored = score_job(doubled, {}, {})
    assert [row.node for row in scored.rows].count("n2") == 1
    assert any("n2 appears twice" in remark for remark in scored.remarks)


def test_clocks_minutes_apart_are_moved_and_said():
    values = np.full((6, N_POINTS), np.nan)
    values[:, : N_POINTS - 400] = job(6, n_points=N_POINTS - 400, seed=3) + 400 * (np.arange(N_POINTS - 400) > 1500)
    late = values.copy()
    late[2] = np.nan
    late[2, 400:] = values[2, : N_POINTS - 400]
    scored = score_job(series(late), {}, {})
    assert named(scored) == set()
    assert any("n2: clock 400 s ahead" in remark for remark in scored.remarks)


def test_a_machine_in_another_unit_is_left_out_and_said():
    values = job()
    values[5] /= 1000  # kilowatts
    scored = score_job(series(values), {}, {})
    assert named(scored) == set()
    assert any("n5" in remark and "another unit" in remark for remark in scored.remarks)


def test_a_machine_with_another_unit_on_its_label_is_left_out_and_said():
    odd = [*series(job(7)), Series("n7", None, "power", "kW", 0, PERIOD_S, np.full(N_POINTS, 0.5))]
    scored = score_job(odd, {}, {})
    assert "n7" not in {row.node for row in scored.rows}
    assert any("n7" in remark for remark in scored.remarks)


def test_no_metrics_at_all_is_said():
    assert score_job([], {}, {}).remarks == ("no metric could be compared",)


# --- models ----------------------------------------------------------------------------------------------------------


def calibrated(**changes):
    facts = {**fallback("power", "W").__dict__, "method": "calibrated", "thresholds": {"level|240": 2.0}, **changes}
    return MachineModel(**facts)


def test_every_score_names_its_model():
    model = calibrated()
    assert {row.model_id for row in score_job(series(job()), {}, {"power": model}).rows} == {model.model_id}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unit": "kW"}, "trained on power in kW"),
        ({"metric": "clock"}, "a model of clock"),
        ({"libraries": {"numpy": "1.0", "scikit-learn": "0.1"}}, "trained with numpy 1.0"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_and_the_default_used(changes, reason):
    scored = score_job(series(job()), {}, {"power": calibrated(**changes)})
    assert any("refused" in remark and reason in remark for remark in scored.remarks)
    assert {row.method for row in scored.rows} == {"default_thresholds"}


def test_a_known_constant_offset_is_habit_and_no_incident():
    values = job()
    values[2] += 120
    plain = score_job(series(values), {}, {"power": calibrated(thresholds={"level|240": 5.0, "level|480": 5.0, "level|960": 5.0})})
    known = calibrated(thresholds={"level|240": 5.0, "level|480": 5.0, "level|960": 5.0}, offsets={"n2": 120 / 500})
    aware = score_job(series(values), {}, {"power": known})
    assert "n2" in named(plain)
    assert named(aware) == set()
    # it still counts as usual difference, which drift sums up over weeks
    assert aware.usual["n2"]["power"] > 5
