"""The stages `log_diffs` and `diagnoses` on literal rows: three good runs, one of the same kind that lost a rank."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.core import lake as reader
from jobs.core.runner import Given, run_stage
from jobs.core.stages import stage
from jobs.core.tables import Lake

pytestmark = pytest.mark.spark
START = datetime(2026, 5, 1, tzinfo=UTC)
NODES = ("n0", "n1")
GOOD, BAD = ("job-1", "job-2", "job-3"), "job-9"
LOST = "RuntimeError: Connection closed by peer [<*>]:<*>"
TEXTS = {
    "banner": ("initializing process group", None),
    "step": ("iteration <*>/ 120 | loss: <*>", None),
    "exit": ("failed (exitcode: -9) local_rank: <*> (pid: <*>) of binary: <*>", "signal"),
    "lost": (LOST, "connection"),
}


def put(root: str, name: str, rows: list[dict[str, Any]]) -> None:
    write_deltalake(reader.table_path(root, name), pa.Table.from_pylist(rows, schema=reader.arrow_schema(name)), mode="append")


def job(job_id: str) -> dict[str, Any]:
    state = "FAILED" if job_id == BAD else "COMPLETED"
    return {
        "job_id": job_id, "state": state, "exit_code": int(job_id == BAD), "started_at": START, "ended_at": START + timedelta(seconds=120),
        "nodes": list(NODES), "world_size": 4, "config": [], "flags": [], "notes": [], "coverage": [("logs", 1.0)], "job_hash": "x", "ingest_batch": 1,
    }  # fmt: skip


def rank(job_id: str, number: int) -> dict[str, Any]:
    node = NODES[number // 2]
    return {
        "job_id": job_id,
        "rank": number,
        "node": node,
        "local_rank": number % 2,
        "role": "trainer",
        "groups": [("dp", [0, 1, 2, 3])],
    }


def event(job_id: str, template: str, second: float, node: str, number: int | None, message: str, line: int) -> dict[str, Any]:
    at = START + timedelta(seconds=second)
    return {
        "job_id": job_id, "file": f"logs/{node}/{'agent' if number is None else number}.log", "line": line, "byte_offset": line * 100, "n_lines": 1,
        "occurred_at": at, "time_uncertainty_s": 0.0, "node": node, "rank": number, "role": "launcher" if number is None else "trainer", "attempt": 0,
        "stream": "agent" if number is None else "stderr", "message": message, "message_key": len(template), "phase": "train", "iteration": 50,
        "template_id": template, "ingest_batch": 1, "library_version": "1",
    }  # fmt: skip


def count(job_id: str, template: str, node: str, n: int, ranks: list[int]) -> dict[str, Any]:
    return {
        "job_id": job_id, "template_id": template, "role": "trainer", "node": node, "n_events": n, "first_at": START, "last_at": START + timedelta(seconds=60),
        "last_iteration": 100 if job_id != BAD else 50, "ranks": ranks, "rank_ranges": "", "n_ranks": len(ranks), "phases": [("train", n)], "levels": [],
        "streams": [], "alert": TEXTS[template][1],
    }  # fmt: skip


def fill(root: str) -> None:
    jobs = (*GOOD, BAD)
    put(root, "training_jobs", [job(j) for j in jobs])
    put(root, "ranks", [rank(j, r) for j in jobs for r in range(4)])
    put(root, "templates", [
        {"template_id": t, "template": text, "alert": alert, "is_predefined": False, "n_events": 1, "n_jobs": 1, "library_version": "1"}
        for t, (text, alert) in TEXTS.items()
    ])  # fmt: skip
    normal = {
        "n_jobs": 3,
        "n_lineages": 3,
        "n_users": 1,
        "n_configs": 1,
        "n_nodes": 2,
        "n_events": 9,
        "is_normal": True,
        "library_version": "1",
    }
    put(
        root,
        "normal_templates",
        [{"template_id": t, "phase_profile": [], "role_profile": [], "roles": [], **normal} for t in ("banner", "step")],
    )
    put(root, "baselines", [
        {"job_id": BAD, "position": i, "baseline_job_id": g, "score": 0.9, "differing": [{"key": "lr", "this": "1", "baseline": "2"}]}
        for i, g in enumerate(GOOD, 1)
    ])  # fmt: skip
    put(root, "job_templates", [
        *[count(j, "banner", n, 2, [2 * i, 2 * i + 1]) for j in jobs for i, n in enumerate(NODES)],
        *[count(j, "step", "n0", 100 if j != BAD else 50, [0]) for j in jobs],
        count(BAD, "exit", "n1", 1, []), *[count(BAD, "lost", NODES[r // 2], 1, [r]) for r in (0, 1, 3)],
    ])  # fmt: skip
    put(root, "log_events", [
        event(BAD, "banner", 1, "n0", 0, "initializing process group", 1),
        event(BAD, "exit", 60, "n1", None, "failed (exitcode: -9) local_rank: 0 (pid: 71) of binary: /usr/bin/python", 2),
        *[event(BAD, "lost", 64 + r, NODES[r // 2], r, LOST.replace("<*>", "7"), 10 + r) for r in (0, 1, 3)],
    ])  # fmt: skip
    put(root, "iterations", [
        {"job_id": BAD, "node": "n0", "rank": 0, "iteration": i, "occurred_at": START + timedelta(seconds=i), "loss": 2.0, "values": [], "file": "f", "line": i + 1}
        for i in range(10, 60, 10)
    ])  # fmt: skip


def rows(root: str, name: str, job_id: str = BAD) -> list[dict[str, Any]]:
    return reader.rows(root, name, filters=[("job_id", "=", job_id)]).to_pylist()


def test_a_night_from_counts_to_a_diagnosis(lake: Lake):
    fill(lake.root)
    for name in ("log_diffs", "diagnoses"):
        run_stage(stage(name), lake, Given())
    logs = {r["kind"]: r for r in rows(lake.root, "log_findings")}
    assert (logs["rank_exit_signal"]["nodes"], logs["rank_exit_signal"]["ranks"]) == (["n1"], [2])
    assert logs["peer_lost"]["is_echo"]
    assert (logs["alert_signal"]["template_id"], logs["alert_signal"]["in_baselines"]) == ("exit", False)
    assert not any(r["template_id"] in ("banner", "step") for r in logs.values())
    assert {r["iteration"] for r in rows(lake.root, "onsets") if r["kind"] == "onset"} == {50}

    found = rows(lake.root, "diagnoses")[0]
    document = json.loads(found["document"])
    assert (found["symptom"], found["spatial_signal"], found["top_node"], found["top_ranks"]) == ("crash", "localised", "n1", [2])
    assert [b["job_id"] for b in document["baselines"]] == list(GOOD)
    assert document["templates"][0]["example"].startswith("failed (exitcode: -9)")
    assert {rows(lake.root, "diagnoses", g)[0]["symptom"] for g in GOOD} == {"none"}
    assert all(json.loads(rows(lake.root, "diagnoses", g)[0]["document"])["candidates"] == [] for g in GOOD)

    # the same night once more, with the same bytes
    run_stage(stage("log_diffs"), lake, Given(refresh=True))
    run_stage(stage("diagnoses"), lake, Given(refresh=True))
    assert rows(lake.root, "diagnoses")[0]["document"] == found["document"]
