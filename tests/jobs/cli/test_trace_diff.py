"""`fleetdiff trace-diff` on two traces."""

import json

import pytest
from click.testing import CliRunner

from jobs.cli.trace_diff import command
from jobs.core.errors import FleetdiffError, NotFoundError


def write(path, *events):
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": category, "name": name, "ts": 10 * k, "dur": duration} for k, (category, name, duration) in enumerate(events)
    ]}))  # fmt: skip
    return str(path)


@pytest.fixture
def traces(tmp_path):
    base = write(tmp_path / "base.json", ("kernel", "gemm", 5), ("kernel", "softmax", 1))
    test = write(tmp_path / "test.json", ("kernel", "gemm", 9), ("kernel", "ncclDevKernel_AllReduce", 2))
    return base, test


def test_added_removed_and_slower_operations(traces):
    document = json.loads(CliRunner().invoke(command, [*traces, "--json"]).stdout)
    assert {d["name"]: d["status"] for d in document["operations"]} == {
        "gemm": "slower", "softmax": "removed", "ncclDevKernel_AllReduce": "added",
    }  # fmt: skip
    assert document["absent_layers"] == ["host", "python"]


def test_a_layer_without_operations_is_said_so(traces):
    text = CliRunner().invoke(command, [*traces, "--layer", "python"]).stdout
    assert "neither trace holds an operation of the python layer" in text


def test_files_that_cannot_be_compared(tmp_path, traces):
    with pytest.raises(NotFoundError):
        CliRunner().invoke(command, [str(tmp_path / "none.json"), traces[1]], catch_exceptions=False)
    (tmp_path / "log.txt").write_text("hello")
    with pytest.raises(FleetdiffError, match="neither a Kineto trace"):
        CliRunner().invoke(command, [str(tmp_path / "log.txt"), traces[1]], catch_exceptions=False)


def test_the_published_pair_names_what_was_added(shared_data):
    folder = shared_data / "kineto"
    run = CliRunner().invoke(
        command, [str(folder / "trace_compare-base-base.json.gz"), str(folder / "trace_compare-test-test.json.gz"), "--json"]
    )
    found = json.loads(run.stdout)["operations"]
    assert {d["name"] for d in found if d["status"] == "added"} == {"All2All_Pooled_Req", "AddmmBackward0", "CatBackward0"}
    (reduce,) = [d for d in found if d["name"] == "nccl:all_reduce"]
    assert (reduce["base"]["n_calls"], reduce["test"]["n_calls"]) == (2, 1)
