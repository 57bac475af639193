"""Fault intervals, fault tables, windows, lost work, productive time, lemons and trends, by literal rows."""

from __future__ import annotations

import json
import math
import random

import pytest

from ml.reliability.attribution import NodeEvent, attribute
from ml.reliability.ettr import Steps, measured_ettr
from ml.reliability.goodput import lost_goodput
from ml.reliability.intervals import Fault, history, merged, pair
from ml.reliability.lemons import NodeRecord, judge
from ml.reliability.outcomes import Outcome, Run, category_of, outcome_of
from ml.reliability.shares import failure_parts, fault_table, state_parts, straggler_waste
from ml.reliability.trend import trend, version_changes, weekly

H = 3600.0
DAY = 86400.0

LLAMA_3 = {
    "Faulty GPU": 148, "HBM3": 72, "Software bug": 54, "Switch/cable": 35, "Host maintenance": 32, "SRAM": 19, "GPU System Processor": 17,
    "NIC": 7, "NCCL watchdog": 7, "SDC": 6, "thermal/sensor": 6, "SSD": 3, "PSU": 3, "chassis": 2, "IO board": 2, "dependency": 2, "CPU": 2,
    "system memory": 2,
}  # fmt: skip


def run(job_id: str, state: str, start: float, end: float, **more: object) -> Run:
    return Run(job_id, state, start, end, **{"n_gpus": 8, "n_nodes": 1, "nodes": ("n1",), **more})


def test_published_fault_table_is_reproduced():
    table = fault_table(LLAMA_3, 54, 16384)
    assert table.total == 419
    assert table.shares["Faulty GPU"] == pytest.approx(0.35322, abs=5e-6)
    assert table.share_of(["Faulty GPU", "HBM3", "SRAM", "GPU System Processor", "SDC", "thermal/sensor"]) == pytest.approx(
        0.63962, abs=5e-6
    )
    assert table.mtbf.value == pytest.approx(3.09308, abs=5e-6)
    assert table.failures_per_node_day.value * 1000 == pytest.approx(3.78870, abs=5e-6)
    assert fault_table({**LLAMA_3, "planned": 47}, 54, 16384).mtbf.value == pytest.approx(2.78112, abs=5e-6)
    assert table.mtbf.low < table.mtbf.value < table.mtbf.high


def test_fault_history_is_reproduced(shared_data):
    trace = json.loads((shared_data / "fault_history" / "fault_trace.json").read_text())
    events = [
        (
            e["node_id"],
            e["event_time"],
            e["event_type"] == "fault_start",
            e["fault_type"]["Level"],
            e["fault_type"]["Class"] + ": " + e["fault_type"]["Desc"],
        )
        for e in trace
    ]
    faults, n_lone = pair(events)
    found = history(faults, 400, (0.0, 349.0), days=348.0)
    assert (len(faults), n_lone, found.n_nodes_hit, found.n_merged) == (584, 0, 231, 582)
    assert found.down == pytest.approx(3231.32, abs=0.005)
    assert found.down_unmerged == pytest.approx(3232.44, abs=0.005)
    assert found.availability == pytest.approx(0.976786, abs=5e-7)
    assert found.repair_median == pytest.approx(0.8496, abs=1e-4)
    assert found.repair_mean == pytest.approx(5.535, abs=5e-4)
    assert found.repair_p90 == pytest.approx(13.01, abs=5e-3)
    assert found.repair_max == pytest.approx(130.96, abs=5e-3)
    assert found.faults_per_1000_node_days.value == pytest.approx(4.195, abs=5e-4)
    hardware = [f for f in faults if f.kind == "Hardware Failure"]
    assert history(hardware, 400, (0.0, 349.0), days=348.0).faults_per_1000_node_days.value == pytest.approx(2.141, abs=5e-4)
    assert found.by_kind == {"Hardware Failure": 298, "Other Failure": 262, "Software Failure": 24}
    parts = {
        name: sum(n for part, n in found.by_part.items() if part.startswith(name + ":"))
        for name in ("GPU", "Parameter Plane Cable", "Fan", "NIC", "Power Supply")
    }
    assert parts == {"GPU": 158, "Parameter Plane Cable": 40, "Fan": 33, "NIC": 30, "Power Supply": 26}
    assert (found.n_top, found.n_repeaters, found.worst_node_faults) == (20, 85, 14)
    assert found.share_of_top == pytest.approx(0.245, abs=5e-4)
    assert found.share_of_repeaters == pytest.approx(0.664, abs=5e-4)


def test_overlapping_faults_are_down_once_and_open_ones_last_to_the_end():
    faults = [
        Fault("a", 0.0, 2.0),
        Fault("a", 1.0, 3.0),  # overlaps the first
        Fault("a", 5.0, None),  # not yet over
        Fault("b", -4.0, 1.0),  # began before the horizon
        Fault("c", 20.0, 21.0),  # after it
    ]
    assert merged(faults, (0.0, 10.0)) == {"a": [(0.0, 3.0), (5.0, 10.0)], "b": [(0.0, 1.0)]}
    found = history(faults, 4, (0.0, 10.0))
    assert found.down == 9.0
    assert found.availability == pytest.approx(1 - 9 / 40)


