"""Stacks as text: py-spy, pystack, Python's faulthandler, gdb, and folded stacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jobs.adapters.base import FileContext, Problem
from jobs.adapters.stacks_samples import Thread, frame, kind_of, plain

_MAX_LINE = 4096

PY_SPY_PROCESS = re.compile(r"^Process (\d{1,10}): (.{0,2000})$")
PY_SPY_THREAD = re.compile(r'^\s{0,8}Thread (0x[0-9a-fA-F]{1,20}|\d{1,20})(?: \(([a-z+ ]{1,40})\))?(?:: "([^"\n]{0,500})")?:?$')
_PY_SPY_FRAME = re.compile(r"^\s{1,16}(\S.{0,600}) \(([^()\n]{1,1000}?)(?::(\d{1,9}))?\)$")
PYSTACK_THREAD = re.compile(
    r"^Traceback for thread (\d{1,20})(?: \(([^)\n]{0,200})\))?\s{0,4}(?:\[([^\]\n]{0,200})\])?\s{0,4}"
    r"\(most recent call last\):?$"
)
_FILE_FRAME = re.compile(r'^\s{0,16}(?:\((?:Python|C)\) )?File "([^"\n]{1,1500})", line (\d{1,9}),? in (.{1,600})$')
FAULT_THREAD = re.compile(r"^(Current thread|Thread) (0x[0-9a-fA-F]{1,20})(?: \[([^\]\n]{0,200})\])? \(most recent call first\):$")
GDB_THREAD = re.compile(r"^Thread (\d{1,9}) \((?:Thread )?(0x[0-9a-fA-F]{1,20})?[^\n]{0,400}:$")
_GDB_FRAME = re.compile(r"^#\d{1,5}\s{1,4}(?:0x[0-9a-fA-F]{1,20} in )?([^\s(]{1,500})[^\n]{0,3000}$")
_GDB_PLACE = re.compile(r" at ([^\s:]{1,1000}):(\d{1,9})$")
_FOLDED = re.compile(r"^(\S[^\n]{0,60000}) (\d{1,15})$")
_FLAME_RANKS = re.compile(r"@([0-9/\-]{1,20000})(?:\|([0-9/\-]{0,20000}))?$")


@dataclass
class _Open:
    """A thread whose frames are still being read."""

    thread_id: str | None = None
    name: str | None = None
    is_active: bool | None = None
    has_gil: bool | None = None
    pid: int | None = None
    process_type: str | None = None
    frames: list[str] = field(default_factory=list)

    def close(self, innermost_first: bool) -> Thread:
        """The thread with its frames outermost first."""
        frames = tuple(reversed(self.frames)) if innermost_first else tuple(self.frames)
        return Thread(frames, None, None, self.process_type, self.pid, self.thread_id, self.name, self.is_active, self.has_gil)


Heading = Callable[[str, "_Open"], "_Open | None"]


def lines_of(data: bytes) -> Iterator[tuple[int, str]]:
    """Lines with their byte offsets, cut at a bound: no pattern ever sees more."""
    offset = 0
    for raw in data.splitlines(keepends=True):
        yield offset, raw[:_MAX_LINE].decode("utf-8", "replace").rstrip("\r\n")
        offset += len(raw)


def _read(data: bytes, heading: Heading, body: Callable[[str], str | None], innermost_first: bool) -> Iterator[Thread | Problem]:
    """Threads of a text in which a heading line opens a thread and lines below it are frames."""
    current, process, n_lost = None, _Open(), 0
    for _, line in lines_of(data):
        opened = heading(line, process)
        if opened is not None:
            if current is not None:
                yield current.close(innermost_first)
            current = opened
        elif (found := body(line)) is not None:
            if current is None:
                n_lost += 1
            else:
                current.frames.append(found)
    if current is not None:
        yield current.close(innermost_first)
    else:
        yield Problem("bad_value", 0, 1, "no thread begins in this file")
    if n_lost:
        yield Problem("bad_value", 0, 0, f"{n_lost} frames stand before the first thread: the top is cut off")


def read_py_spy_text(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """`py-spy dump`: processes of threads of frames, innermost first. Argument and local values are passed over."""

    def heading(line: str, process: _Open) -> _Open | None:
        if match := PY_SPY_PROCESS.match(line):
            process.pid, process.process_type = int(match[1]), kind_of(match[2])
            return None
        if not (match := PY_SPY_THREAD.match(line)):
            return None
        status = match[2] or ""
        kind = kind_of(match[3]) or process.process_type
        return _Open(match[1], plain(match[3]) or None, "active" in status, "gil" in status, process.pid, kind)

    def body(line: str) -> str | None:
        match = _PY_SPY_FRAME.match(line)
        return frame(match[1], match[2], int(match[3]) if match[3] else None) if match else None

    yield from _read(data, heading, body, innermost_first=True)


def read_pystack(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """`pystack remote`: outermost first; the code lines below the frames are left out."""

    def heading(line: str, process: _Open) -> _Open | None:
        match = PYSTACK_THREAD.match(line.strip())
        if not match:
            return None
        has_gil = "Has the GIL" in (match[3] or "")
        return _Open(match[1], plain(match[2]) or None, None, has_gil, None, kind_of(match[2]))

    yield from _read(data, heading, _file_frame, innermost_first=False)


def read_faulthandler(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """Python's faulthandler: innermost first; the current thread is the active one."""

    def heading(line: str, process: _Open) -> _Open | None:
        match = FAULT_THREAD.match(line.strip())
        if not match:
            return None
        is_current = match[1].startswith("Current")
        return _Open(match[2], plain(match[3]) or ("MainThread" if is_current else None), is_current)

    yield from _read(data, heading, _file_frame, innermost_first=True)


