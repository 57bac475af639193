"""Failures as weighted words: how alike two are, what both show, who belongs together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml.similarity.families import assign, common_words, family_id, ranked
from ml.similarity.fingerprint import exceptions, most_alike, pack, rarity, scores, shared_words, token, weight_of

Words = dict[str, float]

OOM = {"symptom:oom": 3.0, "alert:oom": 1.5, "template:a": 1.0, "phase:train": 1.0}
OOM_LATER = {**OOM, "template:b": 0.5}
HANG = {"symptom:hang": 3.0, "collective:all_reduce": 1.5, "template:a": 1.0}


def packed(jobs: list[Words]) -> tuple[np.ndarray, np.ndarray]:
    lists = [pack(job.items())[0] for job in jobs]
    return np.array([number for tokens in lists for number in tokens], dtype=np.int64), np.cumsum([0, *map(len, lists)])


def alike(one: Words, other: Words) -> float:
    return float(scores(np.array(pack(one.items())[0]), *packed([other]))[0])


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        (OOM, OOM, 1.0),
        (OOM, {"symptom:hang": 3.0}, 0.0),
        (OOM, OOM_LATER, 6.5 / 7.0),
        (OOM, HANG, 1.0 / (6.5 + 5.5 - 1.0)),  # only template a
        (OOM, {**OOM, "symptom:oom": 1.5}, 5.0 / 6.5),  # weighed differently: smaller over larger
        (OOM, {}, 0.0),
        ({}, OOM, 0.0),
    ],
)
def test_the_score_is_the_weighted_share_of_what_both_show(one: Words, other: Words, score: float) -> None:
    assert alike(one, other) == pytest.approx(score, abs=0.01)


@given(
    st.dictionaries(st.text(max_size=8), st.floats(0.01, 20), max_size=20),
    st.dictionaries(st.text(max_size=8), st.floats(0.01, 20), max_size=20),
)
def test_likeness_is_symmetric_and_between_nothing_and_one(one: Words, other: Words) -> None:
    there, back = alike(one, other), alike(other, one)
    assert there == pytest.approx(back)
    assert 0 <= there <= 1 + 1e-9


def test_a_token_carries_its_weight() -> None:
    assert weight_of(np.array([token("x", 2.5)]))[0] == 2.5
    assert token("x", 1e9) > 0


def test_a_word_that_all_failures_show_weighs_least_and_one_that_none_else_shows_cannot_tell() -> None:
    assert rarity(100, 100) < rarity(50, 100) < rarity(5, 100)
    assert rarity(1, 100) < rarity(2, 100)


def test_the_most_alike_come_first_and_ties_go_by_name() -> None:
    found = np.array([0.5, 0.9, 0.5, 0.1])
    assert [each.row for each in most_alike(found, ["d", "c", "a", "b"], 3, 0.25)] == [1, 2, 0]


def test_what_both_show_is_listed_by_weight() -> None:
    tokens, words = pack(OOM.items())
    assert shared_words(tokens, words, HANG | {"symptom:oom": 1.0}) == ["symptom:oom", "template:a"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("KeyError: 'targets'", ["KeyError"]),
        ("RuntimeError: x\nduring handling: torch.OutOfMemoryError", ["OutOfMemoryError"]),
        ("RuntimeError: shape", ["RuntimeError"]),
        ("UserWarning: old", []),
        ("ChildFailedError: train.py FAILED", []),  # any worker's end
        ("loss is nan", []),
    ],
)
def test_names_of_exceptions_are_found(text: str, names: list[str]) -> None:
    assert exceptions(text) == names


def families(jobs: list[Words], ended: list[int], names: list[str]) -> list[str]:
    tokens, offsets = packed(jobs)
    return assign(names, ended, tokens, offsets)


def test_alike_failures_are_one_family_and_the_first_founds_it() -> None:
    assert families([OOM_LATER, HANG, OOM], [3, 2, 1], ["c", "b", "a"]) == ["a", "b", "a"]


def test_the_order_of_rows_changes_no_family() -> None:
    random = np.random.default_rng(5)
    kinds = [OOM, HANG, {"symptom:crash": 3.0, "exception:KeyError": 3.0}]
    jobs = [{**kinds[n % 3], f"template:{random.integers(9)}": 0.4} for n in range(60)]
    names, ended = [f"job-{n:02d}" for n in range(60)], random.integers(0, 50, 60).tolist()
    first = dict(zip(names, families(jobs, ended, names), strict=True))
    order = random.permutation(60).tolist()
    again = families([jobs[n] for n in order], [ended[n] for n in order], [names[n] for n in order])
    assert dict(zip([names[n] for n in order], again, strict=True)) == first
    assert len(set(first.values())) == 3


def test_later_jobs_never_change_earlier_families() -> None:
    early = families([OOM, HANG], [1, 2], ["a", "b"])
    late = families([OOM, HANG, OOM_LATER, HANG], [1, 2, 3, 4], ["a", "b", "c", "d"])
    assert late[:2] == early


def test_a_chain_of_likeness_does_not_join_what_has_nothing_in_common() -> None:
    chain = [{f"template:{n + k}": 1.0 for k in range(3)} for n in range(0, 8)]
    found = families(chain, list(range(8)), list("abcdefgh"))
    assert found[0] != found[-1]


def test_a_family_is_named_by_its_first_job_and_lists_what_half_of_it_shows() -> None:
    assert family_id("job-1") == family_id("job-1") != family_id("job-2")
    assert common_words([["a", "b"], ["a"], ["a", "c"]]) == ["a"]
    assert ranked(["x", "y", "x", None, "a"]) == ["x", "a", "y"]
