"""Known faults played on jobs of several layouts: the faulty rank comes first, or nobody is named."""

from __future__ import annotations

import time

import pytest

from jobs.adapters.flight_recorder_dump import Dump, dump_of
from jobs.collectives.dumps import add_dump
from ml.collectives.builder import EntriesBuilder
from ml.collectives.synthetic import Fault, Layout, Recording, dumps
from ml.collectives.verdict import Syndrome, Verdict, judge

LAYOUTS = [Layout(2, 2, 4), Layout(1, 8, 1), Layout(4, 2, 2), Layout(1, 1, 8)]


def verdict(recording: Recording) -> Verdict:
    builder = EntriesBuilder()
    for rank, document in dumps(recording).items():
        dump = dump_of(document)
        assert isinstance(dump, Dump)
        add_dump(builder, rank, dump)
    return judge(builder.entries())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    ("fault", "options"),
    [
        # fault, how it is recorded
        (Fault.HOST_STOPS, {}),
        (Fault.HOST_STOPS, {"is_open_only": True}),  # as PyTorch dumps after a time-out
        (Fault.HOST_STOPS, {"n_kept": 40}),  # small rings that begin at different points
        (Fault.HOST_STOPS, {"undumped": (5,)}),  # killed: no dump at all
        (Fault.HOST_STOPS, {"backend": "gloo"}),
        (Fault.DEVICE_STOPS, {"has_starts": True}),
        (Fault.OTHER_OP, {"at": 40}),
        (Fault.OTHER_SIZE, {"at": 40}),
        (Fault.OTHER_DTYPE, {"at": 40}),
    ],
    ids=lambda value: str(value),
)
def test_the_faulty_rank_comes_first_and_alone(layout: Layout, fault: Fault, options: dict) -> None:
    found = verdict(Recording(layout, fault, (5,), **options))
    assert found.faulty_ranks[:1] == [5]
    assert [s.rank for s in found.suspects if s.score >= 0.5] == [5]
    assert found.syndrome is Syndrome.NONCOMM_HANG


@pytest.mark.parametrize("fault", [Fault.SKIPPED_CALL, Fault.EXTRA_CALL])
@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=str)
def test_a_rank_one_call_off_from_the_others_comes_first(layout: Layout, fault: Fault) -> None:
    assert verdict(Recording(layout, fault, (5,), at=40)).faulty_ranks[:1] == [5]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("options", [{}, {"has_starts": True}, {"is_open_only": True}], ids=str)
def test_a_collective_that_the_network_holds_names_nobody(layout: Layout, options: dict) -> None:
    found = verdict(Recording(layout, Fault.NETWORK, (3,), **options))
    assert (found.faulty_ranks, found.syndrome, found.is_global) == ([], Syndrome.COMM_HANG, True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_device_that_stops_where_no_starts_are_recorded_names_nobody(layout: Layout) -> None:
    found = verdict(Recording(layout, Fault.DEVICE_STOPS, (5,)))
    assert (found.faulty_ranks, found.syndrome) == ([], Syndrome.COMM_HANG)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("options", [{}, {"n_kept": 30}, {"is_open_only": True}, {"backend": "gloo"}], ids=str)
def test_jobs_that_ran_to_their_end_have_no_syndrome(layout: Layout, options: dict) -> None:
    found = verdict(Recording(layout, **options))
    assert (found.faulty_ranks, found.syndrome, found.collectives) == ([], Syndrome.NONE, ())


def test_both_ends_of_an_exchange_that_differ_in_size_are_named_below_an_accusation() -> None:
    builder = EntriesBuilder()
    for rank, op, shape in ((0, "nccl:send 0->1", "[[8]]"), (1, "nccl:recv 1<-0", "[[9]]")):
        columns = {
            "group": ["1 PIPELINE"], "sequence": [4], "op": [op], "state": ["scheduled"], "shape": [shape], "dtype": ["['Float']"],
            "frame": [""], "order": [0], "is_p2p": [True], "created_us": [1], "duration_ms": [float("nan")],
        }  # fmt: skip
        builder.add(rank, columns, {"1 PIPELINE": (0, 1)}, {})
    found = judge(builder.entries())
    assert sorted(found.faulty_ranks) == [0, 1]
    assert all(s.score < 0.5 and "at its other end" in s.statement for s in found.suspects)


def test_thirty_thousand_ranks_without_dumps_are_judged_in_linear_time() -> None:
    (document,) = dumps(Recording(Layout(1, 1, 1), Fault.NETWORK, (0,))).values()
    for group in document["pg_config"].values():
        group["ranks"] = str(list(range(30_000)))
    dump = dump_of(document)
    assert isinstance(dump, Dump)
    builder = EntriesBuilder()
    add_dump(builder, 0, dump)
    entries = builder.entries()
    began = time.process_time()
    judge(entries)
    assert time.process_time() - began < 5
