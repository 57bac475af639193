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
