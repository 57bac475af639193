"""The what-if engine against traces that were played by other code, and against hand-made ones."""

import math

import numpy as np
import pytest

from ml.stragglers.durations import own_durations
from ml.stragglers.graph import build
from ml.stragglers.synthetic import Recipe, columns
from ml.stragglers.trace import Layout, arrange
from ml.stragglers.whatif import Cause, analyse, cause_of
from ml.stragglers.words import Op, TraceError

# layout, idle sends and receives recorded, gradients overlapped
LAYOUTS = [
    (Layout(1, 1), False, False),  # one worker
    (Layout(3, 1), False, False),  # data parallel only
    (Layout(1, 4), False, False),  # pipeline only: no data-parallel operation at all
    (Layout(3, 4), False, False),
    (Layout(2, 2, vpp_size=2), False, False),  # two model chunks a stage
    (Layout(2, 4, vpp_size=3), False, True),
    (Layout(2, 4, vpp_size=3), True, True),  # idle ends of the pipeline recorded as well
    (Layout(2, 2, tp_size=2, dsp_size=2, vpp_size=2), True, False),  # tensor and sequence parallel ranks collapsed
]


@pytest.mark.parametrize(("layout", "records_idle", "overlaps_dp"), LAYOUTS)
def test_the_model_plays_back_what_was_recorded(layout, records_idle, overlaps_dp):
    recipe = Recipe(layout, noise=0.4, records_idle=records_idle, overlaps_dp=overlaps_dp, slow={(0, 0): 1.3})
    result = analyse(columns(recipe), layout)
    assert result.launch_slowdown == pytest.approx(1.0, abs=1e-9)
    assert result.is_faithful


@pytest.mark.parametrize(("layout", "records_idle", "overlaps_dp"), LAYOUTS)
def test_equal_workers_have_nothing_to_lose(layout, records_idle, overlaps_dp):
    result = analyse(columns(Recipe(layout, records_idle=records_idle, overlaps_dp=overlaps_dp)), layout)
    assert result.slowdown == pytest.approx(1.0, abs=1e-9)
    assert result.cause is Cause.NONE


@pytest.mark.parametrize("layout", [Layout(4, 1), Layout(4, 4), Layout(4, 2, vpp_size=2)])
def test_a_slow_worker_is_found_with_its_share(layout):
    slow = (layout.pp_size - 1, 2)
    result = analyse(columns(Recipe(layout, noise=0.02, slow={slow: 2.0})), layout)
    first, second = result.workers[:2]
    assert (first.stage, first.dp_rank) == slow
    assert first.slowdown > 1.3 > second.slowdown
    assert result.worst.share > 0.8
    assert result.cause is Cause.WORKER
    assert max(result.by_type, key=result.by_type.get) == "backward-compute"


def test_collectives_follow_each_other_as_recorded_not_as_numbered():
    layout = Layout(2, 2, vpp_size=2)
    trace = columns(Recipe(layout, noise=0.4))
    is_scatter = trace["optype"] == "grads-reduce-scatter"
    trace["seq_id"] = np.where(is_scatter, 1 - trace["seq_id"], trace["seq_id"])  # the later one has the lower number
    assert analyse(trace, layout).launch_slowdown == pytest.approx(1.0, abs=1e-9)


def test_waiting_is_taken_out_of_communication():
    # the recv of stage 1 is posted at once and waits for stage 0; the send takes the transfer alone
    layout = Layout(1, 2)
    trace = arrange(columns(Recipe(layout, n_micro_batches=2, n_steps=1, transfer_s=0.005)), layout)
    own = own_durations(trace, build(trace))
    recv = next(v for v, node in enumerate(trace.nodes) if node.op is Op.FORWARD_RECV)
    assert trace.duration_s[recv, 0, 0] == pytest.approx(0.105)  # waits 0.1 s for the first forward
    assert own[recv, 0, 0] == pytest.approx(0.005)


def test_the_cause_follows_a_fixed_rule():
    assert cause_of(1.02, 1.0, 1.0, {0: 0.99, 1: 0.99}) is Cause.NONE  # too little
    assert cause_of(1.97, 1.00, 0.0, {0: 0.999, 1: 0.885, 2: 0.898, 3: 0.873}) is Cause.WORKER
    assert cause_of(1.54, 0.03, 0.69, {0: 0.992, 1: 0.994}) is Cause.SEQUENCE  # before the stage
    assert cause_of(1.30, 0.10, 0.80, {0: 0.2, 1: 0.5}) is Cause.STAGE
    assert cause_of(1.30, 0.10, 0.20, {0: 0.2, 1: 0.5}) is Cause.NONE
    assert cause_of(1.30, 0.90, 0.80, {0: 0.2, 1: 0.5}, has_replicas=False) is Cause.STAGE  # a worker is a stage
    assert cause_of(1.30, math.nan, math.nan, {0: math.nan}) is Cause.NONE


def usable():
    layout = Layout(2, 2, world_size=4)
    return columns(Recipe(layout, n_micro_batches=2, n_steps=2)), layout


def refusal(trace, layout):
    with pytest.raises(TraceError) as caught:
        analyse(trace, layout)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_columns_are_named():
    trace, layout = usable()
    del trace["mb_id"], trace["duration"]
    assert "duration, mb_id" in refusal(trace, layout)


def test_a_world_size_that_does_not_multiply_out_is_refused():
    trace, _ = usable()
    assert "world_size is 6" in refusal(trace, Layout(2, 2, world_size=6))


def test_negative_durations_are_refused():
    trace, layout = usable()
    trace["duration"][3] = -0.5
    assert "1 of" in refusal(trace, layout)
    assert "negative duration" in refusal(trace, layout)


def test_a_trace_without_durations_is_refused():
    trace, layout = usable()
    trace["duration"][:] = 0
    assert "no time" in refusal(trace, layout)


def test_times_that_are_not_numbers_are_refused():
    trace, layout = usable()
    trace["start_ts"][0] = np.nan
    assert "start_ts" in refusal(trace, layout)


def test_unequal_operation_counts_are_refused_with_their_place():
    trace, layout = usable()
    lost = np.flatnonzero((trace["step"] == 1) & (trace["dp_rank"] == 1) & (trace["stage"] == 0))[0]
    trace = {name: np.delete(values, lost) for name, values in trace.items()}
    assert "step 1, dp rank 1, stage 0" in refusal(trace, layout)


def test_a_worker_without_operations_is_refused():
    trace, layout = usable()
    kept = ~((trace["dp_rank"] == 1) & (trace["stage"] == 1))
    assert "dp rank 1, stage 1" in refusal({name: values[kept] for name, values in trace.items()}, layout)


def test_a_rank_outside_the_layout_is_refused():
    trace, _ = usable()
    assert "dp_size is 1" in refusal(trace, Layout(1, 2))


def test_unknown_operation_types_are_left_out_and_said_so():
    trace, layout = usable()
    plain = analyse(trace, layout)
    extra = {name: np.concatenate([values, values[:1]]) for name, values in trace.items()}
    extra["optype"] = np.concatenate([trace["optype"], ["first-op"]])
    result = analyse(extra, layout)
    assert result.slowdown == plain.slowdown
    assert "first-op" in result.notes[0]


def test_sends_that_cannot_be_matched_are_refused():
    trace, layout = usable()
    kept = ~((trace["optype"] == "forward-send") & (trace["seq_id"] == 1))
    assert "cannot be matched" in refusal({name: values[kept] for name, values in trace.items()}, layout)
