"""Figures from runs without Spark: scheduler rows of others load, every figure carries what it must, censoring counts."""

from __future__ import annotations

import random

import pytest

from jobs.adapters.sacct import scheduler_jobs
from jobs.reliability.machines import faults_of, machine_figures, node_rows
from jobs.reliability.over_time import Lineage, fleet_figures
from ml.reliability.outcomes import Run

DAY = 86400.0
H = 3600.0


def fleet(seed: int, n: int = 300) -> list[Run]:
    """Jobs of 8 to 1,024 GPUs over eight weeks, failing at 0.02 a node-day; some cancelled, some timed out, two code versions."""
    source = random.Random(seed)
    runs = []
    for i in range(n):
        nodes, start = source.choice((1, 2, 16, 128)), source.uniform(0, 56) * DAY
        life, planned, cut = source.expovariate(0.02 * nodes) * DAY, source.uniform(2, 40) * H, source.uniform(2, 200) * H
        end = min(life, planned, cut)
        state = "FAILED" if end == life else "COMPLETED" if end == planned else source.choice(("CANCELLED", "TIMEOUT"))
        runs.append(Run(f"j{i:03}", state, start, start + end, start - 600, nodes * 8, nodes, cause="ECCError" if state == "FAILED" else "undetermined",
                        lineage_id=f"l{i:03}", version="v1" if start < 28 * DAY else "v2"))  # fmt: skip
    return runs


def by_key(rows: list[dict]) -> dict[tuple[str, str, str, str], dict]:
    return {(r["figure"], r["scope_kind"], r["scope"], r["basis"]): r for r in rows}


def test_every_figure_carries_interval_exposure_source_and_method():
    rows = fleet_figures(
        fleet(1), [Lineage("l", 2, 100.0, 90.0), Lineage("m", 1, 50.0, 20.0)], [("j000", 1.2, 10.0), ("j001", 1.0, 30.0)]
    )
    assert len({(r["figure"], r["scope_kind"], r["scope"], r["basis"]) for r in rows}) == len(rows)
    for row in rows:
        assert row["method"]
        assert row["unit"]
        assert row["exposure"] is not None
        assert row["exposure_unit"]
        assert row["n_source_rows"] >= len(row["source_rows"])
        assert row["is_small"] == (row["n_events"] < 10)
        if row["value"] is not None and row["low"] is not None and row["high"] is not None:
            assert row["low"] - 1e-9 <= row["value"] <= row["high"] + 1e-9, row
    named = {r["figure"] for r in rows}
    assert {"failures_per_node_day", "infrastructure_failures_per_node_day", "mttf_h", "state_share_by_count", "state_share_by_gpu_time", "cause_share_by_count",
            "cause_share_by_gpu_time", "category_share_by_count", "lost_goodput_gpu_h", "ettr", "optimal_checkpoint_interval_min", "straggler_waste_share",
            "failures_per_node_day_week", "failure_rate_factor_per_week", "failure_rate_ratio"} <= named  # fmt: skip


def test_the_known_rate_is_inside_the_interval_though_many_runs_are_cut_short():
    held = 0
    for seed in range(20):
        row = by_key(fleet_figures(fleet(seed), [], []))["failures_per_node_day", "fleet", "all", "measured"]
        held += row["low"] <= 0.02 <= row["high"]
        assert row["n_censored"] > 10
    assert held >= 17  # 95 % intervals: 19 of 20 on average


def test_measured_and_projected_times_to_failure_stand_apart():
    rows = by_key(fleet_figures(fleet(3), [], []))
    measured, projected = (rows["mttf_h", "n_gpus", "1024", basis] for basis in ("measured", "projected"))
    assert measured["exposure_unit"] == "job-hours"
    assert projected["exposure_unit"] == "node-days"
    assert measured["value"] == pytest.approx(24 / (0.02 * 128), rel=0.6)
    assert "assumes" in projected["method"]


def test_scheduler_rows_of_others_become_runs_and_figures(shared_data):
    runs = {}
    for name in (
        "sample-sacct-multiple-multiline",
        "sample-sacct-output-midnight-edge-case",
        "sample-sacct-output-invalid-utf8",
        "sample-sacct-output",
    ):
        for key, job in scheduler_jobs(str(shared_data / "slurm" / f"{name}.txt")).items():
            r = job.record()
            times = [None if t is None else t.timestamp() for t in (r.started_at, r.ended_at, r.submitted_at)]
            runs[key] = Run(r.job_id, str(r.state), *times, n_gpus=r.n_gpus or 0, n_nodes=len(r.nodes), nodes=tuple(r.nodes))
    counted = [r for r in runs.values() if r.running_s > 0 and r.outcome.value != "unknown"]
    assert len(runs) > 300
    assert len(counted) > 5
    rows = by_key(fleet_figures(list(runs.values()), [], []))
    fleet_row = rows["failures_per_node_day", "fleet", "all", "measured"]
    assert fleet_row["exposure"] == pytest.approx(sum(r.node_days for r in counted))
    assert fleet_row["n_events"] == sum(r.outcome.value == "failure" for r in counted)
    assert fleet_row["n_censored"] == sum(r.outcome.value == "censored" for r in counted)
    shares = [row for key, row in rows.items() if key[0] == "state_share_by_count"]
    assert sum(row["n_events"] for row in shares) == len(counted)
    large = rows["failures_per_node_day", "n_gpus", "more than 128", "measured"]
    assert large["n_events"] == 1  # one of 1,024 GPUs failed; the others of more than 128 were requeued and cancelled
    assert large["n_censored"] == 2


def test_a_drained_machine_is_down_until_a_job_runs_there_again():
    events = [(10.0, "drain", "warning", ""), (50.0, "link_down", "critical", "mlx5_0"), (60.0, "link_up", "info", "mlx5_1"), (70.0, "link_up", "info", "mlx5_0"),
              (90.0, "thermal", "critical", "")]  # fmt: skip
    faults = faults_of("n1", events, [5.0, 40.0])
    assert [(round(f.start * DAY), None if f.end is None else round(f.end * DAY), f.kind) for f in faults] == [
        (10, 40, "drain"),
        (50, 70, "link_down"),
    ]


def test_machine_figures_have_intervals_and_say_when_there_is_nothing():
    machine = {"n_jobs": 3, "exposure_days": 20.0, "n_failures": 0, "jobs": [], "starts": [], "events": [], "excl_jobid_count": 0.0, "xid_cnt": 0.0, "tickets": 0.0,
               "out_count": 0.0, "multi_node_node_fails": 0.0, "single_node_node_fails": 0.0, "single_node_node_failure_rate": 0.0}  # fmt: skip
    down = {"at": 5 * DAY, "kind": "drain", "severity": "warning", "device": None}
    machines = [{**machine, "node": f"n{i}"} for i in range(9)] + [{**machine, "node": "n9", "events": [down], "starts": [7 * DAY]}]
    nodes, faults = node_rows(machines, (0.0, 28 * DAY))
    rows = by_key(machine_figures(nodes, faults, (0.0, 28 * DAY)))
    assert rows["availability", "fleet", "all", "measured"]["value"] == pytest.approx(1 - 2 / 280)
    assert rows["availability", "fleet", "all", "measured"]["low"] < 1 - 2 / 280
    assert rows["repair_median_days", "fleet", "all", "measured"]["value"] == pytest.approx(2.0)
    assert rows["repair_median_days", "fleet", "all", "measured"]["is_small"]
    assert rows["lemon_nodes", "fleet", "all", "measured"]["value"] == 0
    assert machine_figures([], [], (0.0, 1.0)) == []
