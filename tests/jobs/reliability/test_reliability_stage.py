"""The reliability stage over a lake written row by row, and its command."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.core.lake import arrow_schema, rows, table_path

pytestmark = pytest.mark.spark

T0 = datetime(2026, 11, 2, tzinfo=UTC)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def put(lake, name: str, given: list[dict]) -> None:
    whole = [{f.name: row.get(f.name) for f in arrow_schema(name)} for row in given]
    write_deltalake(table_path(lake.root, name), pa.Table.from_pylist(whole, schema=arrow_schema(name)), mode="overwrite")


def job(job_id: str, state: str, start: float, end: float, nodes: list[str], **more: object) -> dict:
    return {
        "job_id": job_id, "state": state, "submitted_at": at(start - 0.5), "started_at": at(start), "ended_at": at(end), "nodes": nodes, "n_nodes": len(nodes),
        "world_size": 8 * len(nodes), "n_gpus": 8 * len(nodes), "flags": [], "notes": [], "job_hash": "h", "ingest_batch": 1,
        "config": [("code_version", "v1"), ("hyperparameters.save_interval", "100")], **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def computed(module_lake):
    """Six jobs: a lineage that failed once, a node failure, a cancelled one, a pre-empted one; Xid 79 on n2 a minute before an end."""
    put(module_lake, "training_jobs", [
        job("a0", "FAILED", 0, 24, ["n1", "n2"], lineage_id="L", attempt=0),
        job("a1", "COMPLETED", 25, 49, ["n1", "n3"], lineage_id="L", attempt=1),
        job("b", "NODE_FAIL", 0, 12, ["n4"]),
        job("c", "CANCELLED", 0, 48, ["n5"]),
        job("d", "PREEMPTED", 0, 25, ["n3"]),  # a1, the restart of a failed job, takes n3
        job("e", "FAILED", 50, 51, ["n5"]),  # a user's mistake
    ])  # fmt: skip
    put(module_lake, "diagnoses", [
        {"job_id": "a0", "state": "FAILED", "symptom": "crash", "cause_class": "undetermined", "cause_confidence": 0.0, "spatial_signal": "localised", "top_node": "n2",
         "top_score": 0.8, "top_ranks": [], "n_candidates": 1, "candidate_nodes": ["n2"], "n_findings": 1, "n_baselines": 0, "is_verified": False, "document": "{}"},
        {"job_id": "e", "state": "FAILED", "symptom": "crash", "cause_class": "KeyError", "cause_confidence": 0.9, "spatial_signal": "none", "top_ranks": [],
         "n_candidates": 0, "candidate_nodes": [], "n_findings": 1, "n_baselines": 0, "is_verified": False, "document": "{}"},
    ])  # fmt: skip
    put(module_lake, "node_events", [
        {"job_id": None, "node": "n2", "occurred_at": at(24 - 1 / 60), "kind": "xid", "code": 79, "severity": "critical", "message": "fell off the bus", "file": "k", "byte_offset": 1},
        {"job_id": None, "node": "n1", "occurred_at": at(24 - 11 / 60), "kind": "ecc", "severity": "critical", "message": "too early", "file": "k", "byte_offset": 2},
        {"job_id": None, "node": "n2", "occurred_at": at(24), "kind": "drain", "severity": "warning", "message": "drained", "file": "k", "byte_offset": 3},
    ])  # fmt: skip
    put(module_lake, "iterations", [
        {"job_id": j, "iteration": i, "occurred_at": at(h), "step_time_s": 60.0, "file": "f", "line": i}
        for j, i, h in (("a0", 1, 1.0), ("a0", 1000, 23.9), ("a1", 901, 25.5), ("a1", 2000, 48.9))
    ])  # fmt: skip
    put(module_lake, "straggler_reports", [{"job_id": "a1", "slowdown": 1.25, "waste": 0.2, "gpu_hours": 384.0, "notes": []}])
    from jobs.core.runner import StageContext
    from jobs.core.stages import stage
    from jobs.reliability.job import run

    run(StageContext(stage("reliability"), module_lake, None, 1))
    return module_lake


def test_every_table_says_what_the_rows_say(computed):
    figures = {
        (r["figure"], r["scope_kind"], r["scope"], r["basis"]): r for r in rows(computed.root, "reliability_figures").to_pylist()
    }
    fleet = figures["failures_per_node_day", "fleet", "all", "measured"]
    # node-days: a0 2, a1 2, b 0.5, c 2, d 25/24, e 1/24; failures: a0, b, e; cut short: c, d
    assert fleet["exposure"] == pytest.approx(2 + 2 + 0.5 + 2 + 25 / 24 + 1 / 24)
    assert (fleet["n_events"], fleet["n_censored"], fleet["source_rows"], fleet["is_small"]) == (3, 2, ["a0", "b", "e"], True)
    assert fleet["low"] < fleet["value"] < fleet["high"]
    caused = figures["infrastructure_failures_per_node_day", "fleet", "all", "measured"]
    assert caused["source_rows"] == ["a0", "b"]  # Xid 79 in the window, and NODE_FAIL; the user's mistake is not infrastructure
    assert figures["lost_goodput_gpu_h", "preemption", "second order", "measured"]["source_rows"] == ["d"]
    assert figures["lost_goodput_gpu_h", "cause_class", "NodeFailure", "measured"]["value"] == pytest.approx(
        8.0
    )  # a0: half an hour of 16
    assert figures["straggler_waste_share", "fleet", "all", "measured"]["value"] == pytest.approx(0.2)
    assert ("mttf_h", "n_gpus", "16384", "projected") in figures
    assert figures["mttf_h", "n_gpus", "8", "measured"]["value"] == pytest.approx((12 + 48 + 25 + 1) / 2)

    near = {(r["job_id"], r["kind"]): r for r in rows(computed.root, "reliability_attributions").to_pylist()}
    assert set(near) == {("a0", "xid"), ("a0", "drain")}
    assert near["a0", "xid"]["is_primary"]
    assert near["a0", "xid"]["cause_class"] == "NodeFailure"
    assert near["a0", "xid"]["offset_s"] == pytest.approx(-60)

    lineage = next(r for r in rows(computed.root, "reliability_lineages").to_pylist() if r["lineage_id"] == "L")
    # start-up 1 h and 0.5 h less a step of 60 s each, and iterations 901 to 1,000 done twice
    assert lineage["lost_s"] == pytest.approx(3540 + 1740 + 100 * 60)
    assert lineage["wall_s"] == pytest.approx(49 * 3600)
    assert lineage["ettr_measured"] == pytest.approx(1 - (1 * 3600 + 3540 + 1740 + 6000) / (49 * 3600))
    assert lineage["checkpoint_interval_s"] == pytest.approx(6000)
    assert 0 < lineage["ettr_expected"] < 1

    nodes = {r["node"]: r for r in rows(computed.root, "reliability_nodes").to_pylist()}
    assert (nodes["n2"]["n_failures"], nodes["n2"]["source_rows"]) == (1, ["a0"])
    assert dict(nodes["n2"]["features"])["xid_cnt"] == 1
    assert nodes["n2"]["down_days"] == pytest.approx((51 - 24) / 24)  # drained, and no job since
    assert nodes["n5"]["n_failures"] == 0
    assert not any(r["is_lemon"] for r in nodes.values())  # one failure accuses nobody


def test_the_command_prints_every_figure_with_interval_exposure_and_sources(computed):
    from jobs.cli.reliability import command

    said = json.loads(CliRunner().invoke(command, ["--lake", computed.root, "--json"]).output)
    assert {"figures", "lemons", "lineages", "attributions"} == set(said)
    for row in said["figures"]:
        assert {
            "value",
            "low",
            "high",
            "unit",
            "n_events",
            "n_censored",
            "exposure",
            "exposure_unit",
            "source_table",
            "source_rows",
            "method",
        } <= set(row)
    text = CliRunner().invoke(command, ["--lake", computed.root], env={"COLUMNS": "220"}).output
    assert "failures_per_node_day" in text
    assert "fewer than ten events" in text
    missing = CliRunner().invoke(command, ["--lake", computed.root, "--figure", "nonsense"])
    assert "no figure nonsense" in str(missing.exception)
