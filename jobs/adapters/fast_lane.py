"""The quick way through a regular log: plain lines and iteration lines become columns without ever being Python texts.

What is neither goes through the log parser in its turn, so that phases, iterations and merged events are as if every
line had gone there. A file of one writer or of several whose lines name their rank, with stamps in any time zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import numpy as np

from jobs.adapters import fast_header, fast_kernel
from jobs.adapters.base import Problem, Rows
from jobs.adapters.fast_base import level_table
from jobs.adapters.fast_rows import Lines, Places, Trails, iteration_rows, record_rows
from jobs.adapters.fast_words import automaton
from jobs.adapters.headers import LABEL_TOKEN, TOKENS, Header
from jobs.adapters.lines import LineReader
from jobs.adapters.log_parser import LogParser, Place, Writer
from jobs.adapters.shapes import Shapes
from jobs.adapters.stamps import EPOCH, Clock

MAX_LAYOUTS = 4
MAX_OPS = 8
_QUARTER_US = 900_000_000
_OPS = {
    "stamp": fast_header.STAMP, "rank": fast_header.RANK, "level_logger": fast_header.LEVEL_LOGGER, "nemo": fast_header.NEMO,
    "level": fast_header.LEVEL, "source": fast_header.BRACKET_SOURCE,
}  # fmt: skip
_TIMED = (fast_header.STAMP, fast_header.BRACKET_STAMP, fast_header.NEMO)
_TELLING = (fast_header.RANK, fast_header.LABEL)


def ops_of(tokens: tuple[int, ...]) -> tuple[int, ...] | None:
    """A layout as the kernel's operations; None when it has a token that the kernel does not know."""
    ops = []
    for token in tokens:
        if token == LABEL_TOKEN:
            ops.append(fast_header.LABEL)
            continue
        name, first, _ = TOKENS[token]
        op = _OPS.get(name)
        if op is None:
            return None
        if first == "[":
            op = {fast_header.STAMP: fast_header.BRACKET_STAMP, fast_header.LEVEL: fast_header.BRACKET_LEVEL}.get(op, op)
        ops.append(op)
    return tuple(ops)


