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
        """The block as rows, events without a stamp dated by the one before; and the last stamp seen.

        `others` are lines and stamps of events that went another way.
        """
        at, spread, sources, last = self._dated(last_us, source, others)
        columns: dict[str, Any] = {
            "line": self.line,
            "byte_offset": self.byte_offset,
            "n_lines": self.n_lines,
            "occurred_at": at,
            "time_source": sources,
            "time_uncertainty_s": spread,
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
        return Rows("log_records", columns), last

    def _dated(self, last_us: int, source: str, others: Stamps | None) -> tuple[list[Any], list[Any], list[Any], int]:
        if others is None or min(self.at_us, default=0) >= 0:
            return dated(self.at_us, self.precision_s, last_us, source)
        lines = np.concatenate([np.array(self.line, np.int64), others[0]])
        order = np.argsort(lines, kind="stable")
        at = np.concatenate([np.array(self.at_us, np.int64), others[1]])[order]
        spread = np.concatenate([np.array(self.precision_s), np.full(len(others[0]), 1e-6)])[order]
        times, spreads, sources, last = dated(at.tolist(), spread.tolist(), last_us, source)
        where = np.argsort(order, kind="stable")[: len(self)].tolist()
        return [times[i] for i in where], [spreads[i] for i in where], [sources[i] for i in where], last


Stamps = tuple[np.ndarray, np.ndarray]
"""Line numbers and their times, microseconds."""


def dated(at_us: list[int], precision_s: list[float], last_us: int, source: str) -> tuple[list[Any], list[Any], list[Any], int]:
    """Times, their uncertainty in seconds and their source; a time of -1 is none and takes the stamp before it.

    Between two stamps the uncertainty is the time between them. After the last one it is unknown here (null).
    """
    at = np.array(at_us, np.int64)
    is_own = at >= 0
    if is_own.all():
        return at_us, precision_s, [source] * len(at_us), at_us[-1] if at_us else last_us
    index = np.where(is_own, np.arange(len(at)), -1)
    before = np.maximum.accumulate(index)
    filled = np.where(before >= 0, at[before], last_us)
    after_index = np.where(is_own, np.arange(len(at)), len(at))
    after = np.minimum.accumulate(after_index[::-1])[::-1]
    following = np.where(after < len(at), at[np.minimum(after, len(at) - 1)], -1)
    leading = (filled < 0) & (following >= 0)
    spread = np.where(
        is_own, precision_s, np.where((following >= 0) & (filled >= 0), np.maximum(following - filled, 0) / 1e6, np.nan)
    )
    filled = np.where(leading, following, filled)
    times = [None if value < 0 else int(value) for value in filled]
    spreads = [None if np.isnan(value) else float(value) for value in spread]
    sources = [source if own else ("interpolated" if value >= 0 else None) for own, value in zip(is_own, filled)]
    last = int(at[before[-1]]) if before[-1] >= 0 else last_us
    return times, spreads, sources, last


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
