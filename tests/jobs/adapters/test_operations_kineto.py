"""Kineto traces: streamed, summed, and honest about what they do not say."""

import gzip
import io
import json
import tracemalloc

import pytest

from jobs.adapters import operations_kineto, operations_kineto_sums
from jobs.adapters.base import FileContext, Placement, Problem, Rows, Tally
from jobs.adapters.operations_kineto import KinetoAdapter


def event(name, category, start, duration, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration, "args": args}


def document(*events, **around):
    return json.dumps({"schemaVersion": 1, **around, "traceEvents": list(events)}).encode()


def parsed(text, path="traces/host_1.pt.trace.json", **context):
    found = list(KinetoAdapter().parse(io.BytesIO(text), FileContext("job-1", path, **context)))
    rows = [
        dict(zip(batch.columns, values, strict=True))
        for batch in found
        if isinstance(batch, Rows)
        for values in zip(*batch.columns.values(), strict=True)
    ]
    return rows, [p for p in found if isinstance(p, Problem)], found[-1]


STEPS = (
    event("aten::mm", "cpu_op", 110, 5),  # named before the step that holds it
    event("ProfilerStep#7", "user_annotation", 100, 50),
    event("gemm", "kernel", 120, 10),
    event("gemm", "kernel", 135, 6),
    event("ProfilerStep#8", "user_annotation", 150, 50),
    event("gemm", "kernel", 160, 9),
    event("gemm", "kernel", 900, 1),  # after the last step
)


def test_events_are_summed_by_step_category_and_name():
    rows, _, tally = parsed(document(*STEPS, distributedInfo={"rank": 3}), placements=(Placement(3, "n1"),))
    assert [(r["step"], r["name"], r["kind"], r["n_calls"], r["duration_us"]) for r in rows] == [
        (None, "gemm", "gpu", 1, 1),
        (7, "aten::mm", "host", 1, 5),
        (7, "gemm", "gpu", 2, 16),
        (7, "ProfilerStep#7", "step", 1, 50),
        (8, "gemm", "gpu", 1, 9),
        (8, "ProfilerStep#8", "step", 1, 50),
    ]
    assert {(r["rank"], r["node"]) for r in rows} == {(3, "n1")}
    assert (tally.n_read, tally.n_understood) == (7, 7)


# the name of a kernel in this or that release of NCCL, and what it is
NCCL = [
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "collective"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "p2p"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "p2p"),
]


@pytest.mark.parametrize(("name", "kind"), NCCL)
def test_nccl_kernels_are_known_by_their_old_and_new_names(name, kind):
    rows, _, _ = parsed(document(event(name, "kernel", 1, 2, **{"Process Group Name": "tp"})))
    assert [(r["kind"], r["layer"], r["group"]) for r in rows] == [(kind, "collective", "tp")]


# the file's name, what stands in it, and the rank that follows
RANKS = [
    ("rank5.pt.trace.json", {"distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 8}}, 2),  # the trace first
    ("rank5.pt.trace.json", {}, 5),
    ("cpu_only-rank-34.Jul_15.pt.trace.json", {}, 34),
    ("host_1234.pt.trace.json", {}, None),  # nobody says: not rank 0
]


@pytest.mark.parametrize(("name", "around", "rank"), RANKS)
def test_the_rank_comes_from_the_trace_then_from_the_name(name, around, rank):
    rows, problems, _ = parsed(document(event("gemm", "kernel", 1, 2), **around), f"traces/{name}")
    assert {r["rank"] for r in rows} == {rank}
    assert any("which rank" in p.detail for p in problems) == (rank is None)


def test_no_collective_is_said_not_shown_as_zero():
    _, problems, _ = parsed(document(event("gemm", "kernel", 1, 2)))
    assert any("no collective" in p.detail for p in problems)
    _, problems, _ = parsed(document(event("nccl:all_reduce", "user_annotation", 1, 2)))
    assert not any("no collective" in p.detail for p in problems)


def test_stamps_are_relative_to_the_base_time():
    rows, _, _ = parsed(document(event("gemm", "kernel", 5.5, 2), baseTimeNanoseconds=1_700_000_000_000_000_000))
    assert rows[0]["started_us"] == 1_700_000_000_000_005


def test_blocks_are_cut_between_events_wherever_they_fall(monkeypatch):
    text = document(*STEPS * 50, event('a "} , { \\"ph', "cpu_op", 120, 1), distributedInfo={"rank": 3})
    whole = parsed(text)
    for size in (64, 257, 1000):
        monkeypatch.setattr(operations_kineto, "_BLOCK", size)
        assert parsed(text) == whole


def test_another_order_of_keys_is_read_too():
    turned = [{key: e[key] for key in reversed(e)} for e in STEPS]
    assert parsed(document(*turned, distributedInfo={"rank": 3})) == parsed(document(*STEPS, distributedInfo={"rank": 3}))


def test_a_file_that_was_cut_keeps_its_whole_events():
    text = document(*STEPS)
    rows, problems, tally = parsed(text[: text.rindex(b'"dur"')])
    assert [p.reason for p in problems if p.n_records] == ["broken_json"]
    assert sum(r["n_calls"] for r in rows) == len(STEPS) - 1
    assert tally.n_read == len(STEPS)


def test_broken_values_are_counted():
    rows, problems, tally = parsed(document(event("gemm", "kernel", "soon", 2), event("gemm", "kernel", 1, -2), 7, *STEPS))
    broken = sum(p.n_records for p in problems)
    assert broken == 3
    assert tally.n_read == tally.n_understood + broken
    assert len(rows) == 6


def test_memory_does_not_grow_with_the_file(monkeypatch):
    monkeypatch.setattr(operations_kineto_sums, "MOST_WAITING", 5_000)
    monkeypatch.setattr(operations_kineto, "_BLOCK", 1 << 16)

    def peak(n):
        text = document(*[event(f"op{k % 50}", "kernel", 100 + k % 100, 1) for k in range(n)], STEPS[1], STEPS[4])
        stream = io.BytesIO(text)
        tracemalloc.start()
        for _ in KinetoAdapter().parse(stream, FileContext("j", "rank0.pt.trace.json")):
            pass
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(40_000) < 1.2 * peak(10_000)


def test_published_traces_are_read(shared_data):
    path = shared_data / "kineto" / "trace_filter-sampled_rank-1.json.gz"
    rows, _, tally = parsed(gzip.decompress(path.read_bytes()), f"traces/{path.name}")
    document_ = json.loads(gzip.decompress(path.read_bytes()))
    kernels = [e for e in document_["traceEvents"] if e.get("cat") == "kernel"]
    assert tally.n_read == len(document_["traceEvents"])
    assert sum(r["duration_us"] for r in rows if r["layer"] == "gpu" and r["kind"] == "gpu") == pytest.approx(
        sum(e["dur"] for e in kernels if "nccl" not in e["name"].lower())
    )
    assert {r["rank"] for r in rows} == {1}
    assert {r["step"] for r in rows} >= {551, 552}
    assert isinstance(tally, Tally)
