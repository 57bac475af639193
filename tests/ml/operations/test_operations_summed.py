"""Profiles that hold sums by step."""

import pandas as pd
import pytest

from ml.operations.job import analyse_sums
from ml.operations.summed import book_summed


def summed(kernels=(0.5, 0.5, 0.8, 0.5), names=("ncclDevKernel_AllReduce", "nccl:all_reduce")):
    """Steps of one second; each rank computes and waits for the slowest, which spends 0.1 s in the collective."""
    rows = []
    for rank, kernel in enumerate(kernels):
        for step in (5, 6):
            rows += [
                (rank, step, "step", "host", f"ProfilerStep#{step}", 1.0),
                (rank, step, "gpu", "gpu", "gemm", kernel),
                (rank, step, "collective", "collective", names[0], 0.9 - kernel),
                (rank, step, "collective", "collective", names[1], 0.9 - kernel),  # the same, as the CPU saw it
            ]
    frame = pd.DataFrame(rows, columns=["rank", "step", "kind", "layer", "name", "seconds"])
    return frame.assign(duration_us=frame["seconds"] * 1e6, started_us=0)


@pytest.mark.parametrize("names", [("ncclDevKernel_AllReduce", "nccl:all_reduce"), ("ncclKernel_AllReduce", "c10d::allreduce_")])
def test_a_collective_is_counted_once_and_split_by_who_waits_least(names):
    ledger = book_summed(summed(names=names))
    (collective,) = ledger.collectives
    assert collective.transfer_s[:, 0] == pytest.approx([0.1, 0.1, 0.1, 0.1])
    assert collective.waited_s[:, 0] == pytest.approx([0.3, 0.3, 0.0, 0.3])
    assert ledger.work_s[0][:, 0] == pytest.approx([0.1, 0.1, 0.1, 0.1])  # neither kernel nor collective


def test_the_slow_rank_explains_the_slowdown():
    found = analyse_sums(summed())
    assert found.what_if.worst_workers[0].dp_rank == 2
    assert found.what_if.cause == "worker"
    assert found.what_if.t_s == pytest.approx(1.0)


def test_profiles_without_steps_or_collectives_say_so():
    rows = summed()
    assert analyse_sums(rows[rows["kind"] != "step"]).refused == "the profiles name no steps, or no rank"
    assert "no collective was recorded" in analyse_sums(rows[rows["kind"] != "collective"]).notes[0]
