"""Slow collectives, latency matrices, and groups from the configuration."""

from __future__ import annotations

import numpy as np
import pytest

from ml.collectives.builder import EntriesBuilder
from ml.collectives.groups import groups_from_pg_config, smallest_group
from ml.collectives.latency import HotKind, hot_spots, latency_matrix
from ml.collectives.ranks import compressed, notation
from ml.collectives.verdict import Syndrome, judge


def timed(durations: dict[int, list[float]], group: str = "0 world") -> EntriesBuilder:
    builder = EntriesBuilder()
    for rank, values in durations.items():
        n = len(values)
        columns = {
            "group": [group] * n, "sequence": list(range(n)), "op": ["nccl:all_reduce"] * n, "state": ["completed"] * n,
            "shape": ["[[8]]"] * n, "dtype": [""] * n, "frame": [""] * n, "order": list(range(n)), "is_p2p": [False] * n,
            "created_us": list(range(1, n + 1)), "duration_ms": values,
        }  # fmt: skip
        builder.add(rank, columns, {group: tuple(durations)}, {})
    return builder


def test_the_rank_that_others_wait_for_is_in_its_collectives_for_the_shortest_time() -> None:
    found = judge(timed({0: [9.0] * 30, 1: [9.5] * 30, 2: [2.0] * 30, 3: [9.1] * 30}).entries())
    assert (found.faulty_ranks, found.syndrome) == ([2], Syndrome.NONCOMM_SLOW)


def test_ranks_that_take_turns_at_being_last_are_no_stragglers() -> None:
    turns = {r: [2.0 if n % 4 == r else 9.0 for n in range(40)] for r in range(4)}
    found = judge(timed(turns).entries())
    assert (found.faulty_ranks, found.syndrome) == ([], Syndrome.NONE)


def test_a_group_that_is_slow_as_a_whole_is_slow_in_communication() -> None:
    builder = EntriesBuilder()
    for number, slow in enumerate((1.0, 1.1, 0.9, 6.0)):
        ranks = [number * 4 + i for i in range(4)]
        builder.merge(timed({r: [slow + 0.01 * i] * 30 for i, r in enumerate(ranks)}, f"{number} DATA"))
    found = judge(builder.entries())
    assert (found.faulty_ranks, found.syndrome) == ([], Syndrome.COMM_SLOW)


@pytest.mark.parametrize(
    ("hot", "expected"),
    [
        ([(1, 3)], (HotKind.LINK, 1, 3)),
        ([(2, j) for j in range(5) if j != 2], (HotKind.SENDER, 2, None)),
        ([(i, 4) for i in range(5) if i != 4], (HotKind.RECEIVER, None, 4)),
    ],
    ids=["cell", "row", "column"],
)
def test_a_hot_cell_is_a_link_a_row_a_sender_a_column_a_receiver(hot: list, expected: tuple) -> None:
    cells = [(i, j, 5.0 if (i, j) in hot else 1.0) for i in range(5) for j in range(5) if i != j]
    sources, destinations, values = (np.array(side) for side in zip(*cells))
    first = hot_spots(*latency_matrix(sources, destinations, values.astype(float)))[0]
    assert (first.kind, first.source, first.destination) == expected
    assert first.ratio == pytest.approx(5.0)


