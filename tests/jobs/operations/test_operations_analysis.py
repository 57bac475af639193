"""One job's analysis on Arrow tables, as Spark hands them over: no session needed."""

import datetime as dt

import pyarrow as pa
import pytest

from jobs.operations.analysis import OPERATION_COLUMNS, analyse
from schemas import tables

TYPES = {c.name: c.type for c in tables()["operations"].columns}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def operation_table(rows):
    return pa.table({c: pa.array([r.get(c) for r in rows], TYPES[c]) for c in ("job_id", *OPERATION_COLUMNS)})


def facts(**more):
    known = {"job_id": "j", "n_gpus": 8, "world_size": 8, "started_at": START, "ended_at": START + dt.timedelta(hours=2), "config": None,
             "ranks": None, "iterations": None, "expected": None} | more  # fmt: skip
    return pa.Table.from_pylist([known])


def one(operations, **more):
    (row,) = analyse(operation_table(operations), facts(**more)).to_pylist()
    return row


def whatif_rows():
    """Two replicas of one stage, the second twice as slow."""
    rows = []
    for step in range(3):
        for dp in range(2):
            seconds = 1.0 + dp
            for name, start, length, mb in (
                ("forward-compute", 0.0, seconds, 0),
                ("backward-compute", seconds, 2 * seconds, 0),
                ("grads-reduce-scatter", 3 * seconds, 6.1 - 3 * seconds, -1),
                ("optimizer", 6.1, 0.1, -1),
            ):
                rows.append({"job_id": "j", "rank": dp * 4, "step": step, "kind": "gpu", "name": name, "started_us": int(start * 1e6),
                             "duration_us": length * 1e6, "n_calls": 1, "group": "chunk 0", "stage": 0, "dp_rank": dp,
                             "micro_batch": mb, "sequence": 0, "source": "whatif", "file": "traces/trace.parquet"})  # fmt: skip
    return rows


def test_a_recorded_trace_is_analysed_with_the_layout_that_it_shows():
    report = one(whatif_rows())["report"]
    # 6.2 s as it was; 1.5 + 3 + 0.1 + 0.1 s with the mean of the computations
    assert report["slowdown"] == pytest.approx(6.2 / 4.7)
    assert report["cause"] == "worker"
    assert report["workers"][0] == {"rank": None, "dp_rank": 1, "stage": 0, "slowdown": pytest.approx(6.2 / 4.7)}
    assert report["gpu_hours_wasted"] == pytest.approx(16 * (1 - 4.7 / 6.2))


def test_a_recorded_trace_that_does_not_fit_is_refused_with_its_reason():
    report = one(whatif_rows()[:-1])["report"]
    assert report["slowdown"] is None
    assert "operation counts differ" in report["refused"]


def kineto_rows(ranks=(0, 1)):
    """Rank 1 computes for 0.8 s of each second, rank 0 for half of it and waits."""
    rows = []
    for rank in ranks:
        for step in (5, 6):
            computed = 0.5 if rank == 0 else 0.8
            for kind, layer, name, seconds in (
                ("step", "host", f"ProfilerStep#{step}", 1.0),
                ("gpu", "gpu", "gemm", computed),
                ("collective", "collective", "ncclDevKernel_AllReduce", 0.9 - computed),
            ):
                rows.append({"job_id": "j", "rank": rank, "step": step, "kind": kind, "layer": layer, "name": name, "started_us": 0,
                             "duration_us": seconds * 1e6, "n_calls": 1, "source": "kineto", "file": f"traces/rank{rank}.json"})  # fmt: skip
    return rows


def test_summed_profiles_are_simulated_as_well():
    report = one(kineto_rows())["report"]
    assert (report["method"], report["cause"], report["workers"][0]["rank"]) == ("kineto", "worker", 1)
    assert report["slowdown"] > 1.1


def test_a_single_profile_is_refused_with_its_reason():
    assert "1 ranks" in one(kineto_rows((0,)))["report"]["refused"]


def test_a_job_without_operations_and_iterations_has_no_row():
    assert len(analyse(operation_table([]), facts())) == 0
    assert len(analyse(operation_table(whatif_rows()), pa.table({"job_id": pa.array([], pa.string())}))) == 0


def test_what_was_left_out_or_refused_becomes_a_note_on_coverage_that_accuses_nobody():
    row = one(whatif_rows()[:-1])
    (note,) = [f for f in row["findings"] if f["kind"] == "coverage_note"]
    assert note["statement"].startswith("operations: no straggler what-if: operation counts differ")
    assert (note["score"], note["nodes"], note["is_echo"], note["is_global"]) == (0.0, [], True, True)


BAD = [
    # what is wrong with a recorded trace, the rows, the job's world size, what is said
    ("a world size that does not multiply out", whatif_rows(), 7, "does not divide the world size 7"),
    ("unequal operation counts", whatif_rows()[:-1], 8, "operation counts differ"),
    ("a rank without a trace", [r for r in whatif_rows() if r["dp_rank"] == 1], 8, "1 workers have no operations"),
    ("negative durations", [r | {"duration_us": -1.0} for r in whatif_rows()], 8, "negative duration"),
]


@pytest.mark.parametrize(("what", "rows", "world", "said"), BAD, ids=[b[0] for b in BAD])
def test_bad_traces_are_refused_in_the_report_and_in_a_note(what, rows, world, said):
    row = one(rows, world_size=world)
    assert row["report"]["slowdown"] is None
    assert said in row["report"]["refused"]
    assert any(said in f["statement"] for f in row["findings"] if f["kind"] == "coverage_note")


def test_ranks_whose_clocks_differ_are_moved_and_that_is_noted():
    rows = []
    for step in range(12):
        for rank in range(2):
            at = 1_000_000_000 + step * 200_000 + rank * 90_000  # the second node is 90 ms ahead
            common = {"job_id": "j", "node": f"n{rank}", "rank": rank, "step": step, "n_calls": 1, "sequence": 0, "source": "timeline",
                      "file": f"traces/timeline_rank{rank}.jsonl"}  # fmt: skip
            rows += [common | {"kind": "forward", "layer": "host", "name": "forward", "started_us": at, "duration_us": 100_000.0},
                     common | {"kind": "collective", "layer": "collective", "name": "dp-allreduce", "group": "dp",
                               "started_us": at + 100_000, "duration_us": 50_000.0}]  # fmt: skip
    placed = [{"rank": r, "node": f"n{r}", "role": "trainer", "device": f"cpu:{r}", "groups": []} for r in range(2)]
    row = one(rows, ranks=placed)
    assert any("clocks differ between nodes" in f["statement"] for f in row["findings"] if f["kind"] == "coverage_note")
    assert not any(f["nodes"] and f["score"] >= 0.5 for f in row["findings"])


def test_profiles_name_the_slow_rank_with_its_layer():
    rows = [r | {"step": r["step"] + 2 * k} for r in kineto_rows((0, 1, 2)) for k in range(2)]
    found = one(rows)["findings"]
    assert [(f["kind"], f["ranks"]) for f in found if f["nodes"] or f["ranks"]] == []  # two of three are slow: nobody is odd
    rows = [r | {"rank": {0: 1, 1: 0, 2: 2}[r["rank"]]} for r in rows if r["rank"] < 2] + [
        r | {"rank": 2} for r in rows if r["rank"] == 0
    ]
    (slow,) = [f for f in one(rows)["findings"] if f["ranks"]]
    assert (slow["kind"], slow["ranks"], slow["layer"], slow["operation"]) == ("slow_worker", [0], "gpu", "gemm")
