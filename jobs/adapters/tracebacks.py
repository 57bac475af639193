"""Tracebacks of several processes that wrote into one file at once, taken apart again.

Nothing tells the writers apart but what they write: a traceback goes on with the lines that the same traceback of
another rank went on with. Lines that were glued together (the line feeds came later) are parted first.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

START = "Traceback (most recent call last):"
CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_EXCEPTION = re.compile(
    r"^[A-Za-z_][\w.]{0,120}(?:Error|Exception|Warning|Interrupt|Exit|Iteration|Failure|Timeout|Abort|Fault"
    r"|NotFound|Exceeded|Invalid)\w{0,20}(?::|$)|^[a-z_]\w{0,40}(?:\.\w{1,60}){1,8}: "
)
_FILE = re.compile(r'  File "[^"]{1,400}", line \d{1,7}')


def is_exception(text: str) -> bool:
    """Whether a line names an exception, as the last line of a traceback does.

    >>> is_exception("torch.OutOfMemoryError: CUDA out of memory"), is_exception("from x import y")
    (True, False)
    """
    return bool(_EXCEPTION.match(text[:300]))


def is_chain(text: str) -> bool:
    """Whether a line says that a further traceback belongs to the same failure."""
    return text.startswith(CHAINS)


def parts(text: str) -> list[tuple[int, str]]:
    """Offset and text of what was glued together on one line: starts of tracebacks, frames, repeated code lines."""
    cuts = {0}
    if START in text[1:]:
        cuts.update(m.start() for m in re.finditer(re.escape(START), text))
    if '  File "' in text[1:]:
        cuts.update(m.start() for m in _FILE.finditer(text))
    edges = [*sorted(cuts), len(text)]
    found: list[tuple[int, str]] = []
    for start, end in itertools.pairwise(edges):
        found += [(start + at, piece) for at, piece in _repeats(text[start:end])]
    return [(at, piece) for at, piece in found if piece.strip()]


def _repeats(text: str) -> list[tuple[int, str]]:
    """A code line that several processes wrote at once: one text, several times."""
    bare = text.strip()
    if len(bare) < 12 or '  File "' in text:
        return [(0, text)]
    again = (bare + bare).find(bare, 1)
    if again >= len(bare) or again < 6:
        return [(0, text)]
    lead = len(text) - len(text.lstrip())
    return [(lead + i, "    " + bare[:again]) for i in range(0, len(bare), again)]


def glued(text: str, n_max: int = 64) -> list[tuple[int, str]]:
    """Offset and text of messages that start alike and were printed without a line feed in between.

    >>> [t for _, t in glued("rank 1 is loading a.ptrank 2 is loading b.pt")]
    ['rank 1 is loading a.pt', 'rank 2 is loading b.pt']
    """
    lead = re.match(r"[A-Za-z]{2,20}[ _][A-Za-z0-9]{1,20}[ _]?", text)
    if lead is None:
        return [(0, text)]
    start = re.sub(r"[0-9]+[ _]?$", "", lead.group())
    edges, at = [0], text.find(start, len(start))
    while at > 0 and len(edges) < n_max:
        if text[at - 1].isalnum() and at - edges[-1] >= 20:
            edges.append(at)
        at = text.find(start, at + len(start))
    if len(edges) == 1:
        return [(0, text)]
    return [(a, text[a:b]) for a, b in zip(edges, [*edges[1:], len(text)])]


@dataclass
class Trace:
    """One traceback being put together."""

    offset: int
    line: int
    lines: list[str] = field(default_factory=lambda: [START])
    last: str = START
    is_closed: bool = False

    @property
    def is_waiting_for_code(self) -> bool:
        """The last line is a frame, whose code line comes next."""
        return self.last.startswith('  File "')

    @property
    def text(self) -> str:
        """The traceback."""
        return "\n".join(self.lines)


def take_apart(lines: list[tuple[int, int, str]]) -> list[Trace]:
    """The tracebacks in a region of (line number, offset, text); each has at least its start."""
    traces: list[Trace] = []
    follows: dict[str, set[str]] = {}
    for number, offset, text in lines:
        for at, piece in parts(text):
            if piece.startswith(START):
                traces.append(Trace(offset + at, number))
            elif owner := _owner(traces, follows, piece):
                follows.setdefault(owner.last, set()).add(piece.strip())
                owner.lines.append(piece)
                owner.last = piece if piece.startswith('  File "') else piece.strip()
                owner.is_closed = not piece.startswith(" ") and is_exception(piece)
    return traces


def _owner(traces: list[Trace], follows: dict[str, set[str]], piece: str) -> Trace | None:
    """The traceback that a piece goes on with: one where it is known to follow, else the least advanced that may take it."""
    is_open = [t for t in traces if not t.is_closed]
    is_frame = piece.startswith('  File "')
    is_end = not piece.startswith(" ") and is_exception(piece)
    bare = piece.strip()
    known = [t for t in is_open if bare in follows.get(t.last, ())]
    if known:
        return known[0]
    if is_frame or is_end:
        fit = [t for t in is_open if not (is_frame and t.last == bare)]
        return min(fit, key=lambda t: (t.is_waiting_for_code, len(t.lines)), default=None)
    waiting = [t for t in is_open if t.is_waiting_for_code]
    if waiting:
        return waiting[0]
    return traces[-1] if traces else None
