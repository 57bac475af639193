"""The models behind machine scores have one name in the diagnosis."""

from jobs.diagnoses.assemble import case_of, models_of


def test_the_same_models_in_any_order_have_the_same_name():
    rows = [{"model_id": "b" * 16}, {"model_id": None}, {"model_id": "a" * 16}, {"model_id": "b" * 16}, {}]
    assert models_of(rows) == models_of(rows[::-1])
    assert len(models_of(rows) or "") == 16


def test_without_machine_scores_no_model_is_named():
    assert models_of([{"model_id": None}, {}]) is None
    assert "models" not in case_of({"job": {"job_id": "j", "state": "FAILED"}, "ranks": [], "findings": []}).versions