def _file_frame(line: str) -> str | None:
    match = _FILE_FRAME.match(line)
    if not match:
        return None
    function = match[3].split(" (/", 1)[0]
    return frame(function, match[1], int(match[2]))


def read_gdb(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """gdb's `thread apply all bt`: innermost first; arguments are left out."""

    def heading(line: str, process: _Open) -> _Open | None:
        match = GDB_THREAD.match(line)
        return _Open(match[2] or match[1]) if match else None

    def body(line: str) -> str | None:
        match = _GDB_FRAME.match(line)
        if not match:
            return None
        place = _GDB_PLACE.search(line)
        return frame(match[1], place[1] if place else None, int(place[2]) if place else None)

    yield from _read(data, heading, body, innermost_first=True)


def read_folded(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """Folded text, `a;b;c 12`, outermost first. With FLAME's rank sets on the last frame a thread a rank comes out."""
    for offset, raw in _folded_lines(data):
        match = _FOLDED.match(raw)
        if not match:
            yield Problem("bad_value", offset, 1, "not a folded stack: frames joined by semicolons, a space, a count")
            continue
        frames = match[1].split(";")
        ranks = flame_ranks(frames[-1])
        cleaned = tuple(plain(_FLAME_RANKS.sub("", text)) for text in frames)
        if ranks:
            yield from (Thread(cleaned, rank=rank) for rank in ranks)
        else:
            yield Thread(cleaned)


def _folded_lines(data: bytes) -> Iterator[tuple[int, str]]:
    offset = 0
    for raw in data.splitlines(keepends=True):
        text = raw[:65536].decode("utf-8", "replace").strip()
        if text:
            yield offset, text
        offset += len(raw)


def flame_ranks(text: str, limit: int = 1 << 17) -> list[int]:
    """Ranks of FLAME's notation at the end of a frame; empty when it has none.

    >>> flame_ranks("a (f:1)@0-2/8|7")
    [0, 1, 2, 8]
    """
    match = _FLAME_RANKS.search(text)
    found: list[int] = []
    for part in (match[1] if match else "").split("/"):
        low, _, high = part.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            continue
        found.extend(range(int(low), min(int(high or low), int(low) + limit) + 1))
    return found[:limit]