def pipeline_matrix(hot: set[tuple[int, int]], factor: float, seed: int) -> tuple[list[int], np.ndarray]:
    """Receives of 16 ranks as jobs have them: neighbours and two strides only, 30 each, long-tailed around 2 ms."""
    rng = np.random.default_rng(seed)
    pairs = [(i, (i + stride) % 16) for i in range(16) for stride in (1, 2, 4)]
    sources, destinations = (np.repeat(side, 30) for side in zip(*pairs))
    values = 2.0 * rng.lognormal(0.0, 0.4, len(sources))
    slow = np.array([(int(s), int(d)) in hot for s, d in zip(sources, destinations)])
    return latency_matrix(sources, destinations, np.where(slow, factor * values, values))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("hot", "expected"),
    [
        ({(3, 5)}, (HotKind.LINK, 3, 5)),
        ({(6, 7), (6, 8), (6, 10)}, (HotKind.SENDER, 6, None)),
        ({(8, 9), (7, 9), (5, 9)}, (HotKind.RECEIVER, None, 9)),
        (set(), None),
    ],
    ids=["cell", "row", "column", "even"],
)
def test_hot_places_are_found_in_sparse_matrices_with_long_tails(
    hot: set[tuple[int, int]], expected: tuple | None, seed: int
) -> None:
    spots = hot_spots(*pipeline_matrix(hot, 4.0, seed))
    assert [(s.kind, s.source, s.destination) for s in spots] == ([expected] if expected else [])


def test_an_even_matrix_and_one_too_small_have_no_hot_spot() -> None:
    even = np.ones((4, 4))
    np.fill_diagonal(even, np.nan)
    assert hot_spots([0, 1, 2, 3], even) == []
    assert hot_spots([0, 1], np.array([[np.nan, 9.0], [1.0, np.nan]])) == []


def test_groups_of_the_configuration_become_each_ranks_parallel_groups() -> None:
    groups = [
        ("0 default_pg", [0, 1, 2, 3]), ("35 TENSOR_MODEL_PARALLEL_GROUP", [0, 1]), ("36 TENSOR_MODEL_PARALLEL_GROUP", [2, 3]),
        ("1 DATA_PARALLEL_GROUP_WITH_CP", [0, 2]), ("96 EXPERT_DATA_PARALLEL_GROUP", [0]), ("44 EMBEDDING_GROUP", [0, 3]),
    ]  # fmt: skip
    found = groups_from_pg_config(groups)
    assert found[0] == {"dp": [0, 2], "embedding": [0, 3], "tp": [0, 1]}
    assert found[3] == {"embedding": [0, 3], "tp": [2, 3]}


def test_the_smallest_group_with_all_outliers_is_found() -> None:
    groups = groups_from_pg_config([("TENSOR_PARALLEL", [4, 5]), ("MODEL_PARALLEL", [4, 5, 6, 7]), ("world", range(8))])
    assert smallest_group([4, 5], groups, 8) == ("tp", [4, 5])
    assert smallest_group([4, 7], groups, 8) == ("mp", [4, 5, 6, 7])
    assert smallest_group([0, 4], groups, 8) is None


def test_ranks_are_written_as_flame_writes_them() -> None:
    assert compressed([6, 0, 1, 2, 3, 4, 5, 8]) == "0-6/8"
    assert notation([0], [1, 2, 3]) == "@0|1-3"


def test_slow_receives_name_the_sender_behind_their_column_of_the_matrix() -> None:
    builder = EntriesBuilder()
    pairs = [(source, destination) for source in range(4) for destination in range(4) if source != destination]
    for rank in range(4):
        mine = [(s, d) for s, d in pairs if d == rank] * 3
        n = len(mine)
        columns = {
            "group": ["5 PIPELINE"] * n, "sequence": list(range(n)), "op": [f"nccl:recv {d}<-{s}" for s, d in mine],
            "state": ["completed"] * n, "shape": [""] * n, "dtype": [""] * n, "frame": [""] * n, "order": list(range(n)),
            "is_p2p": [True] * n, "created_us": [1] * n, "duration_ms": [9.0 if s == 2 else 1.0 for s, _ in mine],
        }  # fmt: skip
        builder.add(rank, columns, {"5 PIPELINE": (0, 1, 2, 3)}, {})
    found = judge(builder.entries())
    assert (found.faulty_ranks, found.syndrome) == ([2], Syndrome.COMM_SLOW)
    assert "what rank 2 sends takes 9.0 times as long" in found.suspects[0].statement
