"""In which layer a difference begins, against the group and against baselines; what is usual in a baseline."""

import numpy as np
import pandas as pd
import pytest

from ml.operations.job import Expected, Place, analyse_job
from ml.operations.layers import begins_in
from ml.operations.patterns import expected_shares
from ml.operations.profile import usual

PARTS = {"launch": ("python", 0.05), "read": ("host", 0.10), "gemm": ("gpu", 0.40), "dp-allreduce": ("collective", 0.05)}


def operations(slow_rank=None, slow="gemm", factor=2.0, everywhere=1.0, n_steps=40):
    """Four ranks that launch, read, compute and reduce; `slow` takes `factor` times as long on one rank, `everywhere` on all."""
    rng, rows, begin = np.random.default_rng(1), [], 0.0
    for step in range(n_steps):
        came = {}
        for rank in range(4):
            at = begin
            for name, (layer, seconds) in PARTS.items():
                if layer == "collective":
                    continue
                longer = (factor if rank == slow_rank else 1.0) * everywhere if name == slow else 1.0
                length = seconds * longer * (1 + 0.01 * rng.standard_normal())
                rows.append((rank, step, name, "forward" if layer == "gpu" else "other", layer, at, length))
                at += length
            came[rank] = at
        end = max(came.values()) + 0.05 * (everywhere if slow == "dp-allreduce" else 1.0)
        rows += [(rank, step, "dp-allreduce", "collective", "collective", at, end - at) for rank, at in came.items()]
        begin = end
    frame = pd.DataFrame(rows, columns=["rank", "step", "name", "kind", "layer", "start", "seconds"])
    return frame.assign(
        started_us=1e12 + frame["start"] * 1e6, duration_us=frame["seconds"] * 1e6, parent=None, group="dp", sequence=0
    )


PLACE = Place(nodes={r: f"n{r}" for r in range(4)})


@pytest.mark.parametrize(("slow", "layer", "factor"), [("launch", "python", 6.0), ("read", "host", 3.0), ("gemm", "gpu", 1.6)])
def test_a_slow_rank_is_named_with_the_layer_in_which_it_differs_from_its_group(slow, layer, factor):
    first = analyse_job(operations(2, slow, factor), PLACE).findings[0]
    assert (first.ranks, first.layer, first.operation) == ((2,), layer, slow)
    assert first.score > 0.5
    assert f"{layer} +" in first.statement


def baseline():
    found = usual(operations())
    return Expected((found.step_s,), found.transfer_s, found.layers_s, expected_shares([found.shares]))


@pytest.mark.parametrize(("slow", "layer"), [("gemm", "gpu"), ("read", "host"), ("dp-allreduce", "collective")])
def test_a_job_slower_than_its_baselines_says_in_which_layer_that_begins(slow, layer):
    found = analyse_job(operations(slow=slow, everywhere=4.0), PLACE, baseline()).findings
    slower = next(f for f in found if f.kind == "slower_than_baselines")
    assert slower.layer == layer
    assert f"the difference begins in the {layer} layer" in slower.statement
    assert not any(f.nodes and f.score >= 0.5 for f in found)


def test_a_function_beyond_its_share_on_every_baseline_is_a_lead_without_a_place():
    found = analyse_job(operations(slow="read", everywhere=4.0), PLACE, baseline()).findings
    (share,) = [f for f in found if f.kind == "operation_share"]
    assert (share.operation, share.layer, share.nodes, share.is_global) == ("read", "host", (), True)
    assert share.score < 0.5


def test_a_job_like_its_baseline_has_no_finding():
    assert analyse_job(operations(), PLACE, baseline()).findings == ()


def test_a_difference_that_is_small_beside_the_step_begins_nowhere():
    assert begins_in({"host": 0.001, "gpu": -0.2}, 1.0) is None


def test_what_is_usual_needs_steps_and_starts():
    assert usual(operations().assign(step=None)) is None
    found = usual(operations())
    assert found.transfer_s == {"dp-allreduce": pytest.approx(0.05, abs=0.001)}
    assert found.layers_s["gpu"] == pytest.approx(0.4, rel=0.02)
    low, high = found.shares["gemm"]
    assert 0.6 < low <= high < 0.7
