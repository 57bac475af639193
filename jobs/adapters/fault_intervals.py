"""Histories of faults as JSON: begins and ends of faults of nodes, with what broke, as fleets keep and publish them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import ijson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.json_depth import Shallow
from jobs.adapters.stamps import from_epoch, from_us, parse_iso

NODE_KEYS = ("node_id", "node", "host", "hostname", "server")
TIME_KEYS = ("event_time", "timestamp", "time", "occurred_at")
KIND_KEYS = ("event_type", "type", "event")
FAULT_KEYS = ("fault_type", "fault", "reason", "cause")
_BEGINS_OR_ENDS = re.compile(r"(?i)fault|fail|start|begin|end|recover|repair")
_KINDS = (
    ("xid", r"\bxid\b"), ("ecc", r"\becc\b|double bit|single bit|row remap"), ("link_down", r"link (?:is )?down|link lost"),
    ("nvlink", r"nvlink|nvswitch"), ("pcie", r"pcie|\bbus\b"),
    ("thermal", r"therm|temperature|overheat|fan"), ("power", r"power|psu"),
    ("oom_kill", r"out of memory|\boom\b"), ("io_error", r"\bdisk\b|nvme|\bssd\b|i/o"), ("filesystem", r"file ?system|mount"),
    ("reboot", r"reboot|restart|crash"),
)  # fmt: skip
_PATTERNS = tuple((kind, re.compile(f"(?i){pattern}")) for kind, pattern in _KINDS)
BATCH = 10_000
MAX_TEXT = 2000


@dataclass(frozen=True)
class FaultIntervalsAdapter:
    """A JSON list of fault events. Times that are no dates (days since some start) stay in the message, the time is null."""

    name: str = "fault_intervals"
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """A list of objects that name a node, and that something began or ended there."""
        start = head.lstrip()[:4096]
        if not start.startswith((b"[", b"{")) or not any(f'"{key}"'.encode() in start for key in NODE_KEYS):
            return 0.0
        has_kind = any(f'"{key}"'.encode() in start for key in KIND_KEYS)
        has_fault = any(f'"{key}"'.encode() in start for key in FAULT_KEYS)
        return 0.85 if start.startswith(b"[") and has_kind and has_fault else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`node_events`, one an event; `byte_offset` is the event's number."""
        rows: dict[str, list[Any]] = {}
        n_read = n_understood = 0
        times: list[int] = []
        try:
            for number, record in enumerate(ijson.items(Shallow(stream), "item", use_float=True)):
                n_read += 1
                event = _event(record, context)
                if event is None:
                    yield Problem("bad_value", number, 1, "no node, or nothing that began or ended", str(record)[:64].encode())
                    continue
                n_understood += 1
                times += [event["occurred_at"]] if event["occurred_at"] is not None else []
                for name, value in {**event, "byte_offset": number}.items():
                    rows.setdefault(name, []).append(value)
                if len(rows["node"]) >= BATCH:
                    yield Rows("node_events", rows)
                    rows = {}
        except (ijson.JSONError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            n_read += 1
            yield Problem("broken_json", n_read, 1, str(error)[:200])
        if rows:
            yield Rows("node_events", rows)
        yield Tally(n_read, n_understood, from_us(min(times, default=None)), from_us(max(times, default=None)))


def _event(record: Any, context: FileContext) -> dict[str, Any] | None:
    if not isinstance(record, dict):
        return None
    node, kind, fault = (_first(record, keys) for keys in (NODE_KEYS, KIND_KEYS, FAULT_KEYS))
    if not isinstance(node, str) or not isinstance(kind, str) or not _BEGINS_OR_ENDS.search(kind):
        return None
    time = _first(record, TIME_KEYS)
    at_us = from_epoch(time) if isinstance(time, int | float) and not isinstance(time, bool) else None
    if isinstance(time, str):
        at_us = parse_iso(time, context.zone)
    told = ", ".join(str(v) for v in fault.values()) if isinstance(fault, dict) else str(fault or "")
    is_end = bool(re.search(r"(?i)end|recover|repair", kind))
    named = next((name for name, pattern in _PATTERNS if pattern.search(told[:MAX_TEXT])), "other")
    since = "" if at_us is not None or time is None else f" at {time}"
    return {
        "node": node[:256],
        "occurred_at": at_us,
        "kind": named,
        "severity": "info" if is_end else "critical" if "ardware" in told or named != "other" else "warning",
        "message": f"{kind}{since}: {told}"[:MAX_TEXT],
    }


def _first(record: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((record[key] for key in keys if key in record), None)


ADAPTERS = (FaultIntervalsAdapter(),)
