"""Hand-made flight recorders: four to eight ranks, and whom the verdict must name.

A rank is written as a list of entries `(group, sequence, op, state)`; a trailing shape or dtype may differ.
"""

from __future__ import annotations

import pytest

from ml.collectives.builder import EntriesBuilder
from ml.collectives.verdict import Syndrome, Verdict, judge

WORLD = {"0 default_pg": (0, 1, 2, 3)}
TWO = {"1 TENSOR": (0, 1), "2 TENSOR": (2, 3), "3 DATA": (0, 2), "4 DATA": (1, 3)}


def verdict(
    ranks: dict[int, list[tuple]],
    groups: dict[str, tuple[int, ...]],
    status: dict[int, dict[str, tuple[int, int]]] | None = None,
) -> Verdict:
    builder = EntriesBuilder()
    for rank, entries in ranks.items():
        rows = [(*entry, *("[[8]]", "['Float']")[len(entry) - 4 :]) if len(entry) < 6 else entry for entry in entries]
        columns = {
            "group": [e[0] for e in rows], "sequence": [e[1] for e in rows], "op": [e[2] for e in rows],
            "state": [e[3] for e in rows], "shape": [e[4] for e in rows], "dtype": [e[5] for e in rows],
            "frame": ["step (train.py:9)"] * len(rows), "order": list(range(len(rows))),
            "is_p2p": [":send" in e[2] or ":recv" in e[2] for e in rows],
            "created_us": [1_000_000 + 1000 * i for i in range(len(rows))], "duration_ms": [float("nan")] * len(rows),
        }  # fmt: skip
        mine = {name: members for name, members in groups.items() if rank in members}
        builder.add(rank, columns, mine, (status or {}).get(rank, {}))
    return judge(builder.entries())


def done(group: str, sequence: int, op: str = "nccl:all_reduce", *rest: str) -> tuple:
    return (group, sequence, op, "completed", *rest)


def waits(group: str, sequence: int, op: str = "nccl:all_reduce", *rest: str) -> tuple:
    return (group, sequence, op, "scheduled", *rest)


W, T1, T2, D3, D4 = "0 default_pg", "1 TENSOR", "2 TENSOR", "3 DATA", "4 DATA"


def test_a_rank_that_never_enqueued_what_its_peers_wait_for_is_named() -> None:
    found = verdict({r: [done(W, 9), *([waits(W, 10)] if r != 2 else [])] for r in range(4)}, WORLD)
    assert found.faulty_ranks == [2]
    assert found.syndrome is Syndrome.NONCOMM_HANG
    first = found.collectives[0]
    assert (first.sequence, first.op, first.missing, first.present) == (10, "nccl:all_reduce", (2,), (0, 1, 3))
    assert first.frame == "step (train.py:9)"


def test_a_rank_without_a_dump_is_known_from_the_group_and_named() -> None:
    found = verdict({r: [done(W, 9), waits(W, 10)] for r in (0, 1, 3)}, WORLD)
    assert found.faulty_ranks == [2]
    assert found.undumped == (2,)
    assert found.collectives[0].undumped == (2,)


def test_a_rank_whose_buffer_is_empty_is_judged_by_its_progress() -> None:
    ranks = {r: [waits(W, 10)] if r != 1 else [] for r in range(4)}
    status = {r: {W: (10 if r != 1 else 9, 9)} for r in range(4)}
    found = verdict(ranks, WORLD, status)
    assert found.faulty_ranks == [1]


def test_a_rank_that_has_not_completed_what_its_peers_have_is_named() -> None:
    ranks = {r: [done(W, 10), waits(W, 11)] if r != 3 else [waits(W, 10), waits(W, 11)] for r in range(4)}
    found = verdict(ranks, WORLD)
    assert found.faulty_ranks == [3]
    assert [(m.rank, m.field) for m in found.collectives[0].mismatches] == [(3, "state")]


def test_when_everyone_is_in_the_same_collective_nobody_is_named() -> None:
    found = verdict({r: [done(W, 9), waits(W, 10)] for r in range(4)}, WORLD)
    assert found.faulty_ranks == []
    assert found.is_global
    assert found.syndrome is Syndrome.COMM_HANG


def test_blame_follows_the_chain_through_tensor_and_data_groups_to_its_end() -> None:
    # 3 never came to its tensor group: 2 waits for 3, 0 waits for 2 in the data group, 1 waits for 3.
    ranks = {
        0: [done(T1, 5), waits(D3, 7)],
        1: [done(T1, 5), waits(D4, 7)],
        2: [done(T2, 4), waits(T2, 5)],
        3: [done(T2, 4)],
    }
    found = verdict(ranks, TWO)
    assert found.faulty_ranks == [3]
    assert found.suspects[0].share == pytest.approx(1.0)


def test_pipeline_stages_pass_the_blame_on_by_their_sends_and_receives() -> None:
    pipe = {"5 PIPELINE": (0, 1, 2, 3)}
    ranks = {
        0: [waits("5 PIPELINE", 8, "nccl:recv 0<-1")],
        1: [waits("5 PIPELINE", 9, "nccl:recv 1<-2")],
        2: [waits("5 PIPELINE", 7, "nccl:recv 2<-3")],
        3: [done("5 PIPELINE", 6, "nccl:send 3->2")],
    }
    found = verdict(ranks, pipe)
    assert found.faulty_ranks == [3]
    assert found.suspects[0].share == pytest.approx(1.0)


