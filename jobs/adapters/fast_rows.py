"""Rows of the lines that never went through the parser: columns from the kernel's numbers and the writers' progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.adapters import fast_kernel
from jobs.adapters.base import FileContext, Rows
from jobs.adapters.fast_base import LEVEL_NAMES
from jobs.adapters.headers import Header
from jobs.adapters.log_parser import Place
from jobs.adapters.shapes import Shape

_PRECISION_S = np.array([1.0, *[0.001] * 3, *[1e-6] * 6])
"""Seconds by the digits of a stamp's fraction."""


@dataclass
class Lines:
    """Lines of a stretch: bounds, ends of headers (0: not read here) and what headers say; shape of each or -1.

    `is_quick` are those that become rows without the parser, `figures` the numbers of those that have a shape,
    `figure_at` where these begin, `steps` their iterations.
    """

    starts: np.ndarray
    ends: np.ndarray
    heads: np.ndarray
    at_us: np.ndarray
    precision_s: np.ndarray
    levels: np.ndarray
    ranks: np.ndarray
    told_ranks: np.ndarray
    labels: np.ndarray
    shapes: np.ndarray
    is_quick: np.ndarray
    figures: np.ndarray
    figure_at: np.ndarray
    steps: np.ndarray

    @staticmethod
    def of(columns: np.ndarray, figures: np.ndarray, shapes: tuple[Shape, ...], is_shared: bool) -> Lines:
        """Lines from what the kernel wrote."""
        starts, ends, heads, plain, at_us, digits, levels, told, labels, ids = columns
        precision_s = _PRECISION_S[np.where(heads > 0, digits, 0)]
        ranks = np.where(told >= 0, told, labels) if is_shared else np.full(len(starts), -1, np.int64)
        is_shaped = ids >= 0
        figure_at = np.cumsum(is_shaped) - 1
        steps = np.zeros(len(starts), np.int64)
        for i, shape in enumerate(shapes):
            of_it = np.flatnonzero(ids == i)
            steps[of_it] = figures[figure_at[of_it], shape.iteration].astype(np.int64)
        return Lines(
            starts, ends, heads, at_us, precision_s, levels, ranks, told, labels, ids, is_shaped | (plain > 0), figures, figure_at,
            steps,
        )  # fmt: skip

    def refuse(self, which: np.ndarray) -> None:
        """Leave lines to the parser."""
        self.is_quick &= ~which
        self.shapes[which] = -1

    def headers(self, indexes: np.ndarray, is_shared: bool) -> list[Header | None]:
        """Headers of lines as the kernel read them; None where it did not."""
        starts = np.where(self.heads[indexes] > 0, self.heads[indexes] - self.starts[indexes], 0).tolist()
        columns = (self.at_us, self.precision_s, self.levels, self.told_ranks, self.labels)
        return [
            Header(
                start, at, precision, LEVEL_NAMES[level] if level >= 0 else None, rank if rank >= 0 else None,
                label=label if label >= 0 else None,
            ) if start else None
            for start, at, precision, level, rank, label in zip(starts, *(column[indexes].tolist() for column in columns))
        ]  # fmt: skip


@dataclass
class Trails:
    """Phase and iteration of each writer from a line on, by rank; -1 is no iteration."""

    by_rank: dict[int, tuple[list[int], list[str], list[int]]] = field(default_factory=dict)
    odd_phases: dict[int, str] = field(default_factory=dict)
    """Phases of single lines that are not those of their writer from there on."""

    def begin(self, rank: int, phase: str, iteration: int | None) -> None:
        """What is known before the first line."""
        self.by_rank[rank] = ([-1], [phase], [-1 if iteration is None else iteration])

    def see(self, rank: int, index: int, phase: str, iteration: int | None) -> None:
        """What is known from a line on."""
        indexes, phases, iterations = self.by_rank[rank]
        indexes.append(index)
        phases.append(phase)
        iterations.append(-1 if iteration is None else iteration)

    def see_all(self, rank: int, lines: list[int], phase: str, steps: list[int]) -> None:
        """The iterations of lines of one phase, in their order."""
        indexes, phases, iterations = self.by_rank[rank]
        indexes += lines
        phases += [phase] * len(lines)
        iterations += steps

    def at(self, lines: np.ndarray, ranks: np.ndarray) -> tuple[pa.Array, pa.Array]:
        """Phase and iteration at lines of these ranks."""
        n = len(lines)
        codes, steps = np.zeros(n, np.int32), np.full(n, -1, np.int64)
        names: dict[str, int] = {}
        for rank, (indexes, phases, iterations) in self.by_rank.items():
            mine = np.flatnonzero(ranks == rank) if len(self.by_rank) > 1 else slice(None)
            where = np.searchsorted(np.array(indexes), lines[mine], side="right") - 1
            steps[mine] = np.array(iterations, np.int64)[where]
            codes[mine] = np.array([names.setdefault(phase, len(names)) for phase in phases], np.int32)[where]
        for index, phase in self.odd_phases.items():
            at = int(np.searchsorted(lines, index))
            if at < n and lines[at] == index:
                codes[at] = names.setdefault(phase, len(names))
        return pa.array([*names], pa.string()).take(pa.array(codes)), pa.array(steps, mask=steps < 0)


