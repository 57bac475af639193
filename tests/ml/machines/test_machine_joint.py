"""What a machine's other metrics let expect: found where a metric alone is silent, and never invented."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from ml.machines.harvest import harvest_job, harvest_unexplained
from ml.machines.joint import CLIP, LAGS, Companion, features, fit_companion, sample_of, unexplained
from ml.machines.levels import Levels, by_role
from ml.machines.model import from_json
from ml.machines.score import score_job
from ml.machines.series import Series
from ml.machines.train import Wanted, fit_metric

PERIOD_S, N_MACHINES, N_POINTS = 60.0, 16, 480
LEVELS = {"power": (400.0, 60.0), "ipc": (1.5, -0.4), "traffic": (60.0, 12.0)}


def job(seed):
    """A sample a minute; each machine pauses now and then at a time of its own, which all of its metrics show."""
    draw = np.random.default_rng(seed)
    pauses = (draw.random((N_MACHINES, N_POINTS)) < 0.15).astype(float)
    lasting = np.maximum(np.maximum(pauses, np.roll(pauses, 1, 1)), np.roll(pauses, 2, 1))
    return {
        name: level - depth * lasting + 0.03 * abs(depth) * draw.normal(size=lasting.shape)
        for name, (level, depth) in LEVELS.items()
    }


def series(metrics):
    return [
        Series(f"n{row:02d}", None, name, None, 0, PERIOD_S, own)
        for name, values in metrics.items()
        for row, own in enumerate(values)
    ]


@pytest.fixture(scope="module")
def trained():
    """Models with and without companions: one job to learn from, one to calibrate on."""
    pairs = [harvest_job(f"job-{n}", series(job(n)), {}, None, 0) for n in range(2)]
    levels = [[each for _, each in pair] for pair in pairs]
    samples = [sample_of(each, 4000, np.random.default_rng(0)) for each in by_role(levels[0])]
    companions = {name: fit_companion(name, samples, 0) for name in LEVELS}
    harvests = [h for pair in pairs for own, _ in pair for h in own]
    rest = harvest_unexplained("job-1", by_role(levels[1])[0], companions, None, 0)
    wanted = Wanted(n_metrics=3, calibration_jobs=frozenset({"job-1"}))

    def models(harvests, companions):
        return {m: fit_metric([h for h in harvests if h.metric == m], wanted, companion=companions.get(m)) for m in LEVELS}

    return models([*harvests, *rest], companions), models(harvests, {})


def named(metrics, models):
    return {row.node for row in score_job(series(metrics), {}, models).rows if row.score >= 0.5}


def test_healthy_machines_are_not_named(trained):
    assert named(job(5), trained[0]) == set()


def test_five_minutes_of_a_value_that_pauses_take_too_are_found_by_the_other_metrics_only(trained):
    faulty = job(5)
    faulty["power"][3, 300:305] -= 45.0
    together, alone = trained
    assert named(faulty, alone) == set()
    assert named(faulty, together) == {"n03"}
    rows = [row for row in score_job(series(faulty), {}, together).rows if row.score >= 0.5]
    assert {row.aspect for row in rows} <= {"unexplained", "erratic"}
    assert "power" in {row.metric for row in rows}


@pytest.mark.parametrize("metric", list(LEVELS))
def test_all_machines_moving_in_one_metric_are_nobody_s_fault(trained, metric):
    moved = job(5)
    moved[metric][:, 300:330] += 2 * moved[metric].std()
    assert named(moved, trained[0]) == set()


def test_a_job_without_one_of_the_metrics_is_judged_without_companions(trained):
    faulty = job(5)
    faulty["power"][3, 300:305] -= 45.0
    del faulty["traffic"]
    assert named(faulty, trained[0]) == set()


def test_what_is_left_unexplained_is_the_network_written_plainly(trained):
    (together,) = by_role([each for _, each in harvest_job("job", series(job(5)), {}, None, 0)])
    companion = Companion.from_plain(trained[0]["power"].companion)
    made = features(together)
    n_bins, power = together.values.shape[2], together.metrics.index("power")
    columns = []
    for name in companion.inputs:
        number = together.metrics.index(name)
        as_it_is = made.padded[2 * number + 1, :, 1:-1]
        for form in (np.clip(made.away[number], -CLIP, CLIP), as_it_is):
            columns += [form[:, (np.arange(n_bins) + lag).clip(0, n_bins - 1)] for lag in LAGS]
    columns.append(np.broadcast_to(made.centres[power], columns[0].shape))
    x = np.clip(np.array(columns, dtype=np.float64).transpose(1, 2, 0), companion.lows, companion.highs)
    expected = np.maximum(x @ np.array(companion.hidden) + companion.hidden_bias, 0) @ np.array(companion.out) + companion.out_bias
    rest = (made.away[power] - expected) * made.scales[power]
    is_known = (made.centres[power] >= companion.lows[-1]) & (made.centres[power] <= companion.highs[-1])
    found = unexplained(together, made, "power", companion)
    course = np.sort(together.values[power].astype(np.float64), axis=0)[(N_MACHINES - 1) // 2]
    assert found.rest == pytest.approx(np.where(is_known, rest, 0.0) + course, abs=1e-3)


def test_equal_samples_and_seed_give_an_equal_companion():
    levels = [each for _, each in harvest_job("job", series(job(0)), {}, None, 0)]
    samples = [sample_of(each, 3000, np.random.default_rng(1)) for each in by_role(levels)]
    assert fit_companion("power", samples, 3) == fit_companion("power", samples, 3)


def test_too_few_healthy_places_give_none():
    levels = [each for _, each in harvest_job("job", series(job(0)), {}, None, 0)]
    samples = [sample_of(each, 300, np.random.default_rng(1)) for each in by_role(levels)]
    assert fit_companion("power", samples, 3) is None


def test_a_model_with_its_companion_comes_back_from_its_json(trained):
    model = trained[0]["power"]
    again = from_json(model.to_json(), model.model_id)
    assert again.companion == model.companion
    assert Companion.from_plain(again.companion).inputs == ("ipc", "traffic")


@pytest.mark.parametrize(
    "change",
    [{"out": [1.0]}, {"hidden": [[0.0]]}, {"lows": []}, {"inputs": ["a"]}, {"hidden": 3}, {"out_bias": {}}],
    ids=["output layer", "hidden layer", "bounds", "inputs", "no array", "no number"],
)
def test_a_companion_that_does_not_fit_itself_is_refused(trained, change):
    model = trained[0]["power"]
    hostile = replace(model, companion={**model.companion, **change})
    with pytest.raises(ValueError, match=r"companion|fields"):
        from_json(hostile.to_json())


@pytest.mark.parametrize(
    "change",
    [{"thresholds": {"level|240": -1.0}}, {"thresholds": {"level|240": "6"}}, {"thresholds": []}, {"weights": [1.0]}, {"offsets": {"n": None}}],
)  # fmt: skip
def test_a_model_without_proper_numbers_is_refused(trained, change):
    raw = {**json.loads(trained[0]["power"].to_json()), **change}
    with pytest.raises(ValueError):
        from_json(json.dumps(raw))


def test_a_model_nested_beyond_reason_is_refused():
    with pytest.raises(ValueError, match="no JSON"):
        from_json("[" * 100_000)


def test_levels_travel_as_bytes():
    level = Levels("m", "W", "trainer", ("a", "b"), 5, 30.0, (240.0,), 0.5, np.array([[1.0, np.nan], [2.0, 3.0]], dtype=np.float32))
    again = Levels.from_plain(*level.to_plain())
    assert {**asdict(again), "values": 0} == {**asdict(level), "values": 0}
    assert again.values == pytest.approx(level.values, nan_ok=True)


def test_metrics_of_different_sampling_meet_on_the_wider_bins():
    nodes = tuple(f"n{i}" for i in range(5))
    wide = [Levels(name, None, "", nodes, 0, 60.0, (240.0,), 1.0, np.ones((5, 10), dtype=np.float32)) for name in ("a", "b")]
    narrow = Levels("c", None, "", nodes, 60_000_000, 30.0, (240.0,), 1.0, np.tile(np.arange(18, dtype=np.float32), (5, 1)))
    (job_together,) = by_role([*wide, narrow])
    assert job_together.values.shape == (3, 5, 10)
    # a minute late: nothing in the first bin, then two narrow bins each
    assert job_together.values[2, 0].tolist() == pytest.approx(
        [np.nan, 0.5, 2.5, 4.5, 6.5, 8.5, 10.5, 12.5, 14.5, 16.5], nan_ok=True
    )
