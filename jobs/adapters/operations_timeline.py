"""Operation time lines as JSON Lines: one object an operation, with its step, its name, its start and its end.

    {"step": 3, "op": "tp-allreduce", "rank": 0, "start_us": 1796007528911411, "end_us": 1796007528945472}

Other writers' words for the same fields are accepted (`_FIELDS`); a time is in the unit that its name ends in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.operation_words import group_word, meaning

_BATCH = 4096
_MAX_LINE = 1 << 20
_MAX_PROBLEMS = 200
_LATEST_US = 4_102_444_800_000_000  # 2100: a later stamp is not in microseconds

_FIELDS: dict[str, tuple[str, ...]] = {
    "step": ("step", "iteration", "iter", "global_step"),
    "name": ("op", "name", "optype", "operation", "event"),
    "rank": ("rank", "global_rank"),
    "node": ("node", "host", "hostname"),
    "group": ("group", "process_group", "pg", "comm"),
    "stage": ("stage", "pp_rank", "pp_stage"),
    "dp_rank": ("dp_rank",),
    "micro_batch": ("mb_id", "micro_batch", "microbatch"),
    "n_calls": ("n_calls", "calls", "count"),
}
_UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_STARTS = ("start", "begin", "start_ts", "ts", "start_time", "begin_time")
_ENDS = ("end", "stop", "end_ts", "finish", "end_time")
_DURATIONS = ("duration", "dur", "elapsed")
_COLUMNS = (
    "node", "rank", "step", "kind", "layer", "name", "started_us", "duration_us", "n_calls", "parent", "group", "stage",
    "dp_rank", "micro_batch", "sequence",
)  # fmt: skip
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,7})", re.IGNORECASE)
_PATH_SAYS = re.compile(r"timeline|time_line|operations|\bops\b", re.IGNORECASE)


def _spellings(words: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """Every accepted field name for a time with the factor that makes microseconds of it; bare names are µs."""
    return tuple((f"{word}_{unit}", factor) for word in words for unit, factor in _UNITS_US.items()) + tuple(
        (word, 1.0) for word in words
    )


_START_FIELDS, _END_FIELDS, _DURATION_FIELDS = _spellings(_STARTS), _spellings(_ENDS), _spellings(_DURATIONS)


@dataclass
class _Books:
    n_read: int = 0
    n_understood: int = 0
    n_problems: int = 0
    hidden: dict[str, int] = field(default_factory=dict)
    first_us: int | None = None
    last_us: int | None = None

    def problem(self, reason: str, offset: int, detail: str, sample: bytes) -> Problem | None:
        """A problem, or None when so many were given already that the rest are summed up at the end."""
        self.n_problems += 1
        if self.n_problems > _MAX_PROBLEMS:
            self.hidden[reason] = self.hidden.get(reason, 0) + 1
            return None
        return Problem(reason, offset, 1, detail, sample[:200])

    def seen(self, started_us: int, ended_us: int) -> None:
        self.first_us = started_us if self.first_us is None else min(self.first_us, started_us)
        self.last_us = ended_us if self.last_us is None else max(self.last_us, ended_us)


class TimelineAdapter:
    """Reads operation time lines into `operations`."""

    name = "operation_timeline"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """Sure when the first line is an object with a name, a start, and an end or a duration."""
        line = head.split(b"\n", 1)[0].strip()
        if not line.startswith(b"{"):
            return 0.0
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            return 0.0
        times = _times(record)
        if times is None or _first(record, "name") is None:
            return 0.0
        return 0.95 if _first(record, "step") is not None else 0.6 if _PATH_SAYS.search(path) else 0.3

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`operations` rows in order of the file, step by step, so that each knows the operation around it."""
        books = _Books()
        pending: list[dict[str, Any]] = []
        for found in self._records(stream, context, books):
            if isinstance(found, Problem):
                yield found
                continue
            begins_step = pending and (found["step"], found["rank"]) != (pending[-1]["step"], pending[-1]["rank"])
            if (begins_step and len(pending) >= _BATCH // 2) or len(pending) >= _BATCH:
                yield rows_of(pending)
                pending = []
            pending.append(found)
        if pending:
            yield rows_of(pending)
        for reason, n in sorted(books.hidden.items()):
            yield Problem(reason, 0, n, f"{n} more records of this kind")
        yield Tally(books.n_read, books.n_understood, _time(books.first_us), _time(books.last_us), "utf-8")

    def _records(self, stream: BinaryIO, context: FileContext, books: _Books) -> Iterator[dict[str, Any] | Problem]:
        nodes = {p.rank: p.node for p in context.placements}
        named = _RANK_IN_NAME.search(context.path.rsplit("/", 1)[-1])
        rank_of_file = context.rank if context.rank is not None else int(named[1]) if named else None
        offset = 0
        while line := stream.readline(_MAX_LINE):
            at, offset = offset, offset + len(line)
            if not line.strip():
                continue
            books.n_read += 1
            row, reason = _row(line, rank_of_file)
            if row is None:
                problem = books.problem(reason[0], at, reason[1], line)
                if problem:
                    yield problem
                continue
            row["node"] = row["node"] or nodes.get(row["rank"]) or context.node
            books.n_understood += 1
            books.seen(row["started_us"], row["started_us"] + int(row["duration_us"]))
            yield row


ADAPTERS = (TimelineAdapter(),)


def _first(record: Any, field_name: str) -> Any:
    if not isinstance(record, dict):
        return None
    return next((record[word] for word in _FIELDS[field_name] if record.get(word) is not None), None)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _microseconds(record: dict[str, Any], fields: tuple[tuple[str, float], ...]) -> float | None:
    """A time in µs; whole numbers stay exact, since a double cannot hold today's nanoseconds."""
    for word, factor in fields:
        value = record.get(word)
        number = _number(value)
        if number is not None:
            return value if factor == 1.0 and isinstance(value, int) else number * factor
    return None


def _times(record: Any) -> tuple[int, float] | None:
    """Start (µs since 1970) and duration (µs), or None when the record lacks them."""
    if not isinstance(record, dict):
        return None
    start = _microseconds(record, _START_FIELDS)
    duration = _microseconds(record, _DURATION_FIELDS)
    end = _microseconds(record, _END_FIELDS)
    if start is None or (duration is None and end is None):
        return None
    return int(start), float(duration if duration is not None else end - start)  # type: ignore[operator]


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**31 else None


def _row(line: bytes, rank_of_file: int | None) -> tuple[dict[str, Any] | None, tuple[str, str]]:
    """One line as a row, or None with a reason and its words."""
    if len(line) >= _MAX_LINE:
        return None, ("too_long", f"a line of {_MAX_LINE} bytes or more")
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return None, ("broken_json", f"not a JSON object: {error}"[:200])
    return row_of(record, rank_of_file)


def row_of(record: Any, rank_of_file: int | None) -> tuple[dict[str, Any] | None, tuple[str, str]]:
    """One record as a row, or None with a reason (of `quarantine`) and its words."""
    times, name = _times(record), _first(record, "name")
    if times is None or not isinstance(name, str):
        return None, ("missing_column", "an operation needs a name, a start, and an end or a duration")
    if times[1] < 0:
        return None, ("bad_value", f"the duration is negative: {times[1]:.0f} µs")
    if not 0 <= times[0] <= _LATEST_US:
        return None, ("implausible", "the start does not lie between 1970 and 2100")
    found = meaning(name)
    rank, step = _integer(_first(record, "rank")), _integer(_first(record, "step"))
    if (rank is not None and rank < 0) or (step is not None and step < 0):
        return None, ("bad_value", "rank or step is negative")
    node, group = _first(record, "node"), _first(record, "group")
    return {
        "node": node if isinstance(node, str) else None,
        "rank": rank if rank is not None else rank_of_file,
        "step": step,
        "kind": found.kind,
        "layer": found.layer,
        "name": name[:300],
        "started_us": times[0],
        "duration_us": times[1],
        "n_calls": max(1, _integer(_first(record, "n_calls")) or 1),
        "parent": None,
        "group": str(group)[:100] if group is not None else group_word(name),
        "stage": _integer(_first(record, "stage")),
        "dp_rank": _integer(_first(record, "dp_rank")),
        "micro_batch": _integer(_first(record, "micro_batch")),
    }, ("", "")


def _add_parents(rows: list[dict[str, Any]]) -> None:
    """Set `parent` (the innermost operation of the rank that encloses this one) and `sequence` within its step."""
    open_until: list[tuple[float, str]] = []
    counts: dict[tuple[Any, Any, str], int] = {}
    previous_rank: Any = None
    for row in sorted(rows, key=lambda r: (r["rank"] or 0, r["started_us"], -r["duration_us"])):
        end = row["started_us"] + row["duration_us"]
        if row["rank"] != previous_rank:
            open_until, previous_rank = [], row["rank"]
        while open_until and open_until[-1][0] < end:
            open_until.pop()
        row["parent"] = open_until[-1][1] if open_until else None
        open_until.append((end, row["name"]))
        counted = (row["rank"], row["step"], row["kind"])
        row["sequence"] = counts.get(counted, 0)
        counts[counted] = row["sequence"] + 1


def rows_of(rows: list[dict[str, Any]]) -> Rows:
    """Rows of one rank or of whole steps as a batch, with each operation's parent and number."""
    _add_parents(rows)
    columns = {column: [row[column] for row in rows] for column in _COLUMNS}
    return Rows("operations", {**columns, "source": ["timeline"] * len(rows)})


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)
