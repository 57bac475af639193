"""Lines that belong together become one event: tracebacks, C++ frames, summaries, boxes, printed structures.

Merged per writer (the rank label or prefix of the line), so that ranks that interleave in one file do not mix. Writers
without a label that interleave are taken apart afterwards (`tracebacks`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from jobs.adapters.headers import Header
from jobs.adapters.tracebacks import START, is_chain, is_exception

MAX_LINES = 400
MAX_TEXT = 256 << 10
_RULE = re.compile(r"^([=*#-])\1{9,}\s*$")
_FRAME = re.compile(r"^\s{0,8}(?:frame )?#\d{1,4}:? ")
_FAULT = re.compile(
    r"^(?:Fatal Python error|Current thread 0x|Thread 0x|Extension modules:|\s+File |\s+Garbage-collecting|<no"
    r" Python frame>|Stack \(most recent|  \.\.\.)"
)


class Kind(StrEnum):
    """What an open event may be continued by."""

    TRACE = "trace"
    WARNING = "warning"
    FRAMES = "frames"
    BRACES = "braces"
    BOX = "box"
    FAULT = "fault"
    PEM = "pem"


@dataclass
class Event:
    """One log event being read."""

    line: int
    offset: int
    header: Header
    message: str
    kind: Kind | None = None
    lines: list[str] = field(default_factory=list)
    n_lines: int = 1
    size: int = 0
    state: str = ""
    region: list[tuple[int, int, str]] | None = None

    @property
    def text(self) -> str:
        """The message, merged lines joined by line feeds."""
        return "\n".join([self.message, *self.lines]).rstrip() if self.lines else self.message


def kind_of(message: str) -> Kind | None:
    """What a message opens, if anything; cheap for the many that open nothing."""
    if START in message:
        return Kind.TRACE
    last = message[-1:]
    if last in "{([" and last:
        return Kind.BRACES
    if (last == "," and message.lstrip()[:6] in ("[array", "array(", "tensor")) or (last == "," and message.startswith("[[")):
        return Kind.BRACES
    if "Warning: " in message[:400] and (".py:" in message or "Warning:" in message[:40]):
        return Kind.WARNING
    if "rror" in message or "xception" in message or "terminate called" in message or "ignal" in message:
        return _failure_kind(message)
    if message.startswith("-----BEGIN ") or " -----BEGIN " in message:
        return Kind.PEM
    return Kind.BOX if last == ":" and len(message) < 120 else None


def _failure_kind(message: str) -> Kind | None:
    if message.startswith("Fatal Python error"):
        return Kind.FAULT
    if message.startswith("Traceback"):
        return Kind.TRACE
    return Kind.FRAMES


def goes_on(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    """Whether a line belongs to the open event of the same writer."""
    if header.at_us is not None or header.level is not None or event.n_lines >= MAX_LINES or event.size > MAX_TEXT:
        return False
    return _RULES[event.kind or Kind.FRAMES](event, header, message, is_own_stream)


def _trace(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    if event.state == "summary":
        event.state = (
            "done" if message.startswith("=" * 10) and event.n_lines > 2 and event.lines[-1:] != [event.message] else "summary"
        )
        return True
    if event.state == "done":
        return False
    if event.state in ("", "chained"):
        return _trace_frames(event, header, message)
    return _trace_message(event, header, message, is_own_stream)


def _trace_frames(event: Event, header: Header, message: str) -> bool:
    """Inside the frames: indented lines, then the exception."""
    if START in message:
        was_chained, event.state = event.state == "chained", ""
        return was_chained
    if not message.strip() or message[0] in " \t" or is_chain(message):
        return True
    if is_exception(message) or header.is_prefixed:
        event.state = "message"
        return True
    return False


def _trace_message(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    """After the exception: the rest of its message, a chained traceback, a summary."""
    if is_chain(message):
        event.state = "chained"
        return True
    if START in message:
        return False
    if message.startswith("=" * 10):
        event.state = "summary"
        return True
    was_blank = not event.lines[-1].strip() if event.lines else False
    if not message.strip():
        return not was_blank or header.is_prefixed
    if header.is_prefixed or message[0] in " \t" or _FRAME.match(message) or _is_tail(message):
        return True
    return is_own_stream and not was_blank and not is_exception(message) and event.n_lines < MAX_LINES


def _is_tail(message: str) -> bool:
    return message.startswith(
        (
            "Exception raised from",
            "Last error",
            "frame #",
            "ncclUnhandled",
            "ncclSystem",
            "ncclInternal",
            "ncclRemote",
            "CUDA kernel errors",
            "Compile with",
            "For debugging consider",
        )
    )


def _warning(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    return event.n_lines < 3 and message[:1] in (" ", "\t") and bool(message.strip())


def _frames(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    return (
        bool(_FRAME.match(message))
        or message.startswith(("Exception raised from", "  what():", "Last error:"))
        or (bool(event.lines) and event.lines[-1].startswith("Last error:"))
    )


def _braces(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    if event.state == "done" or event.n_lines > 200:
        return False
    if message[:1] in ("}", ")", "]"):
        event.state = "done"
        return True
    if message[:1] in (" ", "\t") and event.message[-1:] == ",":
        event.state = "done" if message.endswith(("]])", "])]", ")]")) else ""
    return message[:1] in (" ", "\t")


def _box(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    is_rule = message.startswith("*" * 10)
    if event.n_lines == 1:
        return is_rule
    if event.state == "done" or event.n_lines > 12:
        return False
    event.state = "done" if is_rule else ""
    return True


def _fault(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    return not message.strip() or bool(_FAULT.match(message))


def _pem(event: Event, header: Header, message: str, is_own_stream: bool) -> bool:
    if event.state == "done" or event.n_lines > 100:
        return False
    event.state = "done" if "-----END" in message else ""
    return True


_RULES = {
    Kind.TRACE: _trace, Kind.WARNING: _warning, Kind.FRAMES: _frames, Kind.BRACES: _braces, Kind.BOX: _box, Kind.FAULT: _fault,
    Kind.PEM: _pem,
}  # fmt: skip


@dataclass
class Merger:
    """Open events by writer. `feed` returns the events that a line completes, oldest first."""

    is_own_stream: bool = False
    n_interleaved: int = 0
    _open: dict[Hashable, Event] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """No event is open."""
        return not self._open

    def feed(self, writer: Hashable, line: int, offset: int, header: Header, message: str) -> list[Event]:
        """Take a line in; events that are complete now."""
        done: list[Event] = []
        event = self._open.get(writer)
        if event is not None:
            if event.region is not None and self._in_region(event, line, offset, header, message):
                return done
            if event.region is None and goes_on(event, header, message, self.is_own_stream):
                event.lines.append(message)
                event.n_lines += 1
                event.size += len(message)
                return done
            if event.region is None and self._interleaves(event, header, message):
                self._begin_region(event, line, offset, message)
                return done
            done.append(self._open.pop(writer))
        fresh = Event(line, offset, header, message)
        fresh.kind = kind_of(message)
        if fresh.kind is None:
            done.append(fresh)
        else:
            self._open[writer] = fresh
        return done

    def close(self) -> list[Event]:
        """What is still open at the end, oldest first."""
        left = sorted(self._open.values(), key=lambda event: event.line)
        self._open.clear()
        return left

    def _interleaves(self, event: Event, header: Header, message: str) -> bool:
        """Whether an unlabelled traceback is cut into by another one before it has ended."""
        return event.kind is Kind.TRACE and event.state == "" and not header.is_prefixed and START in message

    def _begin_region(self, event: Event, line: int, offset: int, message: str) -> None:
        self.n_interleaved += 1
        event.region = [(event.line + i, event.offset, text) for i, text in enumerate([event.message, *event.lines])]
        event.region.append((line, offset, message))
        event.n_lines += 1
        event.state = "0"

    def _in_region(self, event: Event, line: int, offset: int, header: Header, message: str) -> bool:
        """Inside interleaved tracebacks: everything until no traceback is missing its end and none begins."""
        region = event.region or []
        n_misses = int(event.state or 0)
        if header.at_us is not None or header.level is not None or len(region) > 20_000:
            return False
        is_like = (
            START in message
            or not message.strip()
            or message[0] in " \t"
            or is_exception(message)
            or is_chain(message)
            or '  File "' in message
        )
        if not is_like:
            n_misses += 1
            if n_misses > 3 or self._is_complete(region):
                return False
        event.state = str(n_misses if not is_like or not message.strip() else 0)
        region.append((line, offset, message))
        event.n_lines += 1
        return True

    def _is_complete(self, region: list[tuple[int, int, str]]) -> bool:
        n_starts = sum(text.count(START) for _, _, text in region)
        n_ends = sum(is_exception(text) for _, _, text in region)
        return n_ends >= n_starts
