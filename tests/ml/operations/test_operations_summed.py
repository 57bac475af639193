"""Profiles that hold sums by step."""

import pandas as pd
import pytest

from ml.operations.job import Place, analyse_sums
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
    return frame.assign(duration_us=frame["seconds"] * 1e6, started_us=0, n_calls=1)


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
    assert analyse_sums(rows[rows["kind"] != "step"]).refused.startswith("no profile names its steps")
    assert analyse_sums(rows.assign(rank=None)).refused.startswith("no profile says which rank it is of")
    assert "no collective was found" in analyse_sums(rows[rows["kind"] != "collective"]).notes[0]


def test_where_a_collective_was_called_once_a_step_its_start_says_who_came_last():
    # rank 2 comes at 0.8 s, the others at 0.5 s; its own transfer of 0.1 s is not the shortest time: rank 1 has left early
    rows = summed()
    rows["started_us"] = 10_000_000 + rows["seconds"].rsub(0.9).where(rows["kind"] == "collective", 0) * 1e6
    early = (rows["rank"] == 1) & (rows["kind"] == "collective")
    rows.loc[early, "duration_us"] -= 20_000
    (collective,) = book_summed(rows).collectives
    assert collective.waited_s[:, 0] == pytest.approx([0.3, 0.3, 0.0, 0.3])
    assert collective.transfer_s[:, 0] == pytest.approx([0.1, 0.08, 0.1, 0.1])


def steps(n, **more):
    """The two steps of `summed`, over and over."""
    two = summed(**more)
    return pd.concat([two.assign(step=two["step"] + 2 * k) for k in range(n // 2)])


def test_the_rank_that_computes_longer_in_every_profiled_step_is_named_with_its_layer_and_kernel():
    (found,) = analyse_sums(steps(4), Place(nodes={r: f"n{r}" for r in range(4)})).findings
    assert (found.kind, found.ranks, found.nodes, found.layer, found.operation) == ("slow_worker", (2,), ("n2",), "gpu", "gemm")
    assert found.score > 0.5
    assert "gpu +300 ms" in found.statement
    assert found.statement.endswith("the difference begins in the gpu layer")


def test_two_profiled_steps_are_too_few_for_an_accusation():
    (found,) = analyse_sums(summed()).findings
    assert found.score < 0.5


@pytest.mark.parametrize("kernels", [(0.5, 0.5, 0.5, 0.5), (0.5, 0.52, 0.51, 0.5), (0.8, 0.8, 0.5, 0.5)])
def test_profiles_of_ranks_that_are_alike_or_halves_apart_accuse_nobody(kernels):
    assert analyse_sums(steps(4, kernels=kernels)).findings == ()


def test_what_a_profile_does_not_hold_is_said_and_not_reported_as_zero():
    rows = summed()
    notes = analyse_sums(rows[rows["layer"] != "gpu"]).notes
    assert "no GPU kernel was found in the profiles: nothing is known of the devices" in notes
