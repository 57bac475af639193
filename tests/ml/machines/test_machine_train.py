"""Training: healthy jobs only, held-out thresholds, equal bytes, refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from ml.machines.embedding import MlpEmbedding, PcaEmbedding
from ml.machines.harvest import harvest_job
from ml.machines.model import from_json
from ml.machines.order import metric_order
from ml.machines.series import Series
from ml.machines.train import Wanted, fit_metric


def harvests(n_jobs=6, n_machines=16, n_points=7200, bad_job=None):
    found = []
    for number in range(n_jobs):
        draw = np.random.default_rng(number)
        values = 100 + draw.normal(0, 1, (n_machines, 1)) + draw.normal(0, 5, (n_machines, n_points))
        if number == bad_job:
            values[3, 1000:5000] += 100
        own = [Series(f"n{i}", None, "m", "W", 0, 1.0, row) for i, row in enumerate(values)]
        found += [h for each, _ in harvest_job(f"job-{number}", own, {}, "n0", seed=1) for h in each]
    return found


@pytest.mark.parametrize("estimator", [PcaEmbedding(), MlpEmbedding(max_iter=20)], ids=["pca", "auto-encoder"])
def test_embeddings_are_scikit_learn_estimators(estimator):
    check_estimator(estimator)


@pytest.mark.parametrize("estimator", [PcaEmbedding(2), MlpEmbedding(2, max_iter=400)], ids=["pca", "auto-encoder"])
def test_an_embedding_takes_noise_away_and_odd_windows_score_lower(estimator):
    draw = np.random.default_rng(0)
    truth = draw.normal(0, 3, (600, 1)) * np.ones(8)
    noisy = truth + draw.normal(0, 1, truth.shape)
    estimator.fit(noisy)
    assert np.mean((estimator.denoise(noisy) - truth) ** 2) < np.mean((noisy - truth) ** 2)
    assert estimator.score_samples(np.full((1, 8), 12.0)) < np.median(estimator.score_samples(noisy))


def test_the_pca_filter_keeps_the_level():
    weights = PcaEmbedding(3).fit(np.random.default_rng(0).normal(size=(500, 1)) + np.zeros(8)).level_weights()
    assert weights.sum() == pytest.approx(1.0)


def test_equal_data_and_seed_give_equal_bytes_in_any_order():
    first = fit_metric(harvests(), Wanted(seed=1))
    again = fit_metric(list(reversed(harvests())), Wanted(seed=1))
    assert first.to_json() == again.to_json()
    assert first.model_id == again.model_id


def test_thresholds_come_from_jobs_that_did_not_train():
    model = fit_metric(harvests(), Wanted())
    assert model.method == "calibrated"
    assert not set(model.training_jobs) & set(model.calibration_jobs)
    assert set(model.training_jobs) | set(model.calibration_jobs) == {f"job-{n}" for n in range(6)}


def test_a_successful_job_with_an_odd_machine_is_not_learnt_from():
    model = fit_metric(harvests(bad_job=2), Wanted())
    assert model.excluded_jobs == ("job-2",)
    without = fit_metric([h for h in harvests() if h.job_id != "job-2"], Wanted())
    assert model.thresholds == without.thresholds


def test_machines_that_stand_out_in_most_healthy_jobs_are_usual():
    odd = [h for number in range(4) for h in harvests(bad_job=number) if h.job_id == f"job-{number}"]
    plain = [h for h in harvests() if h.job_id in ("job-4", "job-5")]
    model = fit_metric(odd + plain, Wanted())
    assert model.excluded_jobs == ()
    assert model.thresholds["level|240"] > 12  # what was seen is allowed for


def test_few_healthy_jobs_keep_the_default_thresholds_and_say_so():
    model = fit_metric(harvests(n_jobs=2, n_machines=4, n_points=600), Wanted())
    assert model.method == "default_thresholds"
    assert min(value for key, value in model.thresholds.items() if key.startswith("level")) >= 6.0


def test_a_lower_wanted_rate_gives_higher_thresholds():
    rare = fit_metric(harvests(), Wanted(false_alarms_per_job_day=1 / 3000))
    often = fit_metric(harvests(), Wanted(false_alarms_per_job_day=10))
    assert all(rare.thresholds[key] >= often.thresholds[key] for key in rare.thresholds)
    assert any(rare.thresholds[key] > often.thresholds[key] for key in rare.thresholds)


def test_a_model_comes_back_from_its_json():
    model = fit_metric(harvests(), Wanted())
    assert from_json(model.to_json(), model.model_id) == model


def test_a_changed_model_is_refused():
    model = fit_metric(harvests(), Wanted())
    raw = json.loads(model.to_json())
    raw["thresholds"]["level|240"] = 0.1
    with pytest.raises(ValueError, match="has hash"):
        from_json(json.dumps(raw), model.model_id)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 99}', '{"format": 1}', '{"format": 1, "metric": "m", "evil": 1}'])
def test_no_text_makes_a_model_by_accident(text):
    with pytest.raises(ValueError):
        from_json(text)


def test_the_registry_never_unpickles():
    source = "".join(path.read_text() for path in Path(__file__).parents[3].glob("ml/machines/*.py"))
    assert "pickle" not in source.replace("never pickle", "")
    assert "joblib" not in source


def test_the_metric_that_alone_tells_comes_first():
    draw = np.random.default_rng(0)
    faulty = np.arange(60) % 2 == 1
    table = draw.normal(3, 1, (60, 4))
    table[faulty, 2] += 8
    assert metric_order(["a", "b", "c", "d"], table, faulty)[0] == "c"


def test_without_failures_the_order_is_by_name():
    assert metric_order(["b", "a"], np.ones((4, 2)), np.zeros(4, dtype=bool)) == ["a", "b"]