class FastLane:
    """Takes stretches of one file. `ready` once a layout is known that the kernel can read."""

    def __init__(self, parser: LogParser) -> None:
        self._parser = parser
        context = parser.context
        self._is_shared = context.rank is None and context.local_rank is None
        self._layouts: np.ndarray = np.empty((0, MAX_OPS), np.int64)
        self._shapes = Shapes()
        self._clock = Clock(context.zone)
        self._quarters: dict[int, tuple[int, bool]] = {}

    def ready(self) -> bool:
        """Whether a stretch may be given to `take`."""
        if len(self._layouts) < MAX_LAYOUTS:
            found = [ops for tokens in self._parser.headers.layouts() if (ops := ops_of(tokens)) and self._is_usable(ops)]
            rows = [[*ops, *[0] * (MAX_OPS - len(ops))] for ops in found[:MAX_LAYOUTS]]
            self._layouts = np.array(rows, np.int64).reshape(len(rows), MAX_OPS)
        return len(self._layouts) > 0

    def _is_usable(self, ops: tuple[int, ...]) -> bool:
        is_told = any(op in _TELLING for op in ops) or not self._is_shared
        return is_told and any(op in _TIMED for op in ops) and len(ops) <= MAX_OPS

    def take(
        self, reader: LineReader, data: bytes, n_lines: int, offset: int, number: int
    ) -> tuple[list[Problem], int, list[Rows]]:
        """Problems of a stretch, how many of its lines were refused, and its rows."""
        lines = self._scanned(data, n_lines)
        walk = _Walk(self._parser, reader, lines, data, offset, number, self._is_shared)
        problems, n_refused = walk.through()
        quick = np.flatnonzero(lines.is_quick)
        rows: list[Rows] = []
        if len(quick):
            places = Places.of(lines.ranks, quick, walk.place_of)
            rows.append(record_rows(data, offset, number, lines, quick, walk.trails, places, self._parser.context))
            rows += iteration_rows(number, lines, quick, self._shapes.shapes, places)
            self._parser.saw(int(lines.at_us[quick].min()), int(lines.at_us[quick].max()), len(quick))
        rows += self._parser.rows((number + quick, lines.at_us[quick]))
        return problems, n_refused, rows

    def _scanned(self, data: bytes, n_lines: int) -> Lines:
        lines, hashes = self._scan(data, n_lines)
        fresh = self._shapes.unknown(hashes)
        if fresh and self._shapes.learn([data[lines.heads[i] : lines.ends[i]] for i in fresh]):
            lines, _ = self._scan(data, n_lines)
        self._to_utc(lines)
        if self._is_shared:
            known = self._parser.known_ranks
            if known:
                lines.refuse(~np.isin(lines.ranks, np.array(sorted(known), np.int64)))
        return lines

    def _scan(self, data: bytes, n: int) -> tuple[Lines, np.ndarray]:
        buf = np.frombuffer(data, np.uint8)
        table, is_end = automaton()
        words, lengths = level_table()
        rank = self._parser.context.rank
        columns, hashes = np.empty((10, n), np.int64), np.empty(n, np.uint64)
        numbers = np.empty((n + 1, fast_kernel.MAX_SLOTS))
        fast_kernel.scan(
            buf, self._layouts, -1 if rank is None else rank, self._is_shared, words, lengths, table, is_end,
            self._shapes.hashes, columns, hashes, numbers,
        )  # fmt: skip
        return Lines.of(columns, numbers, self._shapes.shapes, self._is_shared), hashes

    def _to_utc(self, lines: Lines) -> None:
        """Stamps of another zone than UTC, put right, quarter of an hour by quarter of an hour."""
        if self._parser.context.zone == "UTC":
            return
        stamped = np.flatnonzero(lines.heads)
        quarters, where = np.unique(lines.at_us[stamped] // _QUARTER_US, return_inverse=True)
        shifts, doubts = np.empty(len(quarters), np.int64), np.empty(len(quarters), bool)
        for i, quarter in enumerate(quarters.tolist()):
            if quarter not in self._quarters:
                local = EPOCH + dt.timedelta(microseconds=quarter * _QUARTER_US)
                us = self._clock.iso(local.strftime("%Y-%m-%d %H:%M:%S"))
                self._quarters[quarter] = ((us or 0) - quarter * _QUARTER_US, self._clock.is_ambiguous)
            shifts[i], doubts[i] = self._quarters[quarter]
        lines.at_us[stamped] += shifts[where]
        lines.precision_s[stamped] = np.where(doubts[where], 3600.0, lines.precision_s[stamped])


class _Walk:
    """One stretch, line by line where a line changes what is known of its writer."""

    def __init__(
        self, parser: LogParser, reader: LineReader, lines: Lines, data: bytes, offset: int, number: int, is_shared: bool
    ) -> None:
        self._parser, self._reader, self._lines, self._data = parser, reader, lines, data
        self._offset, self._number, self._is_shared = offset, number, is_shared
        self._writers: dict[int, Writer] = {}
        self._places: dict[int, Place] = {}
        self._problems: list[Problem] = []
        self._n_refused = 0
        self.trails = Trails()

    def place_of(self, rank: int) -> Place:
        """Where a rank's lines come from; the file's own place when it is not shared."""
        if rank not in self._places:
            self._places[rank] = self._parser.place_of(rank if self._is_shared else None)
        return self._places[rank]

    def through(self) -> tuple[list[Problem], int]:
        """Feed what is not quick to the parser, in order; problems of these lines, and how many were refused."""
        parser, lines = self._parser, self._lines
        for rank in np.unique(lines.ranks[lines.is_quick]).tolist() if self._is_shared else [-1] if lines.is_quick.any() else []:
            self._begin(rank)
        other = np.flatnonzero(~lines.is_quick)
        texts = self._texts(other)
        shaped = np.flatnonzero(lines.is_quick & (lines.shapes >= 0))
        cuts = np.searchsorted(shaped, other).tolist()
        before, done = -1, 0
        for index, cut in zip([*other.tolist(), len(lines.starts)], [*cuts, len(shaped)]):
            if not parser.is_idle and index > before + 1:
                self._close(before + 1, index)
            if cut > done:
                self._steps(shaped[done:cut])
            if index < len(lines.starts):
                self._feed(index, *next(texts))
            before, done = index, cut
        return self._problems, self._n_refused

    def _begin(self, rank: int) -> None:
        writer = self._writers[rank] = self._parser.writer(self.place_of(rank))
        self.trails.begin(rank, writer.phases.phase, writer.iteration)

    def _texts(self, indexes: np.ndarray) -> Iterator[tuple[str, int, Header | None]]:
        lines = self._lines
        block = self._reader.picked(self._data, lines.starts[indexes].tolist(), lines.ends[indexes].tolist(), self._offset)
        self._problems += block.problems
        self._n_refused += len(block.refused)
        return iter(zip(block.lines, block.offsets, lines.headers(indexes, self._is_shared)))

    def _feed(self, index: int, text: str, offset: int, header: Header | None) -> None:
        """One line to the parser; what it changed in the writers that are followed here."""
        parser = self._parser
        parser.touched.clear()
        parser.feed_apart(text, offset, self._number + index, header)
        if parser.touched:
            for rank, writer in self._writers.items() if len(self._writers) < 3 else self._touched():
                self.trails.see(rank, index, writer.phases.phase, writer.iteration)

    def _touched(self) -> list[tuple[int, Writer]]:
        ranks = {rank for rank, _ in self._parser.touched if rank is not None}
        return [(rank, self._writers[rank]) for rank in sorted(ranks) if rank in self._writers]

    def _steps(self, indexes: np.ndarray) -> None:
        """Consecutive lines of known shapes: each writer is at the iteration of its line now, and training."""
        if self._is_shared:
            indexes = indexes[self._lines.is_quick[indexes]]
            ranks = self._lines.ranks[indexes]
            for rank in np.unique(ranks).tolist():
                self._step(rank, indexes[ranks == rank])
        else:
            self._step(-1, indexes)

    def _step(self, rank: int, indexes: np.ndarray) -> None:
        writer, first = self._writers[rank], int(indexes[0])
        before = writer.phases.phase
        iterations = self._lines.steps[indexes].tolist()
        writer.iteration = iterations[-1]
        if before != "train":
            writer.phases.enter("train")
            if before not in ("init", "load"):
                self.trails.odd_phases[first] = before
        self.trails.see_all(rank, indexes.tolist(), writer.phases.phase, iterations)

    def _close(self, start: int, end: int) -> None:
        """Stamped lines stand between here and there: they end a lone writer's open event; of several, each its own."""
        if not self._is_shared:
            self._parser.finish_open()
            return
        for index in range(start, end):
            if self._parser.is_idle:
                return
            if self._lines.is_quick[index]:
                self._lines.is_quick[index] = False
                self._feed(index, *next(self._texts(np.array([index]))))
