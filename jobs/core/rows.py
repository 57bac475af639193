"""Rows of tables as the typed things of `ml`, and findings as rows: plain Python, the same for every stage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from ml.log_diffs.topology import Finding, Job, Place


def listed(value: Any) -> list[Any]:
    """A list column, however the reader gives it; null is empty."""
    return [] if value is None else list(value)


def pairs(mapping: Any) -> list[tuple[Any, Any]]:
    """Items of a map column, however the reader gives it (dict or list of pairs), sorted by key."""
    if mapping is None:
        return []
    items = mapping.items() if isinstance(mapping, Mapping) else mapping
    return sorted(((k, v) for k, v in items), key=lambda item: str(item[0]))


def number(value: Any) -> int | None:
    """An int, or None for null and NaN."""
    return None if value is None or (isinstance(value, float) and not np.isfinite(value)) else int(value)


def seconds(at: datetime | None) -> float | None:
    """Seconds since 1970 of a UTC time; null stays None."""
    if at is None or pd.isna(at):
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def instant(at: float | None) -> datetime | None:
    """A UTC time of seconds since 1970, to the microsecond."""
    return None if at is None or not np.isfinite(at) else datetime.fromtimestamp(round(at, 6), UTC)


def job_of(row: Mapping[str, Any], ranks: Iterable[Mapping[str, Any]]) -> Job:
    """A `training_jobs` row with its `ranks` rows."""
    places = tuple(
        Place(
            int(r["rank"]), r.get("node"), number(r.get("local_rank")), r.get("device"), r.get("switch"), r.get("role"),
            {kind: tuple(int(x) for x in members) for kind, members in pairs(r.get("groups")) if members is not None},
        )
        for r in sorted(ranks, key=lambda r: int(r["rank"]))
    )  # fmt: skip
    return Job(
        str(row["job_id"]),
        str(row["state"]),
        number(row.get("exit_code")),
        {n: number(c) for n, c in pairs(row.get("node_exit_codes"))},
        seconds(row.get("started_at")),
        seconds(row.get("ended_at")),
        tuple(listed(row.get("nodes"))) or tuple(dict.fromkeys(p.node for p in places if p.node)),
        places,
        number(row.get("world_size")),
        {k: float(v) for k, v in pairs(row.get("coverage")) if v is not None},
        tuple(listed(row.get("flags"))),
        tuple(listed(row.get("notes"))),
    )


def finding_of(row: Mapping[str, Any], table: str) -> Finding:
    """A row of a findings table."""
    return Finding(
        row["source"],
        row["axis"],
        row["kind"],
        row["statement"],
        float(row["score"]),
        tuple(str(n) for n in listed(row.get("nodes"))),
        tuple(int(r) for r in listed(row.get("ranks"))),
        tuple(str(d) for d in listed(row.get("devices"))),
        row.get("group_kind"),
        bool(row["is_echo"]),
        bool(row["is_global"]),
        seconds(row.get("at")),
        number(row.get("iteration")),
        row.get("phase"),
        row.get("subject"),
        tuple((r["file"], number(r.get("line"))) for r in listed(row.get("refs"))),
        table,
    )


def finding_id(job_id: str, finding: Finding) -> str:
    """The same finding has the same id in every run."""
    scope = f"{sorted(finding.nodes)}{sorted(finding.ranks)}{sorted(finding.devices)}{finding.iteration}"
    return hashlib.sha256(f"{job_id}|{finding.kind}|{finding.subject}|{scope}".encode()).hexdigest()[:16]


def finding_row(job_id: str, finding: Finding) -> dict[str, Any]:
    """A row of `FINDING_COLUMNS`."""
    return {
        "job_id": job_id,
        "finding_id": finding_id(job_id, finding),
        "source": finding.source,
        "axis": finding.axis,
        "kind": finding.kind,
        "nodes": list(finding.nodes),
        "ranks": list(finding.ranks),
        "devices": list(finding.devices),
        "group_kind": finding.group_kind,
        "score": float(min(1.0, max(0.0, finding.score))),
        "is_echo": finding.is_echo,
        "is_global": finding.is_global,
        "at": instant(finding.at),
        "iteration": finding.iteration,
        "phase": finding.phase,
        "statement": finding.statement,
        "subject": finding.subject,
        "refs": [{"file": file, "line": line} for file, line in finding.refs],
    }


def distinct(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by finding id, the strongest of each, in order of id."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = best.get(row["finding_id"])
        if known is None or row["score"] > known["score"]:
            best[row["finding_id"]] = row
    return [best[key] for key in sorted(best)]
