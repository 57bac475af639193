"""Events of nodes (kernel, driver, health checks, platform) as findings about the job during which they happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ml.log_diffs.topology import Finding, Job, is_nearly_all

BEFORE_S = 600.0
AFTER_S = 300.0
"""Attribution window around a job's end: a check counts from ten minutes before to five minutes after."""
SCORES = {
    "xid": 0.85,
    "sxid": 0.75,
    "ecc": 0.85,
    "link_down": 0.85,
    "oom_kill": 0.95,
    "io_error": 0.7,
    "filesystem": 0.7,
    "thermal": 0.6,
    "power": 0.8,
    "hung_task": 0.7,
    "lockup": 0.85,
    "segfault": 0.85,
    "pcie": 0.75,
    "nvlink": 0.8,
    "reboot": 0.9,
    "health_check": 0.6,
    "drain": 0.5,
    "link_up": 0.2,
    "other": 0.1,
}
SEVERITIES = {"critical": 1.0, "warning": 0.75, "info": 0.4}
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 69})
"""Xids that a faulty program raises as well as a faulty device."""


@dataclass(frozen=True)
class NodeEvent:
    """One event of one node; `at` in seconds since 1970."""

    node: str | None
    device: str | None
    at: float | None
    kind: str
    code: int | None
    severity: str
    message: str
    file: str | None = None


def event_findings(job: Job, events: Sequence[NodeEvent]) -> list[Finding]:
    """One finding a node, kind and code, for events within the job's attribution window; the first event speaks."""
    chosen: dict[tuple[str, str, int | None], list[NodeEvent]] = {}
    for event in events:
        if event.node in job.nodes and _is_near(job, event):
            chosen.setdefault((event.node or "", event.kind, event.code), []).append(event)
    by_kind: dict[tuple[str, int | None], set[str]] = {}
    for node, kind, code in chosen:
        by_kind.setdefault((kind, code), set()).add(node)
    found = []
    for (node, kind, code), group in sorted(chosen.items(), key=lambda item: tuple(str(part) for part in item[0])):
        is_global = len(job.nodes) > 1 and is_nearly_all(len(by_kind[kind, code]), len(job.nodes))
        found.append(_finding(job, node, kind, code, group, is_global))
    return found


def _is_near(job: Job, event: NodeEvent) -> bool:
    if event.at is None or job.ended_at is None:
        return True
    start = job.started_at if job.started_at is not None else job.ended_at - BEFORE_S
    return min(start, job.ended_at - BEFORE_S) <= event.at <= job.ended_at + AFTER_S


def _finding(job: Job, node: str, kind: str, code: int | None, group: list[NodeEvent], is_global: bool) -> Finding:
    first = min(group, key=lambda e: (e.at or 0.0, e.message))
    score = SCORES.get(kind, 0.1) * SEVERITIES.get(first.severity, 0.5)
    if kind == "xid" and code in APPLICATION_XIDS:
        score *= 0.7
    number = f" {code}" if code is not None else ""
    times = f", {len(group)} times" if len(group) > 1 else ""
    devices = tuple(sorted({e.device for e in group if e.device}))
    ranks = tuple(p.rank for p in job.places if p.node == node and p.device in devices) if devices else ()
    return Finding(
        "node_events",
        "spatial",
        "node_event",
        f"{node} reported {kind}{number}{times}: {first.message.strip()[:200]}",
        round(score, 4),
        (node,),
        ranks,
        devices,
        is_echo=False,
        is_global=is_global,
        at=first.at,
        subject=kind,
        refs=((first.file, None),) if first.file else (),
        table="node_events",
    )
