"""What runs inside Spark's workers, on Arrow tables made by hand: no session needed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from jobs.reliability.lineages import lineage_maker
from jobs.reliability.transform import _attribute, figure_maker, fleet_maker

DAY = 86400.0


def run_row(job_id: str, state: str, start: float, end: float, **more: object) -> dict:
    return {"job_id": job_id, "state": state, "started_at": start, "ended_at": end, "submitted_at": start - 100, "n_gpus": 8, "n_nodes": 1, "nodes": ["n1"],
            "lineage_id": "L", "attempt": 0, "cause": "undetermined", "version": "v1", "is_infrastructure": False, "save_interval": None, **more}  # fmt: skip


def test_events_in_the_window_become_attributions():
    base = {"job_id": "a", "ended_at_s": 1000.0, "node": "n1", "device": None, "code": None, "file": "k"}
    rows = [
        {**base, "at_s": 990.0, "kind": "thermal", "severity": "warning", "byte_offset": 1},
        {**base, "at_s": 995.0, "kind": "xid", "severity": "critical", "code": 79, "byte_offset": 2},
    ]
    found = _attribute(pa.Table.from_pylist(rows)).to_pylist()
    assert [(r["kind"], r["is_primary"], r["offset_s"], r["n_causes"], r["byte_offset"]) for r in found] == [
        ("xid", True, -5.0, 2, 2),
        ("thermal", False, -10.0, 2, 1),
    ]
    assert found[0]["occurred_at"].isoformat() == "1970-01-01T00:16:35+00:00"


def test_a_lineage_of_one_attempt_without_logs_says_what_was_assumed():
    nothing = dict.fromkeys(("first_iteration", "last_iteration", "first_iteration_at", "step_time_s"))
    (row,) = lineage_maker(0.01)(pa.Table.from_pylist([{**run_row("a", "FAILED", 1000.0, 1000.0 + 7200), **nothing}])).to_pylist()
    assert row["lost_s"] == pytest.approx(300 + 1800)
    assert row["ettr_measured"] == pytest.approx((7200 - 2100) / 7300)
    assert "assumed" in row["method"]
    assert row["source_rows"] == ["a"]


def test_machines_become_rows_and_figures():
    machine = {"node": "n1", "n_jobs": 2, "exposure_days": 3.0, "n_failures": 1, "jobs": ["a"], "starts": [0.0], "multi_node_node_fails": 0.0, "single_node_node_fails": 1.0,
               "single_node_node_failure_rate": 0.5, "xid_cnt": 2.0, "tickets": None, "out_count": 1.0, "excl_jobid_count": None,
               "events": [{"at": 5 * DAY, "kind": "drain", "severity": "warning", "device": None}]}  # fmt: skip
    out = fleet_maker((0.0, 28 * DAY))(pa.table({"kind": ["machine"], "payload": [json.dumps(machine)]})).to_pylist()
    (node,) = [json.loads(r["payload"]) for r in out if r["kind"] == "node"]
    assert node["features"]["xid_cnt"] == 2.0
    assert node["window_end_at"] == "1970-01-29T00:00:00+00:00"
    assert node["down_days"] == pytest.approx(23.0)
    figures = [json.loads(r["payload"]) for r in out if r["kind"] == "figure"]
    assert {"availability", "failures_per_day_of_work", "lemon_nodes"} <= {f["figure"] for f in figures}


def test_facts_become_figures_in_any_order():
    runs = [
        ("run", json.dumps(run_row(f"j{i}", "FAILED" if i % 3 == 0 else "COMPLETED", i * 1e5, i * 1e5 + 7e4))) for i in range(12)
    ]
    facts = [*runs, ("lineage", json.dumps({"lineage_id": "L", "n_nodes": 1.0, "wall_s": 100.0, "running_s": 90.0, "lost_s": 10.0})),
             ("straggler", json.dumps({"job_id": "j1", "slowdown": 1.5, "gpu_hours": 3.0}))]  # fmt: skip
    made = [
        figure_maker(pa.table({"kind": [k for k, _ in rows], "payload": [p for _, p in rows]})).to_pylist()
        for rows in (facts, facts[::-1])
    ]
    assert made[0] == made[1]
    by_name = {f["figure"]: f for f in (json.loads(r["payload"]) for r in made[0])}
    assert by_name["straggler_waste_share"]["value"] == pytest.approx(1 / 3)
    assert by_name["failures_per_node_day"]["n_events"] == 4