def test_events_pair_by_node_and_kind_and_lone_ends_are_counted():
    events = [
        ("a", 1.0, True, "hw", "gpu"),
        ("a", 2.0, True, "hw", "gpu"),
        ("a", 3.0, False, "hw", "gpu"),  # closes the start at 1.0
        ("a", 4.0, False, "hw", "fan"),  # nothing to close
    ]
    faults, n_lone = pair(events)
    assert [(f.start, f.end) for f in faults] == [(1.0, 3.0), (2.0, None)]
    assert n_lone == 1


def test_the_window_is_ten_minutes_before_to_five_after_with_both_ends():
    events = [
        NodeEvent("n1", 1000 - 601, "xid", "critical", 79),  # 10:01 before: out
        NodeEvent("n1", 1000 - 600, "xid", "critical", 79),
        NodeEvent("n1", 1000 + 300, "link_down", "critical"),
        NodeEvent("n1", 1000 + 301, "link_down", "critical"),  # 5:01 after: out
        NodeEvent("n2", 1000.0, "ecc", "critical"),  # not the job's node
        NodeEvent("n1", 990.0, "thermal", "warning"),
        NodeEvent("n1", 990.0, "other", "info"),  # informs only
    ]
    found = attribute(1000.0, ["n1"], events)
    assert [(a.offset_s, a.cause, a.is_primary, a.n_causes) for a in found] == [
        (-600.0, "NodeFailure", True, 3),  # Xid 79: off the bus; the most severe, then the earliest
        (300.0, "NetworkError", False, 3),
        (-10.0, "NodeFailure", False, 3),
    ]


def test_lost_work_is_half_an_hour_at_most_and_second_order_preemption_stands_apart():
    runs = [
        run("a0", "FAILED", 0, 2 * H, cause="ECCError", lineage_id="L", nodes=("n1",)),  # loses 0.5 h × 8
        run("b", "FAILED", 0, 600, cause="KeyError"),  # ran ten minutes: loses 1/6 h × 8
        run("a1", "COMPLETED", 3 * H, 9 * H, lineage_id="L", nodes=("n2",)),  # the restart of a0 takes n2
        run("p", "PREEMPTED", 0, 3 * H - 30, nodes=("n2", "n3"), n_gpus=16),  # ended 30 s before: second order
        run("q", "PREEMPTED", 0, 5 * H, nodes=("n2",)),  # nobody restarted then: first order
        run("c", "CANCELLED", 0, 9 * H),  # cut short by its user: loses nothing
    ]
    lost = lost_goodput(runs)
    assert lost.by_cause == pytest.approx({"ECCError": 4.0, "KeyError": 8 / 6})
    assert lost.second_order == pytest.approx(8.0)
    assert lost.second_order_jobs == (("p", "a1"),)
    assert lost.preempted == pytest.approx(4.0)
    assert lost.total == pytest.approx(4 + 8 / 6 + 8 + 4)


def test_measured_ettr_takes_out_queue_start_up_and_repeated_iterations():
    attempts = [
        run("a0", "FAILED", 600, 4200, submitted_at=0.0),  # queue 600 s, ran 3,600 s
        run("a1", "COMPLETED", 4800, 8400, submitted_at=4500.0),  # queue 300 s, ran 3,600 s
    ]
    steps = {
        "a0": Steps(1, 300, 610.0 + 290, 10.0),  # first iteration printed after 300 s, 10 s of which were its own
        "a1": Steps(281, 600, 4800.0 + 130, 10.0),  # repeats 20 iterations; 120 s of start-up
    }
    found = measured_ettr(attempts, steps)
    assert (found.queue_s, found.running_s) == (900.0, 7200.0)
    assert found.lost_s == pytest.approx(290 + 200 + 120)
    assert found.ettr == pytest.approx((7200 - 610) / 8100)
    assert found.is_progress_known


def test_unknown_progress_is_assumed_and_never_more_than_the_run():
    short = measured_ettr([run("a", "FAILED", 0, 60)], {})
    assert short.lost_s == 60.0
    assert not short.is_progress_known
    cut = measured_ettr([run("a", "TIMEOUT", 0, 10 * H)], {})
    assert cut.is_censored
    assert cut.lost_s == 300.0  # the restart only: a time limit is not a failure
    assert math.isnan(measured_ettr([], {}).ettr)


@pytest.mark.parametrize(("state", "outcome"), [("COMPLETED", "success"), ("FAILED", "failure"), ("NODE_FAIL", "failure"), ("OUT_OF_MEMORY", "failure"),
                                                ("CANCELLED", "censored"), ("TIMEOUT", "censored"), ("PREEMPTED", "censored"), ("UNKNOWN", "unknown"), ("odd", "unknown")])  # fmt: skip
def test_states_count_as(state, outcome):
    assert outcome_of(state) is Outcome(outcome)


