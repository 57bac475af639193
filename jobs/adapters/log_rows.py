"""Columns of log events of one file, filled line by line, dated at the end of a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jobs.adapters.base import Rows
from jobs.adapters.facts import Progress
from jobs.adapters.headers import Header

COLUMNS = (
    "line",
    "byte_offset",
    "n_lines",
    "occurred_at",
    "time_source",
    "time_uncertainty_s",
    "node",
    "rank",
    "local_rank",
    "role",
    "level",
    "message",
    "phase",
    "iteration",
    "waited_s",
)


@dataclass
class RecordColumns:
    """`log_records` of one block. Times are microseconds; null ones are filled from their neighbours by `dated`."""

    line: list[int] = field(default_factory=list)
    byte_offset: list[int] = field(default_factory=list)
    n_lines: list[int] = field(default_factory=list)
    at_us: list[int] = field(default_factory=list)
    precision_s: list[float] = field(default_factory=list)
    node: list[str | None] = field(default_factory=list)
    rank: list[int | None] = field(default_factory=list)
    local_rank: list[int | None] = field(default_factory=list)
    role: list[str | None] = field(default_factory=list)
    level: list[str | None] = field(default_factory=list)
    message: list[str] = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    iteration: list[int | None] = field(default_factory=list)
    waited_s: list[float | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.line)

    def rows(self, last_us: int, source: str, in_file: dict[str, Any], others: Stamps | None = None) -> tuple[Rows, int]:
        """The block as rows, events without a stamp dated by the line before; and the last stamp seen.

        `others` are lines and stamps of events that went another way.
        """
        n, names = len(self), (source, "interpolated", None)
        line, at, spread = np.array(self.line, np.int64), np.array(self.at_us, np.int64), np.array(self.precision_s)
        if others is not None:
            line, at = np.concatenate([line, others[0]]), np.concatenate([at, others[1]])
            spread = np.concatenate([spread, np.full(len(others[0]), 1e-6)])
        order = np.argsort(line, kind="stable")
        stamps = at[order]
        own = np.flatnonzero(stamps >= 0)
        which = np.zeros(n, np.int64)
        if min(self.at_us, default=0) < 0:
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            at, spread, is_own = (column[place[:n]] for column in dated(stamps, spread[order], last_us))
            which = np.where(is_own, 0, np.where(at >= 0, 1, 2))
        at, spread = at[:n], spread[:n]
        columns: dict[str, Any] = {
            "line": self.line,
            "byte_offset": self.byte_offset,
            "n_lines": self.n_lines,
            "occurred_at": [None if value < 0 else value for value in at.tolist()],
            "time_source": [names[i] for i in which.tolist()],
            "time_uncertainty_s": [None if value != value else value for value in spread.tolist()],
            "node": self.node,
            "rank": self.rank,
            "local_rank": self.local_rank,
            "role": self.role,
            "level": self.level,
            "message": self.message,
            "phase": self.phase,
            "iteration": self.iteration,
            "waited_s": self.waited_s,
        }
        columns.update({name: [value] * len(self) for name, value in in_file.items()})
        return Rows("log_records", columns), int(stamps[own[-1]]) if len(own) else last_us


Stamps = tuple[np.ndarray, np.ndarray]
"""Line numbers and their times, microseconds."""


def dated(at: np.ndarray, precision_s: np.ndarray, last_us: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times of lines in their order, uncertainties in seconds (NaN: unknown here), and which times are a line's own.

    A time of -1 is none and takes the stamp before it. Between two stamps the uncertainty is the time between them.
    """
    is_own, n = at >= 0, len(at)
    before = np.maximum.accumulate(np.where(is_own, np.arange(n), -1))
    filled = np.where(before >= 0, at[before], last_us)
    after = np.minimum.accumulate(np.where(is_own, np.arange(n), n)[::-1])[::-1]
    following = np.where(after < n, at[np.minimum(after, n - 1)], -1)
    between = np.where((following >= 0) & (filled >= 0), np.maximum(following - filled, 0) / 1e6, np.nan)
    leading = (filled < 0) & (following >= 0)
    return np.where(leading, following, filled), np.where(is_own, precision_s, between), is_own


_ITERATION_COLUMNS: tuple[str, ...] = (
    "iteration",
    "n_planned",
    "occurred_at",
    "step_time_s",
    "loss",
    "grad_norm",
    "n_skipped",
    "values",
    "line",
    "rank",
    "node",
)


@dataclass
class IterationColumns:
    """`iterations` of one block."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _ITERATION_COLUMNS})

    def __post_init__(self) -> None:
        self._appends = [column.append for column in self.columns.values()]

    def __len__(self) -> int:
        return len(self.columns["iteration"])

    def add(self, progress: Progress, line: int, header: Header, at_us: int | None, rank: int | None, node: str | None) -> None:
        """One iteration line."""
        skipped = progress.first(SKIPPED_NAMES)
        is_count = skipped is not None and skipped >= 0
        row = (
            progress.iteration, progress.n_planned, at_us, progress.step_time_s, progress.loss, progress.first(NORM_NAMES),
            int(skipped) if is_count and skipped is not None else None, list(progress.values.items()), line, rank, node,
        )  # fmt: skip
        for column, value in zip(self._appends, row):
            column(value)

    def rows(self) -> Rows:
        """The block as rows."""
        return Rows("iterations", self.columns)


SKIPPED_NAMES = ("number of skipped iterations", "skipped iterations", "skipped")
NORM_NAMES = ("grad norm", "grad_norm", "gnorm", "gradient norm", "total_norm")
