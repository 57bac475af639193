"""Bytes of files as they should be read: decompressed by magic bytes, never by name, and bounded.

What is broken half-way is read up to the break; the break is a problem with its offset. Nothing is extracted.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import zstandard

from jobs.adapters.base import Problem

CHUNK = 1 << 20
HEAD = 64 << 10
BOMB_BYTES = 256 << 20
BOMB_RATIO = 200
"""A compressed file is a bomb when it has grown beyond both: text logs compress up to about a hundredfold."""
ZSTD_SLICE = 1 << 10

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"), (b"BZh", "bzip2"),
)  # fmt: skip


def allowance(packed: int) -> int:
    """Bytes that so many compressed ones may become; beyond, they are a bomb."""
    return max(BOMB_BYTES, BOMB_RATIO * packed)


def compression(head: bytes) -> str | None:
    """Which compression the first bytes announce."""
    return next((name for magic, name in MAGIC if head.startswith(magic)), None)


def _inflater(kind: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.decompressobj(wbits=31),
        "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(),
        "xz": lambda: lzma.LZMADecompressor(memlimit=512 << 20),
        "bzip2": bz2.BZ2Decompressor,
    }
    return makers[kind]()


class Decompressed(io.RawIOBase):
    """A readable stream over a raw one. `problems` fills while it is read; `kind` names the compression or is None."""

    def __init__(self, raw: BinaryIO, size: int | None = None) -> None:
        super().__init__()
        self._raw = raw
        self._ahead = raw.read(HEAD)
        self.kind = compression(self._ahead)
        self.problems: list[Problem] = []
        self.n_out = 0
        self._limit = allowance(size or 0)
        self._inflate: Any = _inflater(self.kind) if self.kind else None
        self._out = b""
        self._done = False

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with decompressed bytes."""
        if self._inflate is None and not self._ahead:
            return self._read_plain(buffer)
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read_plain(self, buffer: Any) -> int:
        """Bytes of a file that is not compressed, straight into the buffer."""
        try:
            n = self._raw.readinto(buffer) or 0  # type: ignore[attr-defined]
        except (OSError, EOFError, RuntimeError, ValueError) as error:
            self._note_unreadable(error)
            return 0
        self.n_out += n
        return n

    def _note_unreadable(self, error: Exception) -> None:
        self.problems.append(Problem("unreadable", self.n_out, 0, f"reading failed half-way: {type(error).__name__}"))
        self._done = True

    def _take(self, n: int) -> bytes:
        if self._inflate is None:
            data, self._ahead = self._ahead[:n], self._ahead[n:]
            self.n_out += len(data)
            return data
        while not self._out and not self._done:
            self._out = self._more(max(n, HEAD))
        n = min(n, self._limit + 1 - self.n_out)
        data, self._out = self._out[:n], self._out[n:]
        self.n_out += len(data)
        if self.n_out > self._limit:
            self._stop("bomb", f"more than {self._limit} bytes came out: reading stopped")
        return data

    def _read_raw(self, n: int) -> bytes:
        try:
            return self._raw.read(n) or b""
        except (OSError, EOFError, RuntimeError, ValueError) as error:
            self._note_unreadable(error)
            return b""

    def _more(self, limit: int) -> bytes:
        tail = getattr(self._inflate, "unconsumed_tail", b"")
        is_pending = getattr(self._inflate, "needs_input", True) is False
        data = tail or (b"" if is_pending else self._ahead or self._read_raw(HEAD))
        if not tail and not is_pending:
            data, self._ahead = (data[:ZSTD_SLICE], data[ZSTD_SLICE:]) if self.kind == "zstd" else (data, b"")
        if not data and not is_pending:
            self._end()
            return b""
        try:
            out = self._inflate_some(data, limit)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, zstandard.ZstdError) as error:
            self._stop(
                "corrupt_compression", f"{self.kind}: {type(error).__name__} after {self.n_out} bytes; what came before is kept"
            )
            return b""
        if self._inflate.eof:
            self._next_member()
        return out

    def _inflate_some(self, data: bytes, limit: int) -> bytes:
        if self.kind == "zstd":
            return bytes(self._inflate.decompress(data))
        return bytes(self._inflate.decompress(data, limit))

    def _next_member(self) -> None:
        """After the end of a member: another member, padding of zeros, or garbage."""
        rest = self._inflate.unused_data + self._ahead
        self._ahead = b""
        rest = rest or self._read_raw(HEAD)
        stripped = rest.lstrip(b"\0")
        while rest and not stripped:
            rest = self._read_raw(HEAD)
            stripped = rest.lstrip(b"\0")
        if not stripped:
            self._done = True
        elif compression(stripped) == self.kind:
            self._inflate = _inflater(str(self.kind))
            self._ahead = stripped
        else:
            self._stop("trailing_garbage", "bytes after the end of the compressed data are ignored")

    def _end(self) -> None:
        """The raw bytes ended: early when the member is not complete."""
        if not self._inflate.eof and not self._done:
            self._stop("truncated_gzip", f"{self.kind} data ends early: complete lines up to here are kept")
        self._done = True

    def _stop(self, reason: str, detail: str) -> None:
        if not self._done or reason == "bomb":
            self.problems.append(Problem(reason, self.n_out, 0, detail))
        self._done = True
        self._out = b""
        if reason == "bomb":
            self._inflate, self.kind, self._ahead, self._raw = None, self.kind, b"", io.BytesIO()


def peek(stream: BinaryIO | io.RawIOBase) -> tuple[bytes, BinaryIO]:
    """The first 64 KiB of a stream, and the stream as if nothing had been read."""
    head = b""
    while len(head) < HEAD:
        more = stream.read(HEAD - len(head))
        if not more:
            break
        head += more
    return head, io.BufferedReader(Rejoined(head, stream), buffer_size=CHUNK)


class Rejoined(io.RawIOBase):
    """A head that was read, followed by the rest."""

    def __init__(self, head: bytes, rest: BinaryIO | io.RawIOBase) -> None:
        super().__init__()
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer."""
        if not self._head:
            return self._rest.readinto(buffer) or 0  # type: ignore[union-attr]
        data, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)
