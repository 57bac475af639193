"""PyTorch flight-recorder dumps, pickled or JSON: the collectives that one rank enqueued, started and completed.

A dump gives a row an entry, and a row a process group that says how far its rank had come in it: a rank that has
nothing in its buffer still says so. Group rows have no `op`, and negative record ids.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.flight_recorder_pickle import MAX_BYTES, CorruptPickleError, UnsafePickleError, plain_data
from jobs.adapters.stacks_samples import frame, plain

_BATCH = 4096
_MAX_ENTRIES = 1 << 20
_MAX_RANKS = 1 << 20
_MAX_FRAMES = 128
_MAX_SIZES = 64
_NAME = re.compile(
    r"^(?P<lead>.*?(?:nccl_trace|comm_lib_trace|fr_trace|flight[_-]?recorder|nccl_dump|_?dump|fr).*?)"
    r"(?P<rank>\d{1,7})(?:\.(?:pkl|pickle|json|bin|dump))?(?:\.(?:gz|zst|xz|bz2))?$",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^.*?(?:nccl_trace|comm_lib_trace|fr_trace|flight[_-]?recorder|nccl_dump|_?dump|fr)[_\-.]?(?:rank)?[_\-.]?",
    re.IGNORECASE,
)
_WORDS = (b"pg_config", b"pg_status", b"profiling_name", b"collective_seq_id", b"time_created_ns")
_STATES = ("scheduled", "started", "completed")
_COLUMNS = (
    "job_id", "node", "rank", "record_id", "pg_id", "group", "group_ranks", "sequence", "is_p2p", "op", "input_sizes",
    "output_sizes", "input_dtypes", "output_dtypes", "state", "created_at", "started_at", "completed_at", "duration_ms",
    "timeout_ms", "frames", "last_enqueued", "last_started", "last_completed", "file",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """A process group as one rank's dump describes it."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """Name and description, as people know it."""
        return f"{self.name} {self.description}".strip()


@dataclass(frozen=True)
class Dump:
    """The parts of one dump that are used, whatever version wrote it."""

    version: str
    groups: dict[str, Group]
    status: dict[str, Mapping[str, Any]]
    entries: list[Mapping[str, Any]]


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
            return 0.95 if n_words >= 2 else 0.6 if _NAME.match(name) else 0.35
        if start in (b"{", b"["):
            return 0.9 if n_words >= 2 else 0.0
        is_old_pickle = head[:1] in b"(c]}" and (b"\n" in head[:200] or len(head) < 64)
        is_named = _NAME.match(name) or name.lower().endswith((".pkl", ".pickle"))
        return 0.5 if is_named and head and (is_old_pickle or n_words) else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`collectives` rows, what was refused, and the books: a record is an entry of the buffer."""
        document = _document(stream)
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


def _document(stream: BinaryIO) -> Any | Problem:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return Problem("too_long", MAX_BYTES, 1, f"a dump of more than {MAX_BYTES >> 20} MiB is not read")
    if not data.strip():
        return Problem("bad_value", 0, 1, "the dump is empty: its rank was stopped before it could write")
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            return Problem(
                "broken_json", int(getattr(error, "pos", 0)), 1, "the dump is cut off or is not JSON", data[:64]
            )
    try:
        return plain_data(data)
    except UnsafePickleError as error:
        return Problem("unsafe_pickle", error.offset, 1, f"blocked: {error}", data[:64])
    except CorruptPickleError as error:
        return Problem("corrupt_pickle", error.offset, 1, str(error), data[:64])


def dump_of(document: Any) -> Dump | Problem:
    """The dump in a document of any version: newer ones are objects, the first ones were a list of entries."""
    if isinstance(document, list):
        document = {"entries": document, "version": "1"}
    if not isinstance(document, dict) or not ({"entries", "pg_config", "pg_status"} & document.keys()):
        return Problem("bad_type", 0, 1, "not a flight-recorder dump: no entries and no group configuration")
    entries = document.get("entries")
    entries = [e for e in entries if isinstance(e, dict)][:_MAX_ENTRIES] if isinstance(entries, list) else []
    config = document.get("pg_config")
    groups = _groups(config if isinstance(config, dict) else {})
    status = document.get("pg_status")
    by_name = _status_by_name(groups, status if isinstance(status, dict) else {}, entries)
    return Dump(plain(document.get("version"), 32), groups, by_name, entries)


def _groups(config: Mapping[Any, Any]) -> dict[str, Group]:
    found = {}
    for key, value in config.items():
        if isinstance(value, dict):
            name = plain(value.get("name")) or plain(key)
            found[name] = Group(name, plain(value.get("desc")), ranks_of(value.get("ranks")))
    return found


def ranks_of(value: Any) -> tuple[int, ...]:
    """Ranks of a group from a list, or from the text of one; empty when it is neither.

    >>> ranks_of("[0, 2, 4]"), ranks_of("__import__('os')")
    ((0, 2, 4), ())
    """
    if isinstance(value, str):
        if not re.fullmatch(r"[\[(]?[\d,\s]{0,9000000}[\])]?", value):
            return ()
        try:
            value = ast.literal_eval(value) if value.strip() else []
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ()
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_RANKS:
        return ()
    return tuple(r for r in value if isinstance(r, int) and not isinstance(r, bool) and 0 <= r < 1 << 31)


def _status_by_name(
    groups: Mapping[str, Group], status: Mapping[Any, Any], entries: list[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Each group's progress by its name.

    The status is kept by a number that counts groups in order of their making; entries say which name has which
    number. A group without entries is found by its place in that order, when both sides have equally many groups
    and the entries do not contradict.
    """
    known = {str(e.get("pg_id")): group_of(e)[0] for e in entries if e.get("pg_id") is not None}
    usable = {str(key): value for key, value in status.items() if isinstance(value, dict)}
    by_name = {known[key]: value for key, value in usable.items() if key in known}
    numbers = sorted((key for key in usable if key.isdigit()), key=int)
    names = sorted((name for name in groups if name.isdigit()), key=int)
    if len(numbers) == len(names) == len(usable) == len(groups):
        paired = dict(zip(numbers, names))
        if all(paired.get(number, name) == name for number, name in known.items()):
            by_name |= {name: usable[number] for number, name in paired.items()}
    return by_name


def group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description of an entry's group; the oldest dumps know only its number."""
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return plain(group[0]), plain(group[1]) if len(group) > 1 else ""
    if isinstance(group, str):
        return plain(group), ""
    return plain(entry.get("pg_name")) or plain(entry.get("pg_id")) or "?", ""


def rank_and_host(name: str) -> tuple[int | None, str | None]:
    """Rank and host in a dump's file name: the last digits are the rank, what stands before them is the host.

    >>> rank_and_host("nccl_trace_rank_container-node02_5"), rank_and_host("_dump_14"), rank_and_host("x.json")
    ((5, 'container-node02'), (14, None), (None, None))
    """
    match = _NAME.match(name)
    if not match:
        digits = re.search(r"(\d{1,7})(?:\.(?:pkl|pickle|json))?$", name)
        return (int(digits[1]) if digits else None), None
    host = _LEAD.sub("", match["lead"]).strip("_-. ")
    return int(match["rank"]), host or None


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
        "group_ranks": list(group.ranks),
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
    return {
        f"last_{word}": _whole(status.get(f"last_{word}_collective")) for word in ("enqueued", "started", "completed")
    }


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
