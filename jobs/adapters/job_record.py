"""`job.json` and `job.yaml`: who, what, when, where, how it ended. Only its id and state are needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
import yaml

from jobs.adapters.base import Placement, Problem
from jobs.adapters.stamps import from_epoch, from_us, parse_iso
from schemas.training_jobs import STATES

NAMES = ("job.json", "job.yaml", "job.yml")
MAX_BYTES = 64 << 20
MAX_DEPTH = 64
_SHORT = {
    "CD": "COMPLETED",
    "F": "FAILED",
    "CA": "CANCELLED",
    "TO": "TIMEOUT",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED",
    "BF": "BOOT_FAIL",
    "DL": "DEADLINE",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "SUCCEEDED": "COMPLETED",
    "SUCCESS": "COMPLETED",
    "CANCELED": "CANCELLED",
    "ERROR": "FAILED",
    "OUT_OF_ME": "OUT_OF_MEMORY",
}
RUNNING = ("RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING", "R", "PD")


def state_of(word: object) -> str:
    """A state in Slurm's words, `UNKNOWN` for none of them.

    >>> state_of("CANCELLED by 1234"), state_of("oom"), state_of(None)
    ('CANCELLED', 'OUT_OF_MEMORY', 'UNKNOWN')
    """
    first = str(word or "").strip().upper().replace(" ", "_")
    first = first.split("_BY_")[0].rstrip("+")
    first = _SHORT.get(first, first)
    return first if first in STATES else "UNKNOWN"


def is_running(word: object) -> bool:
    """Whether a state says that the job has not ended."""
    return str(word or "").strip().upper() in RUNNING


@dataclass
class JobRecord:
    """What a record said of a job; empty where it said nothing or something impossible (`problems`, `flags`)."""

    job_id: str | None = None
    state: str = "UNKNOWN"
    is_settled: bool = True
    name: str | None = None
    user: str | None = None
    cluster: str | None = None
    partition: str | None = None
    exit_code: int | None = None
    node_exit_codes: dict[str, int] = field(default_factory=dict)
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    nodes: list[str] = field(default_factory=list)
    world_size: int | None = None
    n_gpus: int | None = None
    lineage_id: str | None = None
    attempt: int | None = None
    ranks: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    zone: str = "UTC"
    problems: list[Problem] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    has_record: bool = False

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where each rank ran."""
        return tuple(Placement(r["rank"], r["node"], r["local_rank"], r["role"]) for r in self.ranks)


def flatten(value: Any, prefix: str = "", depth: int = 0) -> dict[str, str]:
    """Nested configuration as dotted keys and texts.

    >>> flatten({"parallel": {"tp": 2}, "extra": []})
    {'parallel.tp': '2', 'extra': '[]'}
    """
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat.update(flatten(inner, f"{prefix}.{key}" if prefix else str(key), depth + 1))
        return flat
    if not prefix:
        return {}
    if isinstance(value, str):
        return {prefix: value}
    if isinstance(value, float):
        return {prefix: repr(value)}  # NaN stays NaN
    try:
        return {prefix: orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS).decode()}
    except TypeError:  # YAML anchors may nest a value in itself
        return {prefix: "<contains itself>"}