@dataclass
class Places:
    """Places of a stretch's quick lines: the distinct ones, and which one each line has."""

    distinct: list[Place]
    which: pa.Array

    @staticmethod
    def of(ranks: np.ndarray, quick: np.ndarray, place_of: Callable[[int], Place]) -> Places:
        """Places by rank."""
        if not len(quick) or (ranks[quick] == ranks[quick[0]]).all():
            return Places([place_of(int(rank)) for rank in ranks[quick[:1]]], pa.array(np.zeros(len(quick), np.int32)))
        values, which = np.unique(ranks[quick], return_inverse=True)
        return Places([place_of(rank) for rank in values.tolist()], pa.array(which.astype(np.int32)))

    def column(self, name: str, kind: pa.DataType, which: pa.Array | None = None) -> pa.Array:
        """One part of the places, a value a line."""
        which = self.which if which is None else which
        values = [getattr(place, name) for place in self.distinct]
        if len(values) == 1:
            n = len(which)
            return pa.nulls(n, kind) if values[0] is None else pa.repeat(pa.scalar(values[0], kind), n)
        return pa.array(values, kind).take(which)


def record_rows(
    data: bytes, offset: int, number: int, lines: Lines, quick: np.ndarray, trails: Trails, places: Places, context: FileContext
) -> Rows:
    """`log_records` of the quick lines."""
    n = len(quick)
    phase, iteration = trails.at(quick, lines.ranks[quick])
    columns: dict[str, Any] = {
        "line": pa.array(number + quick),
        "byte_offset": pa.array(offset + lines.starts[quick]),
        "n_lines": pa.repeat(pa.scalar(1, pa.int32()), n),
        "occurred_at": pa.array(lines.at_us[quick]),
        "time_source": pa.repeat("line", n),
        "time_uncertainty_s": pa.array(lines.precision_s[quick]),
        "level": _levels(lines.levels[quick]),
        "message": _messages(data, lines.heads[quick], lines.ends[quick]),
        "phase": phase,
        "iteration": iteration,
        "waited_s": pa.nulls(n, pa.float64()),
        "node": places.column("node", pa.string()),
        "rank": places.column("rank", pa.int32()),
        "local_rank": places.column("local_rank", pa.int32()),
        "role": places.column("role", pa.string()),
        "attempt": pa.repeat(pa.scalar(context.attempt, pa.int32()), n),
        "stream": pa.repeat(pa.scalar(context.stream, pa.string()), n),
    }
    return Rows("log_records", columns, is_clean=True)


def iteration_rows(number: int, lines: Lines, quick: np.ndarray, shapes: tuple[Shape, ...], places: Places) -> list[Rows]:
    """`iterations` of the quick lines that have a shape, a batch a shape."""
    found = []
    ids = lines.shapes[quick]
    for i, shape in enumerate(shapes):
        mine = np.flatnonzero(ids == i)
        if not len(mine):
            continue
        at = quick[mine]
        figures = lines.figures[lines.figure_at[at]]
        step_time = _figure(figures, shape.step_time)
        which = places.which.take(pa.array(mine))
        columns: dict[str, Any] = {
            "iteration": pa.array(lines.steps[at]),
            "n_planned": _whole(figures, shape.n_planned),
            "occurred_at": pa.array(lines.at_us[at]),
            "step_time_s": _floats(step_time / 1000 if shape.is_milliseconds and step_time is not None else step_time, len(at)),
            "loss": _floats(_figure(figures, shape.loss), len(at)),
            "grad_norm": _floats(_figure(figures, shape.grad_norm), len(at)),
            "n_skipped": _whole(figures, shape.n_skipped),
            "values": _pairs(figures, shape),
            "line": pa.array(number + at),
            "rank": places.column("rank", pa.int32(), which),
            "node": places.column("node", pa.string(), which),
        }
        found.append(Rows("iterations", columns, is_clean=True))
    return found


def _figure(figures: np.ndarray, slot: int) -> np.ndarray | None:
    return figures[:, slot] if slot >= 0 else None


def _floats(values: np.ndarray | None, n: int) -> pa.Array:
    return pa.nulls(n, pa.float64()) if values is None else pa.array(values)


def _whole(figures: np.ndarray, slot: int) -> pa.Array:
    if slot < 0:
        return pa.nulls(len(figures), pa.int64())
    values = figures[:, slot].astype(np.int64)
    return pa.array(values, mask=values < 0)


def _pairs(figures: np.ndarray, shape: Shape) -> pa.Array:
    n, width = len(figures), len(shape.names)
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * width)
    names = pa.array(shape.names, pa.string()).take(pa.array(np.tile(np.arange(width, dtype=np.int32), n)))
    return pa.MapArray.from_arrays(offsets, names, pa.array(np.ascontiguousarray(figures[:, list(shape.slots)]).ravel()))


def _levels(codes: np.ndarray) -> pa.Array:
    return pa.array([*LEVEL_NAMES], pa.string()).take(pa.array(codes, mask=codes < 0))


def _messages(data: bytes, begins: np.ndarray, ends: np.ndarray) -> pa.Array:
    size = int((ends - begins).sum())
    out, offsets = np.empty(size, np.uint8), np.empty(len(begins) + 1, np.int32)
    fast_kernel.gather(np.frombuffer(data, np.uint8), begins, ends, out, offsets)
    return pa.StringArray.from_buffers(len(begins), pa.py_buffer(offsets), pa.py_buffer(out))
