"""Findings of the other packages for bench/diagnose_lab.py, as their stages would write them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

Tables = dict[str, pa.Table]


def findings(tables: Tables, peers: list[Tables]) -> list[dict[str, Any]]:
    """Rows of operation_findings, stack_findings, collective_findings and machine_scores."""
    return [*operations(tables, peers), *stacks(tables), *machines(tables, peers)]


def operations(tables: Tables, peers: list[Tables]) -> list[dict[str, Any]]:
    from ml.operations.job import Place, analyse_job

    if not len(tables["operations"]):
        return []
    rows = tables["operations"].to_pandas()
    rows = rows[rows["source"] == "timeline"]
    ranks = tables["ranks"].to_pylist()
    place = Place(
        {r["rank"]: r["node"] for r in ranks},
        {r["rank"]: r["role"] or "" for r in ranks},
        {r["rank"]: dict(r["groups"] or ()) for r in ranks},
    )
    found = analyse_job(rows, place).findings
    return [
        row(
            "operations",
            "operation_findings",
            f.axis,
            f.kind,
            f.nodes,
            f.ranks,
            f.score,
            f.statement,
            f.subject,
            at=f.at_s,
            iteration=f.iteration,
            is_echo=f.is_echo,
            is_global=f.is_global,
            group_kind=f.group_kind,
        )
        for f in found
    ]


def stacks(tables: Tables) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    from jobs.stacks.assemble import finding_rows, samples_of

    samples, job = tables["stack_samples"].to_pylist(), tables["training_jobs"].to_pylist()[0]
    if not samples:
        return []
    times = [s["sampled_at"] for s in samples if s["sampled_at"]]
    logs = tables["log_records"]
    own = logs.filter(pc.and_(pc.is_valid(logs["rank"]), pc.not_equal(pc.fill_null(logs["stream"], ""), "agent")))
    seconds = {int(at.timestamp()) for at in own["occurred_at"].to_pylist() if at and min(times) <= at <= max(times)}
    facts = {
        "state": job["state"],
        "ended_at": job["ended_at"],
        "world_size": job["world_size"],
        "ranks": tables["ranks"].to_pylist(),
        "iterations": [{"at": i["occurred_at"], "iteration": i["iteration"]} for i in tables["iterations"].to_pylist()],
        "logs": sorted(seconds),
    }
    return [{**r, "table": "stack_findings"} for r in finding_rows(job["job_id"], samples_of(samples), facts)]


def machines(tables: Tables, peers: list[Tables]) -> list[dict[str, Any]]:
    import numpy as np

    from jobs.machine_scores.rows import KINDS
    from ml.machines.score import score_job
    from ml.machines.series import Series

    if "machine_metrics" not in tables or not len(tables["machine_metrics"]):
        return []
    series = [
        Series(m["node"], m["device"], m["metric"], m["unit"], int(m["grid_start_at"].timestamp() * 1e6), m["period_s"],
               np.array([np.nan if v is None else v for v in m["values"]]))
        for m in tables["machine_metrics"].to_pylist()
    ]  # fmt: skip
    ranks = tables["ranks"].to_pylist()
    scored = score_job(series, {r["node"]: r["role"] or "trainer" for r in ranks}, {}, ranks[0]["node"] if ranks else None)
    return [
        row(
            "metrics",
            "machine_scores",
            "spatial",
            KINDS[m.aspect],
            [m.node],
            [],
            m.score,
            f"{m.node} differs from its peers in {m.metric} ({m.aspect})",
            m.metric,
            at=m.window_start_us / 1e6,
            is_global=m.is_global,
        )
        for m in scored.rows
        if m.score >= 0.1
    ]


def row(
    source: str,
    table: str,
    axis: str,
    kind: str,
    nodes: Any,
    ranks: Any,
    score: float,
    statement: str,
    subject: str | None,
    **more: Any,
) -> dict[str, Any]:
    at = more.pop("at", None)
    return {
        "source": source,
        "axis": axis,
        "kind": kind,
        "nodes": list(nodes),
        "ranks": list(ranks),
        "devices": [],
        "group_kind": None,
        "score": score,
        "is_echo": False,
        "is_global": False,
        "at": None if at is None else datetime.fromtimestamp(at, UTC),
        "iteration": None,
        "phase": None,
        "statement": statement,
        "subject": subject,
        "refs": [],
        "table": table,
        **more,
    }