def parse(name: str, data: bytes) -> JobRecord:
    """The record in the bytes of `job.json` or `job.yaml`; never raises: what is wrong becomes a problem."""
    record = JobRecord()
    loaded, problem = _load(name, data)
    if problem:
        record.problems.append(problem)
        return record
    record.has_record = True
    for key, target in (
        ("name", "name"),
        ("user", "user"),
        ("cluster", "cluster"),
        ("partition", "partition"),
        ("lineage_id", "lineage_id"),
    ):
        if isinstance(loaded.get(key), str | int):
            setattr(record, target, str(loaded[key]))
    job_id = loaded.get("job_id")
    record.job_id = str(job_id) if isinstance(job_id, str | int) and str(job_id).strip() else None
    record.state, record.is_settled = state_of(loaded.get("state")), not is_running(loaded.get("state"))
    zone = loaded.get("zone", loaded.get("time_zone"))
    record.zone = zone if isinstance(zone, str) else "UTC"
    for key, target in (("submit_time", "submitted_at"), ("start_time", "started_at"), ("end_time", "ended_at")):
        setattr(record, target, _time(loaded.get(key), record))
    for key in ("exit_code", "world_size", "n_gpus", "attempt"):
        setattr(record, key, _whole(loaded.get(key), key, record, signed=key == "exit_code"))
    codes = loaded.get("node_exit_codes")
    record.node_exit_codes = (
        {str(k): int(v) for k, v in codes.items() if isinstance(v, int) and abs(v) < 1 << 31} if isinstance(codes, Mapping) else {}
    )
    record.nodes = _strings(loaded.get("nodes"))
    record.ranks = _ranks(loaded.get("ranks"), record)
    record.config = flatten(loaded.get("config")) if isinstance(loaded.get("config"), Mapping) else {}
    return record


def _load(name: str, data: bytes) -> tuple[dict[str, Any], Problem | None]:
    is_json = name.endswith(".json")
    reason = "broken_json" if is_json else "broken_yaml"
    if len(data) > MAX_BYTES:
        return {}, Problem("too_long", 0, 1, f"{name} is larger than {MAX_BYTES} bytes")
    try:
        loaded = _json(data.removeprefix(b"\xef\xbb\xbf")) if is_json else yaml.safe_load(data.decode("utf-8", "replace"))
    except (orjson.JSONDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        return {}, Problem(reason, 0, 1, f"{name}: {str(error)[:200]}", data[:64])
    if not isinstance(loaded, dict):
        return {}, Problem(reason, 0, 1, f"{name} holds no object", data[:64])
    return loaded, None


def _json(data: bytes) -> Any:
    """JSON, with what Python's own writer leaves in it beyond the standard: NaN, Infinity, numbers of any size."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def _time(value: Any, record: JobRecord) -> datetime | None:
    if isinstance(value, datetime):
        value = value.isoformat()
    us = (
        from_epoch(float(value) if abs(value) < 1 << 63 else 0.0)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else parse_iso(str(value), record.zone)
    )
    if us is None and value not in (None, "", "Unknown", "None"):
        record.flags.add("bad_time")
    return from_us(us)


def _whole(value: Any, key: str, record: JobRecord, signed: bool = False) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -(1 << 40)
    if abs(number) >= 1 << 31 or (number < 0 and not signed):
        record.problems.append(Problem("bad_type", 0, 0, f"{key} is no {'number' if signed else 'count'}: ignored"))
        return None
    return number


def _strings(value: Any) -> list[str]:
    return [str(item) for item in value if isinstance(item, str | int)] if isinstance(value, list) else []


def _ranks(value: Any, record: JobRecord) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for entry in value if isinstance(value, list) else []:
        rank = entry.get("rank") if isinstance(entry, Mapping) else None
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < 1 << 31 or rank in found:
            record.problems.append(Problem("bad_value", 0, 0, "an entry of ranks has no usable rank: ignored"))
            continue
        local = entry.get("local_rank")
        found[rank] = {
            "rank": rank,
            "local_rank": local if isinstance(local, int) and 0 <= local < 1 << 31 else None,
            "groups": _groups(entry.get("groups")),
            **{key: str(entry[key]) if entry.get(key) is not None else None for key in ("node", "device", "nic", "switch", "role")},
        }
    return [found[rank] for rank in sorted(found)]


def _groups(value: Any) -> list[tuple[str, list[int]]]:
    if not isinstance(value, Mapping):
        return []
    return [(str(k), _integers(v)) for k, v in value.items() if isinstance(v, list)]


def _integers(values: Iterable[Any]) -> list[int]:
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 31]
