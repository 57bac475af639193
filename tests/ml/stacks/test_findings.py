"""Hangs by hand: who waits, who blocks, and when standing still is nothing to speak of."""

from __future__ import annotations

import pytest

from ml.stacks.findings import Placing, StackFinding, findings
from ml.stacks.progress import Course
from ml.stacks.samples import Sample

ALL_REDUCE = ("<module> (train.py:227)", "all_reduce (torch/distributed/distributed_c10d.py:4181)")
LATER = ("<module> (train.py:237)", "all_reduce (torch/distributed/distributed_c10d.py:4181)")
BARRIER = ("<module> (train.py:260)", "barrier (torch/distributed/distributed_c10d.py:6614)")
READ = ("<module> (train.py:191)", "read (data.py:40)")
NEXT = ("<module> (train.py:207)", "_BaseDataLoaderIter.__next__ (torch/utils/data/dataloader.py:725)", "poll (selectors.py:4)")
SAVE = ("<module> (train.py:240)", "save (torch/serialization.py:900)")
COMPUTE = ("<module> (train.py:218)", "forward (model.py:10)")
IDLE = ("_worker_loop (torch/utils/data/_utils/worker.py:335)", "Queue.get (multiprocessing/queues.py:113)")
FETCH = ("_worker_loop (torch/utils/data/_utils/worker.py:335)", "fetch (fetch.py:52)", "__getitem__ (data.py:9)")

GROUPS = {r: {"tp": [r - r % 2, r - r % 2 + 1], "dp": [x for x in range(8) if x % 2 == r % 2]} for r in range(8)}
PLACING = Placing({r: f"n{r // 2}" for r in range(8)}, GROUPS, tuple(range(8)))
SILENT = Course(((90.0, 59), (95.0, 60)), (80.0, 95.0), 140.0, False, True)


def samples(stacks: dict[int, tuple[str, ...]], times: tuple[float, ...] = (100.0, 103.0, 106.0), **more: object) -> list[Sample]:
    return [
        Sample(
            frames,
            rank,
            f"n{rank // 2}",
            pid=100 + rank,
            thread_name="MainThread",
            is_active=False,
            at=at,
            snapshot=f"T{n}",
            **more,
        )
        for n, at in enumerate(times)
        for rank, frames in stacks.items()
    ]


def waiting(**others: tuple[str, ...] | None) -> dict[int, tuple[str, ...]]:
    """Eight ranks in all_reduce but for those given, by r0 … r7; None for a rank that could not be sampled."""
    stacks = {r: others.get(f"r{r}", ALL_REDUCE) for r in range(8)}
    return {rank: frames for rank, frames in stacks.items() if frames is not None}


def accused(found: list[StackFinding]) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.kind, f.ranks) for f in found if f.nodes and f.score >= 0.5]


HANGS = [
    # what the ranks do, kind, ranks, nodes
    ("one rank reads", waiting(r5=READ), "outside_collective", (5,), ("n2",)),
    ("one rank waits for data", waiting(r3=NEXT), "outside_collective", (3,), ("n1",)),
    ("one rank could not be sampled", waiting(r6=None), "not_sampled", (6,), ("n3",)),
    ("both ranks of a node could not be sampled", waiting(r6=None, r7=None), "not_sampled", (6, 7), ("n3",)),
    ("both ranks of a tensor group read", waiting(r2=READ, r3=READ), "outside_collective", (2, 3), ("n1",)),
    ("one rank is in another collective, its peer alone", waiting(r1=BARRIER, r0=LATER), "other_collective", (1,), ("n0",)),
]


@pytest.mark.parametrize(("what", "stacks", "kind", "ranks", "nodes"), HANGS, ids=[h[0] for h in HANGS])
def test_the_ranks_that_the_others_wait_for_are_first(
    what: str, stacks: dict[int, tuple[str, ...]], kind: str, ranks: tuple[int, ...], nodes: tuple[str, ...]
) -> None:
    found = [f for f in findings(samples(stacks), PLACING, SILENT) if f.axis == "spatial"]
    assert (found[0].kind, found[0].ranks, found[0].nodes) == (kind, ranks, nodes)
    assert found[0].score >= 0.5
    assert accused(found) == [(kind, ranks)]


def test_lack_of_progress_has_its_length_and_its_iteration() -> None:
    found = next(f for f in findings(samples(waiting(r5=READ)), PLACING, SILENT) if f.kind == "lack_of_progress")
    assert (found.is_global, found.nodes, found.at, found.iteration, found.duration_s) == (True, (), 95.0, 60, 45.0)


