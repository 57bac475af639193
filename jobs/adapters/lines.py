"""Lines of a stream of bytes, in blocks: offsets, encodings, progress bars, and caps, at constant memory.

A record is what ends with a line feed. Carriage returns inside it are states of a progress bar: the last one stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import BinaryIO

from jobs.adapters.base import Problem

BLOCK = 4 << 20
LINE_CAP = 64 << 10
CARRY_CAP = 1 << 20
_BAR = re.compile(r"\d%\||\d+%\s*\[|\d(?:it|s|B)/s\b|\bit/s|s/it\]|[█▏▎▍▌▋▊▉━]{3}")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\^_`-~=>78])?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\ufffd]")


@dataclass
class Block:
    """Consecutive lines: cleaned text, offset of each one's first byte, number of the first one (from 1)."""

    lines: list[str]
    offsets: list[int]
    first_line: int
    problems: list[Problem] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)


@dataclass
class Encoding:
    """What the bytes turned out to be."""

    name: str = "utf-8"
    n_errors: int = 0
    flags: set[str] = field(default_factory=set)


def without_ansi(text: str) -> str:
    """Text without colours, cursor moves, titles and links."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def last_states(line: str) -> list[str]:
    """Segments between carriage returns: of neighbouring bar states only the last stays.

    >>> last_states("10%|#   | 1/9\\r90%|#########| 9/9")
    ['90%|#########| 9/9']
    """
    kept: list[str] = []
    for segment in line.split("\r"):
        if not segment.strip():
            continue
        if kept and _BAR.search(segment[:512]) and _BAR.search(kept[-1][:512]):
            kept.pop()
        kept.append(segment)
    return kept


def is_binary(head: bytes) -> bool:
    """Whether the first bytes are no text of any encoding that is read here."""
    if not head or head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    sample = head[:8192]
    return len(sample) - len(sample.translate(None, _ODD)) > len(sample) * 0.05


class LineReader:
    """Reads a stream in blocks of whole lines. After the last block, `encoding` says what it was."""

    def __init__(self, stream: BinaryIO, block: int = BLOCK) -> None:
        self._stream = stream
        self._block = block
        self.encoding = Encoding()

    def blocks(self) -> Iterator[Block]:
        """Blocks of lines, in order."""
        number = 1
        for offset, data, problems in self.raw_blocks():
            block = self.decoded(data, offset, number)
            block.problems[:0] = problems
            number += len(block.lines)
            yield block

    def _chunks(self) -> Iterator[bytes]:
        first = self._stream.read(self._block)
        wide = next((e for bom, e in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")) if first.startswith(bom)), None)
        if wide:
            yield from self._narrowed(first, wide)
            return
        if first.startswith(b"\xef\xbb\xbf"):
            first = b"   " + first[3:]
            self.encoding.name = "utf-8-sig"
        while first:
            yield first
            first = self._stream.read(self._block)

    def _narrowed(self, first: bytes, wide: str) -> Iterator[bytes]:
        """UTF-16 as UTF-8; offsets are those of the UTF-8 text."""
        self.encoding.name = wide[:6]
        data, rest = first[2:], b""
        while data:
            data = rest + data
            even = len(data) - len(data) % 2
            text, rest = data[:even].decode(wide, "replace"), data[even:]
            yield text.encode("utf-8", "replace")
            data = self._stream.read(self._block)

    def raw_blocks(self) -> Iterator[tuple[int, bytes, list[Problem]]]:
        """Offset and bytes of blocks that end with a line end; lines beyond the cap are cut, their rest hashed."""
        carry, offset, lead = b"", 0, b"   "
        over: _Overlong | None = None
        for raw in self._chunks():
            chunk = raw
            if over is not None:
                rest = over.swallow(raw)
                if rest is None:
                    continue
                chunk = rest
                yield over.offset, over.kept + b"\n", [over.problem()]
                offset, over = over.offset + over.length + 1, None
            data = carry + chunk if carry else chunk
            if offset == 0 and self.encoding.name == "utf-8-sig" and data.startswith(lead):
                data, offset, lead = data[3:], 3, b"\xff"
            cut = data.rfind(b"\n") + 1
            if cut:
                yield offset, data[:cut], []
            carry, offset = data[cut:], offset + cut
            if len(carry) > CARRY_CAP:
                over, carry = _Overlong(offset, carry), b""
        if over is not None:
            yield over.offset, over.kept, [over.problem()]
        elif carry:
            yield offset, carry, []

    def decoded(self, data: bytes, offset: int, number: int) -> Block:
        """Cleaned lines of consecutive bytes; `number` is that of the first line."""
        if data.endswith(b"\n"):
            data = data[:-1]
        raws = data.split(b"\n")
        offsets = list(accumulate((len(r) + 1 for r in raws[:-1]), initial=offset))
        lines = data.decode("ascii").split("\n") if data.isascii() else [self._text(raw) for raw in raws]
        return self._cleaned(Block(lines, offsets, number), raws, data)

    def picked(self, data: bytes, starts: list[int], ends: list[int], offset: int) -> Block:
        """Cleaned lines of some of the lines of a block, by their bounds in `data`."""
        raws = [data[a:b] for a, b in zip(starts, ends)]
        lines = [raw.decode("ascii") if raw.isascii() else self._text(raw) for raw in raws]
        block = Block(lines, [offset + a for a in starts], 0)
        return self._cleaned(block, raws, b"\n".join(raws)) if raws else block

    def _cleaned(self, block: Block, raws: list[bytes], data: bytes) -> Block:
        if max(map(len, raws)) > LINE_CAP:
            self._cut_long(block, raws)
        if b"\r" in data:
            self._returns(block)
        if b"\x1b" in data:
            block.lines = [without_ansi(line) for line in block.lines]
        if data.translate(None, _PLAIN):
            self._controls(block)
        return block

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            pass
        try:
            text = raw.decode("gb18030")
            wide = sum("\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u303f" or "\uff00" <= c <= "\uffef" for c in text)
            if wide * 2 > sum(c > "\x7f" for c in text):
                self.encoding.name = "gb18030"
                return text
        except UnicodeDecodeError:
            pass
        self.encoding.n_errors += 1
        self.encoding.flags.add("decode_errors")
        return raw.decode("utf-8", "replace")

    def _cut_long(self, block: Block, raws: list[bytes]) -> None:
        for i, raw in enumerate(raws):
            if len(raw) > LINE_CAP:
                kept = raw[-LINE_CAP:] if b"\r" in raw else raw[:LINE_CAP]
                block.lines[i] = self._text(kept)
                if b"\r" not in raw:
                    block.problems.append(_too_long(block.offsets[i], len(raw), hashlib.sha256(raw).hexdigest()))

    def _returns(self, block: Block) -> None:
        """Carriage returns: line ends of Windows, and states of bars."""
        lines: list[str] = []
        offsets: list[int] = []
        for line, offset in zip(block.lines, block.offsets):
            if "\r" not in line:
                lines.append(line)
                offsets.append(offset)
                continue
            states = last_states(line) or [""]
            # Several things on one physical line: they stay one record, one under the other, and one event each
            # is made by the parser, as it does with glued lines.
            lines.append("\r".join(states))
            offsets.append(offset)
        block.lines, block.offsets = lines, offsets

    def _controls(self, block: Block) -> None:
        """NULs and other control characters go; a line that is mostly such is refused."""
        for i, line in enumerate(block.lines):
            n_odd = len(_CONTROL.findall(line))
            if not n_odd:
                continue
            if n_odd > 8 and n_odd > 0.3 * len(line):
                block.refused.add(i)
                sample = line[:64].encode("utf-8", "replace")
                block.problems.append(Problem("binary_content", block.offsets[i], 1, "mostly bytes that are no text", sample))
                block.lines[i] = ""
            else:
                block.lines[i] = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]", "", line)


_ODD = bytes([*range(8), *range(14, 24), 127])
_PLAIN = bytes([*range(9, 11), 13, 27, *range(32, 127), *range(128, 256)])


class _Overlong:
    """A line without an end in sight: its head is kept, the rest only counted and hashed."""

    def __init__(self, offset: int, carry: bytes) -> None:
        self.offset = offset
        self.is_bar = b"\r" in carry
        self.kept = carry[-LINE_CAP:] if self.is_bar else carry[:LINE_CAP]
        self.length = len(carry)
        self._hash = hashlib.sha256(carry)

    def swallow(self, chunk: bytes) -> bytes | None:
        """Take what belongs to the line; the bytes after its end, or None when it goes on."""
        cut = chunk.find(b"\n")
        mine = chunk if cut < 0 else chunk[:cut]
        self.length += len(mine)
        self._hash.update(mine)
        if self.is_bar:
            self.kept = (self.kept + mine)[-LINE_CAP:]
        return None if cut < 0 else chunk[cut + 1 :]

    def problem(self) -> Problem:
        """The remark about the cut."""
        return _too_long(self.offset, self.length, self._hash.hexdigest())


def _too_long(offset: int, length: int, digest: str) -> Problem:
    return Problem("too_long", offset, 0, f"line of {length} bytes cut to {LINE_CAP}; sha256 of the whole {digest[:16]}")