def test_two_faults_at_once_are_both_named_before_anyone_else() -> None:
    groups = {"1 TENSOR": (0, 1, 2, 3), "2 TENSOR": (4, 5, 6, 7), "0 world": tuple(range(8))}
    ranks = {
        r: [done(name, 5), *([waits(name, 6)] if r not in (1, 6) else [])]
        for name, members in list(groups.items())[:2]
        for r in members
    }
    assert verdict(ranks, groups).faulty_ranks == [1, 6]


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("op", waits(W, 10, "nccl:broadcast")),
        ("sizes", waits(W, 10, "nccl:all_reduce", "[[16]]", "['Float']")),
        ("dtype", waits(W, 10, "nccl:all_reduce", "[[8]]", "['BFloat16']")),
    ],
)
def test_the_rank_that_disagrees_is_named_with_the_field(field: str, odd: tuple) -> None:
    found = verdict({r: [done(W, 9), odd if r == 1 else waits(W, 10)] for r in range(4)}, WORLD)
    assert found.faulty_ranks[0] == 1
    assert [(m.rank, m.field) for m in found.collectives[0].mismatches] == [(1, field)]


def test_uneven_all_to_all_is_no_mismatch() -> None:
    ranks = {r: [done(W, 9, "nccl:all_to_all", f"[[{100 + r}, 8]]", "['Float']")] for r in range(4)}
    found = verdict(ranks, WORLD)
    assert (found.faulty_ranks, found.collectives, found.syndrome) == ([], (), Syndrome.NONE)


def test_buffers_that_start_at_different_points_accuse_nobody_of_what_they_no_longer_hold() -> None:
    ranks = {r: [done(W, n) for n in range(5 + r, 20)] + ([waits(W, 20)] if r != 0 else []) for r in range(4)}
    found = verdict(ranks, WORLD)
    assert found.faulty_ranks == [0]
    assert [one.sequence for one in found.collectives] == [20]


def test_a_group_name_used_again_after_a_split_is_another_group() -> None:
    # "7 split" is {0, 1} on two ranks and {2, 3} on the others, with sequence numbers of their own.
    builder_groups = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    builder = EntriesBuilder()
    for rank, members in builder_groups.items():
        entries = [("7 split", 3, "completed")] if rank < 2 else [("7 split", 9, "scheduled" if rank == 2 else None)]
        entries = [e for e in entries if e[2]]
        columns = {
            "group": [e[0] for e in entries], "sequence": [e[1] for e in entries], "state": [e[2] for e in entries],
            "op": ["nccl:all_reduce"] * len(entries), "shape": [""] * len(entries), "dtype": [""] * len(entries),
            "frame": [""] * len(entries), "order": [0] * len(entries), "is_p2p": [False] * len(entries),
            "created_us": [1] * len(entries), "duration_ms": [float("nan")] * len(entries),
        }  # fmt: skip
        builder.add(rank, columns, {"7 split": members}, {})
    found = judge(builder.entries())
    assert [(one.group.ranks, one.sequence, one.missing) for one in found.collectives] == [((2, 3), 9, (3,))]
    assert found.faulty_ranks == [3]


@pytest.mark.parametrize("backend", ["nccl", "gloo", "xccl", "ncclx", "mpi"])
def test_every_back_end_is_matched(backend: str) -> None:
    op = f"{backend}:all_reduce"
    found = verdict({r: [done(W, 9, op), *([waits(W, 10, op)] if r != 2 else [])] for r in range(4)}, WORLD)
    assert found.faulty_ranks == [2]


def test_on_a_host_back_end_not_having_finished_is_weaker_evidence() -> None:
    def suspicion(backend: str) -> float:
        op = f"{backend}:all_reduce"
        ranks = {r: [done(W, 10, op), waits(W, 11, op)] if r != 3 else [waits(W, 10, op)] for r in range(4)}
        return verdict(ranks, WORLD).suspects[0].score

    assert suspicion("gloo") < 0.5 < suspicion("nccl")


def test_dumps_in_which_all_is_over_name_nobody() -> None:
    found = verdict({r: [done(W, n) for n in range(30)] for r in range(4)}, WORLD)
    assert (found.faulty_ranks, found.syndrome, found.collectives) == ([], Syndrome.NONE, ())


def test_the_smallest_open_sequence_of_a_group_comes_first() -> None:
    found = verdict({r: [done(W, 9), *([waits(W, 10), waits(W, 11)] if r != 2 else [])] for r in range(4)}, WORLD)
    assert [one.sequence for one in found.collectives] == [10, 11]


def test_many_lost_dumps_accuse_their_ranks_less() -> None:
    eight = {"0 world": tuple(range(8))}
    one_lost = verdict({r: [waits("0 world", 1)] for r in range(7)}, eight).suspects[0].score
    half_lost = verdict({r: [waits("0 world", 1)] for r in range(4)}, eight).suspects[0].score
    assert half_lost < 0.5 < one_lost


def test_a_second_fault_hidden_behind_the_first_is_named_after_it() -> None:
    # 2 never came, and 0, 1, 3 wait for it in the world. 5 stopped too, but its peer 4 is still at the world's collective.
    eight = {"0 world": tuple(range(8)), "3 TENSOR": (4, 5)}
    ranks = {r: [done("0 world", 1), waits("0 world", 2)] for r in range(8) if r not in (2, 5)}
    ranks |= {2: [done("0 world", 1)], 5: [done("0 world", 1), done("0 world", 2)]}
    ranks[4] = [done("0 world", 1), waits("0 world", 2), waits("3 TENSOR", 1)]
    ranks[5] = [done("0 world", 1)]
    found = verdict(ranks, eight)
    assert sorted(found.faulty_ranks[:2]) == [2, 5]
