"""PyTorch flight-recorder dumps, pickled or JSON: the collectives that one rank enqueued, started and completed.

A dump gives a row an entry, and a row a process group that says how far its rank had come in it: a rank that has
nothing in its buffer still says so. Group rows have no `op` and negative record ids; they alone carry the group's ranks,
which would weigh too much on every entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.flight_recorder_dump import Dump, Group, document_in, dump_of, group_of, is_dump_name, rank_and_host
from jobs.adapters.stacks_samples import frame, plain

_BATCH = 4096
_MAX_FRAMES = 128
_MAX_SIZES = 64
_WORDS = (b"pg_config", b"pg_status", b"profiling_name", b"collective_seq_id", b"time_created_ns")
_STATES = ("scheduled", "started", "completed")
_COLUMNS = (
    "job_id", "node", "rank", "record_id", "pg_id", "group", "group_ranks", "sequence", "is_p2p", "op", "input_sizes",
    "output_sizes", "input_dtypes", "output_dtypes", "state", "created_at", "started_at", "completed_at", "duration_ms",
    "timeout_ms", "frames", "last_enqueued", "last_started", "last_completed", "file",
)  # fmt: skip


@dataclass
class _Books:
    n_read: int = 0
    n_kept: int = 0
    times: list[datetime] = field(default_factory=list)


class FlightRecorderAdapter:
    """Reads dumps into `collectives`."""

    name = "flight_recorder"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """By the words of a dump; a pickle with a dump's name is taken too, so that a hostile one is refused here."""
        name = PurePosixPath(path).name
        n_words = sum(word in head for word in _WORDS)
        start = head.lstrip()[:1]
        if head[:1] == b"\x80":
            return 0.95 if n_words >= 2 else 0.6 if is_dump_name(name) else 0.35
        if start in (b"{", b"["):
            return 0.9 if n_words >= 2 else 0.0
        is_old_pickle = head[:1] in b"(c]}" and (b"\n" in head[:200] or len(head) < 64)
        is_named = is_dump_name(name) or name.lower().endswith((".pkl", ".pickle"))
        return 0.5 if is_named and head and (is_old_pickle or n_words) else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`collectives` rows, what was refused, and the books: a record is an entry of the buffer."""
        document = document_in(stream)
        dump = document if isinstance(document, Problem) else dump_of(document)
        if isinstance(dump, Problem):
            yield dump
            yield Tally(dump.n_records, 0)
            return
        rank, host = rank_and_host(PurePosixPath(context.path).name)
        rank = context.rank if rank is None else rank
        if rank is None:
            yield Problem("bad_value", 0, max(1, len(dump.entries)), "no rank in the file's name: name dumps …_RANK")
            yield Tally(max(1, len(dump.entries)), 0)
            return
        place = {p.rank: p.node for p in context.placements}
        shared = {
            "job_id": context.job_id,
            "file": context.path,
            "rank": rank,
            "node": context.node or place.get(rank) or host,
        }
        books = _Books()
        yield from _entry_batches(dump, shared, books)
        first, last = (min(books.times), max(books.times)) if books.times else (None, None)
        yield Tally(books.n_read, books.n_kept, first, last)


def _entry_batches(dump: Dump, shared: dict[str, Any], books: _Books) -> Iterator[Parsed]:
    batch: list[dict[str, Any]] = []
    for number, entry in enumerate(dump.entries):
        books.n_read += 1
        books.n_kept += 1
        row = _entry_row(entry, number, dump)
        if row["created_at"] is not None:
            books.times.append(row["created_at"])
            books.times = [min(books.times), max(books.times)] if len(books.times) > 64 else books.times
        batch.append(row)
        if len(batch) >= _BATCH:
            yield _rows(batch, shared)
            batch = []
    batch += [_group_row(-1 - number, group, dump) for number, group in enumerate(dump.groups.values())]
    if batch:
        yield _rows(batch, shared)


def _entry_row(entry: Mapping[str, Any], number: int, dump: Dump) -> dict[str, Any]:
    name, description = group_of(entry)
    group = dump.groups.get(name) or Group(name, description, ())
    op = plain(entry.get("profiling_name"))
    is_p2p = entry.get("is_p2p") is True or _is_point_to_point(op)
    sequence = _whole(entry.get("p2p_seq_id") if is_p2p else entry.get("collective_seq_id"))
    state = plain(entry.get("state"), 16)
    record = _whole(entry.get("record_id"))
    return {
        "record_id": number if record is None else record,
        "pg_id": plain(entry.get("pg_id")) or None,
        "group": group.label,
        "group_ranks": [],
        "sequence": _whole(entry.get("seq_id")) if sequence is None else sequence,
        "is_p2p": is_p2p,
        "op": op or None,
        "input_sizes": _sizes(entry.get("input_sizes")),
        "output_sizes": _sizes(entry.get("output_sizes")),
        "input_dtypes": _words(entry.get("input_dtypes")),
        "output_dtypes": _words(entry.get("output_dtypes")),
        "state": state if state in _STATES else None,
        "created_at": _at(entry.get("time_created_ns")),
        "started_at": _at(entry.get("time_discovered_started_ns")),
        "completed_at": _at(entry.get("time_discovered_completed_ns")),
        "duration_ms": _real(entry.get("duration_ms")),
        "timeout_ms": _real(entry.get("timeout_ms")),
        "frames": _frames(entry.get("frames")),
        **_progress(dump.status.get(name, {})),
    }


def _group_row(record_id: int, group: Group, dump: Dump) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(_COLUMNS)
    return empty | {
        "record_id": record_id,
        "group": group.label,
        "group_ranks": list(group.ranks),
        "is_p2p": False,
        "frames": [],
        **_progress(dump.status.get(group.name, {})),
    }


def _progress(status: Mapping[str, Any]) -> dict[str, int | None]:
    return {f"last_{word}": _whole(status.get(f"last_{word}_collective")) for word in ("enqueued", "started", "completed")}


def _rows(batch: list[dict[str, Any]], shared: dict[str, Any]) -> Rows:
    return Rows("collectives", {name: [(row | shared).get(name) for row in batch] for name in _COLUMNS})


def _is_point_to_point(op: str) -> bool:
    return re.search(r":(?:send|recv)\b", op) is not None


def _frames(value: Any) -> list[str]:
    """Frames outermost first: a dump has them innermost first."""
    frames = [f for f in value if isinstance(f, dict)][:_MAX_FRAMES] if isinstance(value, list) else []
    return [frame(f.get("name"), f.get("filename"), f.get("line")) for f in reversed(frames)]


def _sizes(value: Any) -> str | None:
    if not isinstance(value, (list, tuple)):
        return None
    shapes = [
        [n for n in shape[:16] if isinstance(n, int) and abs(n) < 1 << 62] if isinstance(shape, (list, tuple)) else []
        for shape in value[:_MAX_SIZES]
    ]
    return orjson.dumps(shapes).decode()


def _words(value: Any) -> str | None:
    if not isinstance(value, (list, tuple)):
        return None
    return orjson.dumps([plain(word, 32) for word in value[:_MAX_SIZES]]).decode()


def _at(value: Any) -> datetime | None:
    number = _whole(value)
    if number is None or not 1e17 < number < 4.2e18:
        return None
    return datetime.fromtimestamp(number // 1000 / 1e6, UTC)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _real(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


ADAPTERS = (FlightRecorderAdapter(),)
