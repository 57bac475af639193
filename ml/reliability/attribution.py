"""Which events of machines may have ended a job: those near its end on its own nodes; every one is kept, one is primary.

Source of the window: arXiv 2410.21680: a check that fired in the job's last ten minutes, or up to five minutes after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BEFORE_S = 600.0
AFTER_S = 300.0
SEVERITY = {"critical": 0, "warning": 1, "info": 2}

CAUSE_OF_KIND = {
    "xid": "CUDAError",
    "sxid": "NVLinkError",
    "nvlink": "NVLinkError",
    "ecc": "ECCError",
    "link_down": "NetworkError",
    "oom_kill": "OutOfMemory",
    "io_error": "OSError",
    "filesystem": "OSError",
    "thermal": "NodeFailure",
    "power": "NodeFailure",
    "hung_task": "NodeFailure",
    "lockup": "NodeFailure",
    "pcie": "NodeFailure",
    "reboot": "NodeFailure",
    "health_check": "NodeFailure",
    "drain": "NodeFailure",
    "segfault": "RuntimeError",
}
"""The class of the failure taxonomy that each kind of event stands for."""

XID_CAUSES = {
    **dict.fromkeys((48, 63, 64, 92, 94, 95), "ECCError"),
    74: "NVLinkError",
    79: "NodeFailure",
    **dict.fromkeys((13, 31, 43, 45, 68, 69), "RuntimeError"),
}
"""Xid numbers that say more than "CUDA": memory, NVLink, a device off the bus, and faults of the program itself."""


@dataclass(frozen=True)
class NodeEvent:
    """One event: seconds since 1970, kind, severity, code (Xid or exit code), and the key of its row."""

    node: str
    at: float
    kind: str
    severity: str
    code: int | None = None
    key: str = ""


@dataclass(frozen=True)
class Attribution:
    """An event within the window of a job's end; `offset_s` is negative before the end."""

    event: NodeEvent
    offset_s: float
    cause: str
    is_primary: bool
    n_causes: int


def cause_of(event: NodeEvent) -> str:
    """The class of cause that an event stands for."""
    if event.kind == "xid" and event.code in XID_CAUSES:
        return XID_CAUSES[event.code]
    return CAUSE_OF_KIND.get(event.kind, "undetermined")


def attribute(ended_at: float, nodes: Sequence[str], events: Sequence[NodeEvent]) -> list[Attribution]:
    """The events on these nodes from ten minutes before the end to five minutes after, both ends included, the primary one first.

    Primary is the most severe, then the earliest. Events that only inform, and links that came back, are never a cause.
    """
    own = set(nodes)
    near = [
        e
        for e in events
        if e.node in own and -BEFORE_S <= e.at - ended_at <= AFTER_S and e.severity != "info" and e.kind != "link_up"
    ]
    near.sort(key=lambda e: (SEVERITY.get(e.severity, 3), e.at, e.node, e.kind, e.key))
    return [Attribution(e, e.at - ended_at, cause_of(e), i == 0, len(near)) for i, e in enumerate(near)]