def test_shares_are_told_by_count_and_by_gpu_time():
    runs = [
        run("a", "FAILED", 0, 9 * H, cause="NVLinkError"),
        run("b", "FAILED", 0, H, cause="TypeError"),
        run("c", "FAILED", 0, H, cause="TypeError"),
        run("d", "COMPLETED", 0, H),
    ]
    first, second = failure_parts(runs)
    assert (first.name, first.by_count.n_events, first.by_count.exposure, round(first.share_of_gpu_time, 4)) == (
        "TypeError",
        2,
        3.0,
        0.1818,
    )
    assert (second.name, second.jobs, round(second.share_of_gpu_time, 4)) == ("NVLinkError", ("a",), 0.8182)
    assert [p.name for p in state_parts(runs)] == ["FAILED", "COMPLETED"]
    assert (category_of("NVLinkError"), category_of("TypeError"), category_of("new")) == (
        "infrastructure",
        "script",
        "undetermined",
    )


def test_straggler_waste_weighs_by_gpu_hours():
    found = straggler_waste([(1.0, 10.0), (1.25, 30.0), (2.0, 10.0), (float("nan"), 5.0)])
    assert found.n_jobs == 3
    assert found.wasted_gpu_hours == pytest.approx(0 + 0.2 * 30 + 0.5 * 10)
    assert found.share_of_gpu_hours == pytest.approx(11 / 50)
    assert found.share_slow.n_events == 2


def fleet_with_lemons(seed: int) -> tuple[list[NodeRecord], set[str]]:
    """400 machines at 0.01 failures a day for about 25 days; eight of them at 0.4."""
    random.seed(seed)
    lemons = {f"n{i:03}" for i in random.sample(range(400), 8)}
    records = []
    for i in range(400):
        node, days = f"n{i:03}", random.uniform(20, 28)
        failures = sum(random.random() < (0.4 if node in lemons else 0.01) for _ in range(int(days)))
        records.append(
            NodeRecord(node, days, failures, {"xid_cnt": failures + random.randint(0, 1), "multi_node_node_fails": failures})
        )
    return records, lemons


def test_injected_lemons_are_found_and_healthy_machines_are_not():
    found = wrong = 0
    for seed in range(10):
        records, lemons = fleet_with_lemons(seed)
        named = {v.record.node for v in judge(records) if v.is_lemon}
        found += len(named & lemons)
        wrong += len(named - lemons)
    # published accuracy is above 85 %; here 80 lemons in ten fleets of 400
    assert found >= 72
    assert wrong <= found * 0.05


def test_a_busy_machine_is_not_a_lemon_and_says_what_fired():
    records = [NodeRecord(f"n{i}", 10.0, 1, {"xid_cnt": 1}) for i in range(30)]
    records.append(NodeRecord("busy", 100.0, 9, {"xid_cnt": 9}))  # nine failures, but ten times the work
    records.append(NodeRecord("bad", 5.0, 9, {"xid_cnt": 30, "out_count": 3}))
    verdicts = {v.record.node: v for v in judge(records)}
    assert not verdicts["busy"].is_lemon
    assert verdicts["bad"].is_lemon
    assert verdicts["bad"].fired == ("xid_cnt", "out_count")
    assert not any(v.is_lemon for v in judge([NodeRecord("only", 3.0, 1, {"xid_cnt": 5})]))


def test_weeks_split_exposure_and_count_failures_where_they_end():
    monday = 4 * DAY + 7 * DAY * 2900
    runs = [run("a", "FAILED", monday - DAY, monday + DAY), run("b", "CANCELLED", monday, monday + DAY)]
    before, after = weekly(runs)
    assert (before.rate.n_events, before.rate.exposure) == (0, pytest.approx(1.0))
    assert (after.rate.n_events, after.rate.exposure, after.n_censored, after.failed_jobs) == (1, pytest.approx(2.0), 1, ("a",))


def test_a_doubling_rate_is_a_trend_and_a_flat_one_is_not():
    up = trend([(5, 100.0), (10, 100.0), (20, 100.0), (40, 100.0)])
    assert up is not None
    assert up.factor.value == pytest.approx(2.0, rel=1e-6)
    assert up.factor.low < 2 < up.factor.high
    assert up.p_value < 1e-6
    flat = trend([(10, 100.0), (20, 200.0), (10, 100.0)])
    assert flat is not None
    assert flat.p_value == pytest.approx(1.0)
    assert trend([(1, 10.0), (2, 10.0), (1, 10.0)]) is None


def test_a_change_of_version_is_compared_with_the_version_before():
    runs = [run(f"a{i}", "FAILED" if i < 2 else "COMPLETED", i * DAY, (i + 1) * DAY, version="v1") for i in range(40)]
    runs += [run(f"b{i}", "FAILED" if i < 20 else "COMPLETED", (50 + i) * DAY, (51 + i) * DAY, version="v2") for i in range(40)]
    (change,) = version_changes(runs)
    assert (change.before, change.after) == ("v1", "v2")
    assert change.comparison.ratio.value == pytest.approx(10.0)
    assert change.q_value < 0.001