def test_outliers_map_to_the_smallest_group_that_holds_them() -> None:
    found = findings(samples(waiting(r2=READ, r3=READ)), PLACING, SILENT)[0]
    assert found.group_kind == "tp"
    assert "tp 2-3" in found.statement


def test_when_everyone_waits_the_culprit_is_not_among_the_stacks() -> None:
    found = findings(samples(waiting(r0=LATER, r6=LATER)), PLACING, SILENT)
    assert accused(found) == []
    assert [f.kind for f in found if f.axis == "spatial"] == ["culprit_not_in_stacks"]
    assert "upstream" in found[-1].statement


def test_waiters_are_echoes_and_accuse_nobody() -> None:
    waiters = next(f for f in findings(samples(waiting(r5=READ)), PLACING, SILENT) if f.kind == "waiters")
    assert (waiters.is_echo, waiters.is_global, waiters.nodes) == (True, True, ())


NO_HANG = [
    ("iterations went on", waiting(r5=READ), Course(((90.0, 59), (104.0, 60)), None, 140.0, False, True)),
    ("ranks went on printing", waiting(r5=READ), Course(((90.0, 59),), (90.0, 105.9), 140.0, False, True)),
    ("everyone is on the way out", dict.fromkeys(range(8), ()), SILENT),
]


@pytest.mark.parametrize(("what", "stacks", "course"), NO_HANG, ids=[n[0] for n in NO_HANG])
def test_unchanged_frames_alone_are_no_hang(what: str, stacks: dict[int, tuple[str, ...]], course: Course) -> None:
    active = not any(stacks.values())
    taken = [Sample(s.frames, s.rank, s.node, pid=s.pid, is_active=active, at=s.at, snapshot=s.snapshot) for s in samples(stacks)]
    assert findings(taken, PLACING, course) == []


def test_frames_that_change_are_no_hang() -> None:
    moving = [s for n, at in enumerate((100.0, 103.0)) for s in samples(dict.fromkeys(range(8), (f"f{n} (t.py:{n})",)), (at,))]
    assert accused(findings(moving, PLACING, SILENT)) == []


def test_a_checkpoint_may_take_its_time_but_not_for_ever() -> None:
    stacks = dict.fromkeys(range(8), SAVE)
    short = findings(samples(stacks), PLACING, SILENT)
    assert [(f.kind, f.score < 0.5) for f in short] == [("blocking_phase", True)]
    for_ever = findings(samples(stacks, (100.0, 1200.0)), PLACING, Course(((95.0, 60),), (), 1300.0, False, True))
    assert [f.kind for f in for_ever] == ["lack_of_progress"]


def test_waiting_for_the_rank_that_writes_a_checkpoint_is_allowed_too() -> None:
    assert [f.kind for f in findings(samples(waiting(r0=SAVE)), PLACING, SILENT)] == ["blocking_phase"]


def test_a_completed_job_is_not_accused_whatever_its_stacks_look_like() -> None:
    completed = Course(SILENT.iterations, SILENT.logs, 107.0, True, True)
    assert accused(findings(samples(waiting(r5=READ)), PLACING, completed)) == []


def test_one_sample_alone_accuses_nobody() -> None:
    assert accused(findings(samples(waiting(r5=READ), (100.0,)), PLACING, SILENT)) == []
    bare = findings(samples(waiting(r5=READ), (100.0,)))
    assert [(f.ranks, f.score < 0.5) for f in bare if f.kind == "outside_collective"] == [((5,), True)]


def test_a_trainer_whose_data_worker_reads_while_the_others_are_idle_is_told_with_its_worker() -> None:
    workers = list(samples({r: FETCH if r == 3 else IDLE for r in range(8)}, process_type="dataloader"))
    found = findings(samples(waiting(r3=NEXT)) + workers, PLACING, SILENT)
    differs = next(f for f in found if f.kind == "trainer_and_workers_differ")
    assert (differs.ranks, differs.path[-1]) == ((3,), "__getitem__ (data.py:9)")
    assert "7 of 7 others are idle" in differs.statement


def test_without_a_dominant_cluster_of_waiters_nobody_is_accused() -> None:
    stacks = {r: ALL_REDUCE if r < 3 else COMPUTE for r in range(8)}
    assert accused(findings(samples(stacks), PLACING, SILENT)) == []


def test_findings_do_not_depend_on_the_order_of_samples() -> None:
    taken = samples(waiting(r5=READ))
    assert findings(taken, PLACING, SILENT) == findings(taken[::-1], PLACING, SILENT)


def test_an_empty_set_and_a_single_rank_give_nothing() -> None:
    assert findings([], PLACING, SILENT) == []
    assert accused(findings(samples({0: READ}), Placing(), SILENT)) == []
