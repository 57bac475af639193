"""What an adapter is: it sniffs a file, parses its stream into columns of rows, and counts what it read.

An adapter never raises on content and never holds a whole file: it yields batches of rows, problems, and at the
end one tally. It opens nothing itself: it gets a stream of decompressed bytes, and what is known about the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, Protocol

VERSIONS = "versions."
"""Begin of configuration keys that say which version of a software was at work, as its own lines tell."""


@dataclass(frozen=True)
class Placement:
    """Where one rank of the job ran, as `job.json` says it."""

    rank: int
    node: str | None = None
    local_rank: int | None = None
    role: str | None = None


@dataclass(frozen=True)
class FileContext:
    """What is known about a file before it is read.

    `node`, `rank`, `local_rank`, `attempt` and `stream` come from the path, null where it does not say.
    `started_at` and `ended_at` bound the job and settle stamps without a year; `zone` is the cluster's time zone
    for stamps without one.
    """

    job_id: str
    path: str
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    role: str | None = None
    attempt: int | None = None
    stream: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    modified_at: datetime | None = None
    zone: str = "UTC"
    placements: tuple[Placement, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """A batch of rows of one table, as columns of equal length. Columns of the contract that are absent are null.

    `table` is a silver or bronze table, or `metric_samples` (node, device, metric, unit, is_counter, at_us, value),
    which ingest puts on the job's grid, or `config_entries` (key, value), which it merges into the configuration.
    `is_clean` says that the lines' own text was looked through and holds no secret.
    """

    table: str
    columns: Mapping[str, Any]
    is_clean: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


@dataclass(frozen=True)
class Problem:
    """Something that could not be used: becomes a row of `quarantine`. `n_records` of 0 is a remark."""

    reason: str
    offset: int
    n_records: int = 1
    detail: str = ""
    sample: bytes = b""


@dataclass(frozen=True)
class Tally:
    """The books of one file, yielded last: records read, and of the kept ones those that a format recognised.

    `n_read` counts the file's own records (lines, samples, entries); kept = read - quarantined, where quarantined is
    the sum of the problems' `n_records`.
    """

    n_read: int
    n_understood: int
    first_at: datetime | None = None
    last_at: datetime | None = None
    encoding: str | None = None
    flags: tuple[str, ...] = ()
    redactions: Mapping[str, int] = field(default_factory=dict)


Parsed = Rows | Problem | Tally


class Adapter(Protocol):
    """One format. `name` and `version` go into the ledger."""

    name: str
    version: int

    def sniff(self, path: str, head: bytes) -> float:
        """How surely this adapter reads a file, 0 to 1, from its path and its first 64 KiB (decompressed)."""
        ...

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """Rows, problems, and one Tally at the end. Never raises on content; memory is bounded."""
        ...
