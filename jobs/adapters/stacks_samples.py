"""What every stack format is read into: threads, and the rows of `stack_samples` made of them.

Frames are `function (file:line)`, outermost first. Arguments and locals never get this far: no reader asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally

MAX_BYTES = 256 << 20
MAX_FRAMES = 1024
MAX_TEXT = 512
_BATCH = 4096
_COLUMNS = (
    "job_id", "sampled_at", "snapshot", "node", "rank", "process_type", "pid", "thread_id", "thread_name", "is_active",
    "has_gil", "frames", "file",
)  # fmt: skip
_RANK = re.compile(r"(?<![a-z])(?:global[_-]?)?rank[_\-. ]?(\d{1,7})", re.IGNORECASE)
_PID = re.compile(r"(?<![a-z])pid[_\-. ]?(\d{1,10})", re.IGNORECASE)
_EXTENSION = re.compile(r"(?:\.(?:json|txt|log|out|folded|collapsed|stack|stacks|speedscope|gz|zst|xz|bz2))+$", re.IGNORECASE)
_KINDS = ("dataloader", "launcher", "trainer")
_KIND_WORDS = {
    "dataloader": ("dataloader", "data_loader", "data-loader", "data loader", "pt_data_w", "dataworker", "data_worker"),
    "launcher": ("launcher", "torchrun", "elastic_agent", "torch.distributed.run", "torch.distributed.launch"),
    "trainer": ("trainer", "train.py", "pretrain", "training"),
}


@dataclass(frozen=True)
class Thread:
    """One thread as a file shows it; what the file does not say is None and is filled from the file's name.

    A process that was asked and gave nothing is one thread without frames whose `is_active` is None.
    """

    frames: tuple[str, ...] = ()
    rank: int | None = None
    node: str | None = None
    process_type: str | None = None
    pid: int | None = None
    thread_id: str | None = None
    thread_name: str | None = None
    is_active: bool | None = None
    has_gil: bool | None = None
    sampled_at: datetime | None = None
    snapshot: str | None = None


@dataclass(frozen=True)
class StackAdapter:
    """One format of stacks: how it is recognised, and a reader from the file's bytes to threads and problems."""

    name: str
    recognise: Callable[[str, bytes], float]
    read: Callable[[bytes, FileContext], Iterator[Thread | Problem]]
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """How surely the format is this one, 0 to 1."""
        return self.recognise(path, head)

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`stack_samples` rows, what could not be read, and the books: a record is a thread."""
        data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            yield Problem("too_long", MAX_BYTES, 0, f"only the first {MAX_BYTES >> 20} MiB of the stack file were read")
            data = data[:MAX_BYTES]
        known = _Known.of(context)
        books = _Books()
        batch: list[Thread] = []
        for found in self.read(data, context):
            if isinstance(found, Problem):
                books.n_read += found.n_records
                yield found
                continue
            batch.append(books.count(known.fill(found)))
            if len(batch) >= _BATCH:
                yield _rows(batch, context)
                batch = []
        if batch:
            yield _rows(batch, context)
        yield Tally(books.n_read, books.n_understood, books.first_at, books.last_at, "utf-8")


@dataclass
class _Books:
    n_read: int = 0
    n_understood: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None

    def count(self, thread: Thread) -> Thread:
        self.n_read += 1
        self.n_understood += 1
        at = thread.sampled_at
        if at is not None:
            self.first_at = at if self.first_at is None else min(self.first_at, at)
            self.last_at = at if self.last_at is None else max(self.last_at, at)
        return thread


@dataclass(frozen=True)
class _Known:
    """What the path and the job say about every thread of a file that says nothing itself."""

    rank: int | None
    node: str | None
    pid: int | None
    snapshot: str | None
    process_type: str | None
    nodes: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, context: FileContext) -> _Known:
        name = PurePosixPath(context.path).name
        nodes = {place.rank: place.node for place in context.placements if place.node}
        rank = context.rank if context.rank is not None else _number(_RANK, name)
        return cls(rank, context.node, _number(_PID, name), snapshot_of(name), kind_of(name) or context.role, nodes)

    def fill(self, thread: Thread) -> Thread:
        rank = self.rank if thread.rank is None else thread.rank
        node = thread.node or self.node or (self.nodes.get(rank) if rank is not None else None)
        kind = thread.process_type or self.process_type or kind_of(thread.thread_name) or "trainer"
        return replace(
            thread,
            rank=rank,
            node=node,
            process_type=kind,
            pid=self.pid if thread.pid is None else thread.pid,
            snapshot=thread.snapshot or self.snapshot,
        )


def snapshot_of(name: str) -> str | None:
    """The tag that samples taken together share: what is left of a file's name without its rank, pid and ending.

    >>> snapshot_of("rank5_pid15754_T0.json"), snapshot_of("rank5.json")
    ('T0', None)
    """
    stem = _EXTENSION.sub("", name)
    rest = _PID.sub("", _RANK.sub("", stem))
    rest = re.sub(r"[_\-. ]+", "_", rest).strip("_")
    return rest[:MAX_TEXT] or None


def kind_of(text: str | None) -> str | None:
    """Process type that a command line, file or thread name speaks of; None when it does not.

    >>> kind_of("pt_data_worker"), kind_of("MainThread")
    ('dataloader', None)
    """
    lowered = (text or "").lower()
    return next((kind for kind in _KINDS if any(word in lowered for word in _KIND_WORDS[kind])), None)


def frame(function: object, file: object, line: object) -> str:
    """One frame in the one form that all formats share; a line of 0 or less, or none, is left out.

    >>> frame("all_reduce", "torch/distributed/distributed_c10d.py", 4181)
    'all_reduce (torch/distributed/distributed_c10d.py:4181)'
    """
    name = plain(function) or "?"
    place = plain(file)
    if isinstance(line, int) and line > 0:
        place = f"{place}:{line}"
    return f"{name} ({place})" if place else name


def plain(value: object, limit: int = MAX_TEXT) -> str:
    """Text without control characters, bounded; empty for what is not text or a number."""
    if not isinstance(value, str):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return str(value) if is_number else ""
    if len(value) <= limit and value.isprintable():
        return value.strip()
    return "".join(c for c in value[: 4 * limit] if c.isprintable())[:limit].strip()


def stamp(value: object) -> datetime | None:
    """A time from ISO text or from a number of seconds, milliseconds, microseconds or nanoseconds; None else."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value.strip()[:40])
        except ValueError:
            return stamp(float(value)) if re.fullmatch(r"\d{9,19}(?:\.\d{1,9})?", value.strip()) else None
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1e8 < value < 4e18:
        scale = next(s for s in (1.0, 1e3, 1e6, 1e9) if value / s < 4.2e9)
        return datetime.fromtimestamp(value / scale, UTC)
    return None


def rank_number(value: object) -> int | None:
    """A rank from 7, "7" or "RANK7"; None when it is none of these."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 1 << 31 else None
    match = re.fullmatch(r"(?:rank)?[_\- ]?(\d{1,9})", value.strip(), re.IGNORECASE) if isinstance(value, str) else None
    return int(match[1]) if match else None


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.search(name)
    return int(match[1]) if match else None


def _rows(threads: list[Thread], context: FileContext) -> Rows:
    shared = {"job_id": context.job_id, "file": context.path}
    columns: dict[str, list[Any]] = {name: [value] * len(threads) for name, value in shared.items()}
    columns |= {name: [getattr(t, name) for t in threads] for name in _COLUMNS if name not in shared}
    columns["frames"] = [list(t.frames[-MAX_FRAMES:]) for t in threads]
    return Rows("stack_samples", {name: columns[name] for name in _COLUMNS})
