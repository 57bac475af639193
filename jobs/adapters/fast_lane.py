"""The quick way through a regular log: plain lines become columns without ever being Python texts.

Only for files of one writer, whose stamps are UTC. What is not plain goes through the log parser in its turn, so that
phases, iterations and merged events are as if every line had gone there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.adapters import fast_kernel
from jobs.adapters.base import Rows
from jobs.adapters.fast_words import automaton
from jobs.adapters.headers import LABEL_TOKEN, TOKENS, Header
from jobs.adapters.log_parser import LogParser, Place

MIN_BYTES = 256 << 10
"""Below this, compiling or loading the kernel costs more than it saves."""
WARM_LINES = 400
_OPS = {
    "stamp": fast_kernel.STAMP, "rank": fast_kernel.RANK, "level_logger": fast_kernel.LEVEL_LOGGER, "nemo": fast_kernel.NEMO,
    "level": fast_kernel.LEVEL, "source": fast_kernel.BRACKET_SOURCE,
}  # fmt: skip


@dataclass
class Scan:
    """Lines of a block: bounds, ends of headers and begins of plain messages (0 for the others), and what headers say."""

    starts: np.ndarray
    ends: np.ndarray
    heads: np.ndarray
    messages: np.ndarray
    at_us: np.ndarray
    fractions: np.ndarray
    levels: np.ndarray


def ops_of(tokens: tuple[int, ...]) -> np.ndarray | None:
    """A layout as the kernel's operations; None when it has a token that the kernel does not know."""
    ops = []
    for token in tokens:
        name, first, _ = TOKENS[token] if token != LABEL_TOKEN else ("", "", "")
        op = _OPS.get(name)
        if op is None:
            return None
        if first == "[":
            op = {fast_kernel.STAMP: fast_kernel.BRACKET_STAMP, fast_kernel.LEVEL: fast_kernel.BRACKET_LEVEL}.get(op, op)
        ops.append(op)
    return np.array(ops, np.int64)


class FastLane:
    """Takes blocks of one file. `ready` once a layout is known that the kernel can read."""

    def __init__(self, parser: LogParser) -> None:
        self._parser = parser
        context = parser.context
        self.is_possible = context.zone == "UTC" and (context.rank is not None or context.local_rank is not None)
        self._ops: np.ndarray | None = None

    def ready(self) -> bool:
        """Whether a block may be given to `take`."""
        if not self.is_possible:
            return False
        if self._ops is None:
            layouts = self._parser.headers.layouts()
            self._ops = next((ops for tokens in layouts if (ops := ops_of(tokens)) is not None and _has_stamp(ops)), None)
        return self._ops is not None

    def scan(self, data: bytes) -> Scan:
        """Look at a block's lines."""
        buf = np.frombuffer(data, np.uint8)
        n = data.count(b"\n") + (not data.endswith(b"\n"))
        found = Scan(*(np.zeros(n, np.int64) for _ in range(7)))
        table, is_end = automaton()
        words, lengths = fast_kernel.level_table()
        rank = self._parser.context.rank
        fast_kernel.scan(
            buf,
            self._ops,
            -1 if rank is None else rank,
            words,
            lengths,
            table,
            is_end,
            found.starts,
            found.ends,
            found.heads,
            found.messages,
            found.at_us,
            found.fractions,
            found.levels,
        )
        return found

    def rows(
        self, data: bytes, offset: int, first_line: int, found: Scan, changes: list[tuple[int, str, int | None]]
    ) -> Rows | None:
        """The plain lines as rows, in the phase and iteration in which the other lines left the writer.

        `changes` holds (line index, phase, iteration) after each of the other lines; the first entry is the state before.
        """
        plain = np.flatnonzero(found.messages)
        if not len(plain):
            return None
        context, place = self._parser.context, self._parser.own_place()
        at = np.searchsorted([index for index, _, _ in changes], plain, side="right") - 1
        phases = pa.array([phase for _, phase, _ in changes], pa.string()).dictionary_encode()
        n = len(plain)
        at_us = found.at_us[plain]
        digits = found.fractions[plain]
        precision = np.where(digits == 0, 1.0, np.where(digits <= 3, 0.001, 1e-6))
        columns: dict[str, Any] = {
            "line": pa.array(first_line + plain),
            "byte_offset": pa.array(offset + found.starts[plain]),
            "n_lines": pa.repeat(pa.scalar(1, pa.int32()), n),
            "occurred_at": pa.array(at_us),
            "time_source": pa.repeat("line", n),
            "time_uncertainty_s": pa.array(precision),
            "level": _levels(found.levels[plain]),
            "message": _messages(data, found.messages[plain], found.ends[plain]),
            "phase": phases.dictionary.take(phases.indices.take(pa.array(at))),
            "iteration": pa.array([i for _, _, i in changes], pa.int64()).take(pa.array(at)),
            "waited_s": pa.nulls(n, pa.float64()),
            **_place_columns(place, n),
            "attempt": pa.repeat(pa.scalar(context.attempt, pa.int32()), n),
            "stream": pa.repeat(pa.scalar(context.stream, pa.string()), n),
        }
        self._parser.saw(int(at_us.min()), int(at_us.max()), n)
        return Rows("log_records", columns)


def headers_of(found: Scan, indexes: np.ndarray) -> list[Header | None]:
    """Headers of lines as the kernel read them; None where it did not."""
    heads = np.where(found.heads[indexes] > 0, found.heads[indexes] - found.starts[indexes], 0).tolist()
    at_us, digits, levels = found.at_us[indexes].tolist(), found.fractions[indexes].tolist(), found.levels[indexes].tolist()
    names = fast_kernel.LEVEL_NAMES
    return [
        Header(head, at, 1.0 if n == 0 else 0.001 if n <= 3 else 1e-6, names[level] if level >= 0 else None) if head else None
        for head, at, n, level in zip(heads, at_us, digits, levels)
    ]


def _has_stamp(ops: np.ndarray) -> bool:
    return bool(np.isin(ops, (fast_kernel.STAMP, fast_kernel.BRACKET_STAMP, fast_kernel.NEMO)).any())


def _levels(codes: np.ndarray) -> pa.Array:
    names = pa.array([*fast_kernel.LEVEL_NAMES], pa.string())
    return names.take(pa.array(codes, mask=codes < 0))


def _messages(data: bytes, begins: np.ndarray, ends: np.ndarray) -> pa.Array:
    size = int((ends - begins).sum())
    out, offsets = np.empty(size, np.uint8), np.empty(len(begins) + 1, np.int32)
    fast_kernel.gather(np.frombuffer(data, np.uint8), begins, ends, out, offsets)
    return pa.StringArray.from_buffers(len(begins), pa.py_buffer(offsets), pa.py_buffer(out))


def _place_columns(place: Place, n: int) -> dict[str, pa.Array]:
    values = (
        ("node", place.node, pa.string()),
        ("rank", place.rank, pa.int32()),
        ("local_rank", place.local_rank, pa.int32()),
        ("role", place.role, pa.string()),
    )
    return {name: pa.nulls(n, kind) if value is None else pa.repeat(pa.scalar(value, kind), n) for name, value, kind in values}
