"""The figures of `evaluate` from literal truths and documents."""

import pytest

from ml.fusion.evaluate import evaluate


def truth(job_id, **more):
    return {
        "job_id": job_id,
        "symptom": "crash",
        "symptom_also": [],
        "faulty_nodes": ["n1"],
        "faulty_ranks": [2],
        "spatial": "localised",
        "onset_iteration": 50,
        "indicating": ["SIGKILL"],
        **more,
    }


def said(symptom="crash", candidates=((0.9, "n1", [2]),), iteration=52, example="ended by SIGKILL"):
    return {
        "symptom": symptom,
        "candidates": [{"score": s, "nodes": [n], "ranks": r} for s, n, r in candidates],
        "onset": {"iteration": iteration},
        "templates": [{"template": "x", "example": example}],
    }


def figures(truths, documents):
    return {name: (f["numerator"], f["denominator"]) for name, f in evaluate(truths, documents).items() if name != "jobs"}


def test_all_right():
    assert figures([truth("a")], {"a": said()}) == {
        "symptom_accuracy": (1, 1), "node_top1": (1, 1), "node_top3": (1, 1), "rank_top1": (1, 1), "false_accusation_rate": (0, 0),
        "template_top5": (1, 1), "onset_within_5": (1, 1), "onset_median_error": (1, 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "figure", "value"),
    [
        (said(symptom="hang"), "symptom_accuracy", (0, 1)),
        (said(candidates=[(0.9, "n0", [0]), (0.4, "n1", [2])]), "node_top1", (0, 1)),
        (said(candidates=[(0.9, "n0", [0]), (0.4, "n1", [2])]), "node_top3", (1, 1)),
        (said(candidates=[(0.9, "n1", [3])]), "rank_top1", (0, 1)),
        (said(example="nothing"), "template_top5", (0, 1)),
        (said(iteration=56), "onset_within_5", (0, 1)),
        (said(iteration=55), "onset_within_5", (1, 1)),
        (None, "symptom_accuracy", (0, 1)),  # no diagnosis is no right answer
    ],
)
def test_each_figure_falls_by_its_own_mistake(document, figure, value):
    assert figures([truth("a")], {"a": document} if document else {})[figure] == value


def test_symptoms_that_are_equally_right_count():
    assert figures([truth("a", symptom_also=["hang"])], {"a": said(symptom="hang")})["symptom_accuracy"] == (1, 1)


@pytest.mark.parametrize(("score", "accused"), [(0.5, 1), (0.49, 0)])
def test_a_healthy_job_that_names_a_node_is_falsely_accused_from_one_half_on(score, accused):
    healthy = truth("h", symptom="none", spatial="none", faulty_nodes=[], faulty_ranks=[], onset_iteration=None, indicating=[])
    found = figures([healthy], {"h": said("none", [(score, "n1", [])])})
    assert found["false_accusation_rate"] == (accused, 1)
    assert found["node_top1"] == found["template_top5"] == found["onset_within_5"] == (0, 0)


def test_what_is_null_in_the_truth_is_not_scored():
    vague = truth("v", spatial=None, onset_iteration=None, indicating=None)
    found = figures([vague], {"v": said()})
    assert found["node_top1"] == found["false_accusation_rate"] == found["onset_within_5"] == found["template_top5"] == (0, 0)


def test_the_median_error_is_over_jobs_with_an_onset():
    rows = evaluate(
        [truth("a"), truth("b"), truth("c")], {"a": said(iteration=50), "b": said(iteration=53), "c": said(iteration=60)}
    )
    assert rows["onset_median_error"] == {"value": 3.0, "numerator": 3, "denominator": 3}
