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
        {r["rank"]: r["node"] for r in ranks}, {r["rank"]: r["role"] or "" for r in ranks}, {r["rank"]: dict(r["groups"] or ()) for r in ranks}
    )
    found = analyse_job(rows, place).findings
    return [
        row("operations", "operation_findings", f.axis, f.kind, f.nodes, f.ranks, f.score, f.statement, f.subject, at=f.at_s, iteration=f.iteration,
            is_echo=f.is_echo, is_global=f.is_global, group_kind=f.group_kind)
        for f in found
    ]  # fmt: skip


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
        "state": job["state"], "ended_at": job["ended_at"], "world_size": job["world_size"], "ranks": tables["ranks"].to_pylist(),
        "iterations": [{"at": i["occurred_at"], "iteration": i["iteration"]} for i in tables["iterations"].to_pylist()], "logs": sorted(seconds),
    }  # fmt: skip
    return [{**r, "table": "stack_findings"} for r in finding_rows(job["job_id"], samples_of(samples), facts)]


def machines(tables: Tables, peers: list[Tables]) -> list[dict[str, Any]]:
    return []


def row(source: str, table: str, axis: str, kind: str, nodes: Any, ranks: Any, score: float, statement: str, subject: str | None, **more: Any) -> dict[str, Any]:
    at = more.pop("at", None)
    return {
        "source": source, "axis": axis, "kind": kind, "nodes": list(nodes), "ranks": list(ranks), "devices": [], "group_kind": None, "score": score,
        "is_echo": False, "is_global": False, "at": None if at is None else datetime.fromtimestamp(at, UTC), "iteration": None, "phase": None,
        "statement": statement, "subject": subject, "refs": [], "table": table, **more,
    }  # fmt: skip
