"""Ranges, groups, switches: the words of places."""

import pytest

from ml.log_diffs.topology import Job, Place, exact_groups, is_nearly_all, rank_ranges, shared_switch, where

PLACES = tuple(
    # two nodes a leaf switch, two ranks a node, tensor groups on a node, data groups across
    Place(
        rank,
        f"n{rank // 2}",
        rank % 2,
        switch=f"leaf{rank // 4}",
        groups={"tp": (rank // 2 * 2, rank // 2 * 2 + 1), "dp": tuple(range(rank % 2, 8, 2))},
    )
    for rank in range(8)
)
JOB = Job("j", "FAILED", nodes=("n0", "n1", "n2", "n3"), places=PLACES)


@pytest.mark.parametrize(("ranks", "text"), [([0, 1, 2, 3, 6], "0-3/6"), ([5], "5"), ([], ""), ([4, 2, 0], "0/2/4")])
def test_ranks_are_written_in_ranges(ranks, text):
    assert rank_ranges(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "groups"),
    [
        ([2, 3], [("tp", (2, 3))]),
        ([1, 3, 5, 7], [("dp", (1, 3, 5, 7))]),
        ([1, 3, 5], []),  # not the whole group
        ([4], []),  # one rank is no group
        (range(8), []),  # all ranks are no group
    ],
)
def test_a_group_is_named_when_it_holds_exactly_the_affected_ranks(ranks, groups):
    assert exact_groups(PLACES, ranks) == groups


@pytest.mark.parametrize(
    ("nodes", "switch"),
    [(["n0", "n1"], "leaf0"), (["n2", "n3"], "leaf1"), (["n1", "n2"], None), (["n0"], None), (["n0", "n1", "n2"], None)],
)
def test_a_switch_is_named_when_exactly_its_nodes_are_affected(nodes, switch):
    assert shared_switch(PLACES, nodes) == switch


def test_places_read_as_words():
    assert where(JOB, (5,), ()) == "rank 5 on n2"
    assert where(JOB, (4, 5), ("n2",)) == "ranks 4-5 on n2"
    assert where(JOB, (), ("n1",)) == "node n1"


@pytest.mark.parametrize(
    ("n", "of", "all_"), [(63, 64, True), (4, 5, True), (3, 4, True), (2, 4, False), (1, 2, False), (2, 2, True), (1, 8, False)]
)
def test_what_nearly_all_show_accuses_nobody(n, of, all_):
    assert is_nearly_all(n, of) is all_
