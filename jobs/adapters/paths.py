"""What a file's path says of it: node, rank, attempt, stream, and which job it belongs to when no record says so."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from jobs.adapters.stamps import parse_iso

_ATTEMPT = re.compile(r"(?:^|[/_.-])(?:attempt|cycle|restart)[_-]?(\d{1,4})(?=[/_.-]|$)")
_RANK = re.compile(r"(?:^|[/_.-])rank[_-]?(\d{1,6})(?=[/_.-]|$)", re.I)
_FAR_RANK = re.compile(r"_rank_(?:.*_)?(\d{1,6})$")
_LOCAL = re.compile(r"(?:^|/)(?:attempt_\d{1,4}/(\d{1,4})/[^/]+|workerlog\.(\d{1,4}))$")
_TORCHRUN = re.compile(r"(?:^|/)([^/]+)/[^/]+/attempt_\d{1,4}/\d{1,4}/[^/]+$")
_AGENT = re.compile(r"(?:^|/)([^/]+)/agent\.log(?:\.\w+)?$")
_COMPRESSED = (".gz", ".zst", ".xz", ".bz2")
_JOB_IDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"_(\d+)_date_", r"[/\\]job_(\d+)[/\\]", r"slurm-(\d+(?:_\d+)?)\.(?:out|err|log)$", r"[/\\](\d{6,})\.(?:out|err|log)$",
        r"[_-](\d{6,})\.(?:out|err|log)$",
    )
)  # fmt: skip
"""Rules by which files name their Slurm job, tried in this order (NVRx reads them alike)."""
_FILE_STAMP = re.compile(r"(\d{4})[._-]?(\d\d)[._-]?(\d\d)[T._-]?(\d\d)[._:-]?(\d\d)[._:-]?(\d\d)(?!\d)")
_DATE_STAMP = re.compile(r"_date_(\d\d)-(\d\d)-(\d\d)_time_(\d\d)-(\d\d)-(\d\d)")


@dataclass(frozen=True)
class PathFacts:
    """Null where the path does not say."""

    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    stream: str | None = None
    role: str | None = None


def bare_name(path: str) -> str:
    """The file's name without what compression added.

    >>> bare_name("logs/rank7.log.gz")
    'rank7.log'
    """
    name = path.rsplit("/", 1)[-1]
    for suffix in _COMPRESSED:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name


def facts_of(path: str, nodes: Collection[str] = ()) -> PathFacts:
    """What a path inside a job's folder says; `nodes` are the names that are known to be hosts."""
    path = path.replace("!", "/")
    name = bare_name(path)
    stem = name.rsplit(".", 1)[0] if "." in name else name
    attempt = _ATTEMPT.search(path)
    local = _LOCAL.search(path)
    rank = _RANK.search(path.rsplit("/", 1)[-1]) or _FAR_RANK.search(name)
    is_agent = name.startswith("agent.")
    return PathFacts(
        node=_node(path, stem, nodes),
        rank=int(rank.group(1)) if rank else None,
        local_rank=int(local.group(1) or local.group(2)) if local else None,
        attempt=int(attempt.group(1)) if attempt else None,
        stream=_stream(name, stem, is_agent),
        role="launcher" if is_agent else None,
    )


def _node(path: str, stem: str, nodes: Collection[str]) -> str | None:
    pieces = [*PurePosixPath(path).parts[:-1], stem]
    known = next((piece for piece in pieces if piece in nodes), None)
    if known:
        return known
    found = _TORCHRUN.search(path) or _AGENT.search(path)
    if found and found.group(1) not in ("logs", "log", "stdout"):
        return found.group(1)
    return (
        next((node for node in nodes if node and re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", path)), None)
        if len(nodes) < 2048
        else None
    )


def _stream(name: str, stem: str, is_agent: bool) -> str:
    if is_agent:
        return "agent"
    if stem in ("stdout", "stderr"):
        return stem
    return {".out": "stdout", ".err": "stderr"}.get("." + name.rsplit(".", 1)[-1], "other")


def job_id_in(path: str) -> str | None:
    """The Slurm job id that a file's name gives."""
    for pattern in _JOB_IDS:
        found = pattern.search("/" + path)
        if found:
            return found.group(1)
    return None


def stamp_in(path: str, zone: str = "UTC") -> int | None:
    """Microseconds of the time in a file's name: `2022.09.25-23-35-14.log`, `_date_26-05-17_time_11-00-58`."""
    name = path.rsplit("/", 1)[-1]
    if dated := _DATE_STAMP.search(name):
        year, month, day, hour, minute, second = dated.groups()
        return parse_iso(f"20{year}-{month}-{day} {hour}:{minute}:{second}", zone)
    if stamped := _FILE_STAMP.search(name):
        year, month, day, hour, minute, second = stamped.groups()
        return parse_iso(f"{year}-{month}-{day} {hour}:{minute}:{second}", zone)
    return None
