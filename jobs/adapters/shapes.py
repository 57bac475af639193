"""Shapes of iteration lines: what a line says apart from its numbers, learned from one line, read from the next ones.

A shape is learned only when the parser, given the same words with other numbers, short and long, gives those numbers
back at the same places and finds nothing else in the line. From then on the numbers alone are read (`fast_kernel`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from jobs.adapters import facts, fast_kernel, phases
from jobs.adapters.log_rows import NORM_NAMES, SKIPPED_NAMES
from jobs.adapters.merge import kind_of
from jobs.adapters.redaction import redact

MAX_SHAPES = 64
MIN_SEEN = 4
"""A shape is learned when a block of the log holds it so many times."""
_FORMS = {
    0: ("{}", "7", "401{:09d}"),
    1: ("{}.5", "7.5", "401{:05d}.123456"),
    2: ("{}.5E+01", "7E-01", "4{:05d}.123456E+02"),
}
"""Numbers by kind: any, short, long."""


@dataclass(frozen=True)
class Shape:
    """Which number of a line is what; -1 for nothing. `names` and `slots` are its pairs, in printed order."""

    iteration: int
    n_planned: int
    names: tuple[str, ...]
    slots: tuple[int, ...]
    step_time: int
    is_milliseconds: bool
    loss: int
    grad_norm: int
    n_skipped: int


class Shapes:
    """The shapes of one file's iteration lines; it begins with those that earlier files of this process had."""

    def __init__(self) -> None:
        known = ((key, shape) for key, shape in _LEARNED.items() if shape is not None)
        self._known: dict[int, Shape] = dict(islice(known, MAX_SHAPES // 2))
        self._refused: set[int] = set()
        self._sort()

    def _sort(self) -> None:
        keys = sorted(self._known)
        self.hashes, self.shapes = np.array(keys, np.uint64), tuple(self._known[key] for key in keys)

    def unknown(self, hashes: np.ndarray) -> list[int]:
        """Positions of lines whose shapes are worth learning: one of each that came several times."""
        if len(self._known) + len(self._refused) >= MAX_SHAPES:
            return []
        values, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        fresh = [
            (int(count), int(at))
            for value, at, count in zip(values, first, counts)
            if value and count >= MIN_SEEN and int(value) not in self._known and int(value) not in self._refused
        ]
        return [at for _, at in sorted(fresh, reverse=True)[: MAX_SHAPES - len(self._known) - len(self._refused)]]

    def learn(self, messages: Iterable[bytes]) -> bool:
        """Learn from these messages; whether any shape is new."""
        before = len(self._known)
        for message in messages:
            key, shape = _remembered(message)
            if shape is None:
                self._refused.add(key)
            else:
                self._known[key] = shape
        self._sort()
        return len(self._known) > before


_LEARNED: dict[int, Shape | None] = {}
"""What this process has learned: files of one job print alike."""


def _remembered(message: bytes) -> tuple[int, Shape | None]:
    key, _, _ = _parted(message)
    if key not in _LEARNED:
        if len(_LEARNED) >= 4096:
            _LEARNED.clear()
        _LEARNED[key] = learned(message)[1]
    return key, _LEARNED[key]


def _parted(message: bytes) -> tuple[int, list[tuple[int, int, int]], list[float]]:
    """A message's shape, the marks of its numbers (begin, end, begin of the spaces before), and their values."""
    buf = np.frombuffer(message, np.uint8)
    numbers, marks = np.empty(fast_kernel.MAX_SLOTS), np.empty((fast_kernel.MAX_SLOTS, 3), np.int64)
    key, n = fast_kernel.shape_of(buf, 0, len(buf), numbers, marks)
    return int(key), [tuple(mark) for mark in marks[:n].tolist()], numbers[:n].tolist()


def learned(message: bytes) -> tuple[int, Shape | None]:
    """A message's shape and what its numbers are; None when it is no plain iteration line.

    >>> learned(b" iteration  5/ 140 | lm loss: 5.86E+00 |")[1].names
    ('lm loss',)
    """
    key, marks, _ = _parted(message)
    probes = [_variant(message, marks, form, spaces) for form in (0, 1, 2) for spaces in (1, fast_kernel.MAX_SPACES)]
    shape = _read(probes[0]) if marks and _says_nothing_else(message.decode("ascii")) else None
    if shape is None or not all(_parted(probe)[0] == key and _agrees(shape, probe) for probe in (message, *probes)):
        return key, None
    return key, shape


def _variant(message: bytes, marks: list[tuple[int, int, int]], form: int, spaces: int) -> bytes:
    """The same words with other numbers: distinct ones, short ones or long ones, and other gaps before them."""
    out, at = [], 0
    for i, (begin, end, gap) in enumerate(marks):
        text = message[begin:end]
        sign = text[:1].decode() if text[:1] in (b"-", b"+") else ""
        kind = 2 if b"E" in text.upper() else 1 if b"." in text else 0
        out.append(message[at:gap] + b" " * (spaces if begin > gap else 0))
        out.append((sign + _FORMS[kind][form].format(i + 11)).encode())
        at = end
    return b"".join(out) + message[at:]


def _says_nothing_else(text: str) -> bool:
    """Whether a line has no effect but its progress: nothing opens, ends, waits, is set, or is secret."""
    return (
        kind_of(text) is None
        and facts.argument_of(text) is None
        and phases.end_of(text) is None
        and facts.waited_s(text) is None
        and not facts.versions_in(text)
        and facts.MLLOG not in text
        and phases.says_no_phase(text)
        and redact(text) == text
    )


def _read(probe: bytes) -> Shape | None:
    """Which numbers of a probe (each occurs once) the parser took for what; None when one is of no number's value."""
    progress = facts.progress_of(probe.decode("ascii"))
    if progress is None:
        return None
    _, _, numbers = _parted(probe)
    slot_of = {value: slot for slot, value in enumerate(numbers)}
    if len(slot_of) < len(numbers) or any(v not in slot_of for v in progress.values.values()):
        return None
    slots = {name: slot_of[value] for name, value in progress.values.items()}
    loss = next((n for n in facts.LOSSES if n in slots), None) or next((n for n in slots if n.endswith("loss")), None)
    time = next((name for name in facts.STEP_TIMES if name in slots), None)
    norm, skipped = (next((n for n in names if n in slots), None) for names in (NORM_NAMES, SKIPPED_NAMES))
    planned = progress.n_planned
    if progress.iteration not in slot_of or (planned is not None and planned not in slot_of):
        return None
    at = slot_of[progress.iteration]
    return Shape(
        at, -1 if planned is None else slot_of[planned], tuple(slots), tuple(slots.values()),
        slots.get(time or "", -1), "(ms)" in (time or ""), slots.get(loss or "", -1), slots.get(norm or "", -1),
        slots.get(skipped or "", -1),
    )  # fmt: skip


def _agrees(shape: Shape, probe: bytes) -> bool:
    """Whether the parser reads from these numbers what the shape says."""
    text = probe.decode("ascii")
    progress = facts.progress_of(text)
    if progress is None or not _says_nothing_else(text):
        return False
    _, _, numbers = _parted(probe)

    def figure(slot: int) -> float | None:
        return numbers[slot] if slot >= 0 else None

    told = [figure(slot) for slot in shape.slots]
    step_time = figure(shape.step_time)
    if step_time is not None and shape.is_milliseconds:
        step_time /= 1000
    return (
        progress.iteration == figure(shape.iteration)
        and progress.n_planned == figure(shape.n_planned)
        and tuple(progress.values) == shape.names
        and [v for v in progress.values.values() if not math.isnan(v)] == told
        and (progress.loss, progress.step_time_s) == (figure(shape.loss), step_time)
        and progress.first(NORM_NAMES) == figure(shape.grad_norm)
        and progress.first(SKIPPED_NAMES) == figure(shape.n_skipped)
    )
