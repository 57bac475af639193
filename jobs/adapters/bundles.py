"""Tar and zip bundles, read member by member and never extracted.

Only regular members with harmless names are read; what else lies in a bundle is a problem. Sizes, counts, ratios and
nesting are capped, so that no bundle fills the memory or runs without end.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO

from jobs.adapters.base import Problem
from jobs.adapters.streams import allowance

MAX_MEMBERS = 200_000
MAX_MEMBER_BYTES = 64 << 30
MAX_RATIO = 1000
MAX_NAME = 4096
SPOOL_BYTES = 16 << 20
MAX_WRAPPED_ZIP = 2 << 30


@dataclass
class Member:
    """One regular member. Its stream is readable until the next member is taken."""

    name: str
    size: int
    modified_at: datetime | None
    stream: BinaryIO
    problem: Problem | None = None
    _hash: Any = field(default_factory=hashlib.sha256)

    def digest(self) -> str:
        """Hash of what was read of it."""
        return str(self._hash.hexdigest())


@dataclass
class _Budget:
    """Bytes that the members of a bundle may have together."""

    left: int = MAX_MEMBER_BYTES


class _Hashed(io.RawIOBase):
    """A member's bytes, hashed as they go by; a broken member ends with a problem instead of an exception."""

    def __init__(self, inner: Any, limit: int, budget: _Budget) -> None:
        super().__init__()
        self._inner, self._left, self._budget = inner, limit, budget
        self.member: Member | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer."""
        try:
            data = self._inner.read(min(len(buffer), max(self._left, 0), max(self._budget.left, 0)))
        except Exception as error:
            self._note(Problem("corrupt_archive", 0, 0, f"member broken: {type(error).__name__}"))
            return 0
        self._left -= len(data)
        self._budget.left -= len(data)
        if self.member is not None:
            self.member._hash.update(data)
        if (self._left <= 0 or self._budget.left <= 0) and data:
            self._note(Problem("bomb", 0, 0, "member larger than its cap: the rest is left out"))
        buffer[: len(data)] = data
        return len(data)

    def _note(self, problem: Problem) -> None:
        if self.member is not None and self.member.problem is None:
            self.member.problem = problem


def kind_of(head: bytes) -> str | None:
    """`tar` or `zip` when the first bytes are those of a bundle.

    >>> kind_of(b"PK" + bytes([3, 4]))
    'zip'
    """
    if head[257:262] == b"ustar" or (len(head) >= 512 and head[257:263] == b"\0" * 6 and _has_tar_checksum(head)):
        return "tar"
    return "zip" if head.startswith((b"PK\x03\x04", b"PK\x05\x06")) else None


def _has_tar_checksum(head: bytes) -> bool:
    field_text = head[148:156].strip(b"\0 ")
    if not field_text.isdigit() or not head[0]:
        return False
    return (
        int(field_text, 8) == sum(head[:148]) + 8 * 32 + sum(head[156:512]) if all(c in b"01234567" for c in field_text) else False
    )


def unsafe(name: str) -> str | None:
    """Why a member's name must not be trusted; None when it is harmless."""
    if len(name) > MAX_NAME:
        return "name too long"
    if name.startswith(("/", "\\")) or (len(name) > 1 and name[1] == ":"):
        return "absolute name"
    if ".." in name.replace("\\", "/").split("/"):
        return "name leads out of the bundle"
    return "no name" if not name.strip("./") else None


def members(kind: str, stream: BinaryIO, seekable: BinaryIO | None) -> Iterator[Member | Problem]:
    """The members of a bundle, in its order. A zip needs a file to seek in: one inside a compressed stream is put into one."""
    if kind == "tar":
        yield from _tar(stream)
    elif seekable is None:
        yield from _unpacked_zip(stream)
    else:
        yield from _zip(seekable)


def _unpacked_zip(stream: BinaryIO) -> Iterator[Member | Problem]:
    """A zip without its outer compression, in memory while it is small and in a file without a name beyond, within a cap."""
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as held:
        size = 0
        while data := stream.read(SPOOL_BYTES // 16):
            size += len(data)
            if size > MAX_WRAPPED_ZIP:
                yield Problem("bomb", 0, 0, f"a zip of more than {MAX_WRAPPED_ZIP} bytes inside a compressed stream")
                return
            held.write(data)
        yield from _zip(held)


def _tar(stream: BinaryIO) -> Iterator[Member | Problem]:
    n, last = 0, -1
    headers: type[_CheckedInfo] = type("_Headers", (_CheckedInfo,), {"is_broken": False})
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=headers, errorlevel=1) as bundle:
            for info in bundle:
                n += 1
                if n > MAX_MEMBERS or info.offset <= last:
                    yield Problem(
                        "bomb", info.offset if info.offset > 0 else 0, 0, f"more than {MAX_MEMBERS} members, or members in a circle"
                    )
                    return
                last = info.offset
                yield from _tar_member(bundle, info)
        if headers.is_broken:
            yield Problem("corrupt_archive", max(last, 0), 0, "tar: a broken header; members before it are kept")
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, MemoryError, IndexError) as error:
        yield Problem(
            "corrupt_archive", max(last, 0), 0, f"tar: {type(error).__name__}: {str(error)[:120]}; members before it are kept"
        )


class _CheckedInfo(tarfile.TarInfo):
    """A header whose size cannot send the reader backwards (CVE-2025-8194)."""

    is_broken = False
    """A header was neither whole nor the end: tarfile would take it for the end without a word."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _CheckedInfo:
        """The header in a block; a negative size is an error."""
        try:
            info = super().frombuf(buf, encoding, errors)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError:
            cls.is_broken = True
            raise
        if info.size < 0:
            cls.is_broken = True
            raise tarfile.HeaderError("negative size")
        return info

    def _apply_pax_info(self, pax_headers: Any, encoding: str, errors: str) -> None:
        super()._apply_pax_info(pax_headers, encoding, errors)  # type: ignore[misc]
        if self.size < 0:
            raise tarfile.HeaderError("negative size")


def _tar_member(bundle: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[Member | Problem]:
    if info.isdir():
        return
    reason = unsafe(info.name) or (None if info.isreg() else "no regular file: link, device or pipe")
    if reason:
        yield Problem("unsafe_member", max(info.offset, 0), 0, f"{_short(info.name)}: {reason}")
        return
    inner = bundle.extractfile(info)
    if inner is not None:
        modified = datetime.fromtimestamp(info.mtime, UTC) if 0 < info.mtime < 4e9 else None
        yield _member(info.name, info.size, modified, inner, MAX_MEMBER_BYTES)


def _zip(file: Any) -> Iterator[Member | Problem]:
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as bundle:
            infos = bundle.infolist()
            if len(infos) > MAX_MEMBERS:
                yield Problem("bomb", 0, 0, f"more than {MAX_MEMBERS} members")
                return
            size = file.seek(0, io.SEEK_END)
            budget = _Budget(min(MAX_MEMBER_BYTES, allowance(size)))
            for info in infos:
                if budget.left <= 0:
                    yield Problem(
                        "bomb",
                        max(info.header_offset, 0),
                        0,
                        f"more came out of {size} bytes than a log could be: the rest is left out",
                    )
                    return
                yield from _zip_member(bundle, info, budget)
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, OverflowError) as error:
        yield Problem("corrupt_archive", 0, 0, f"zip: {type(error).__name__}: {str(error)[:120]}")


def _zip_member(bundle: zipfile.ZipFile, info: zipfile.ZipInfo, budget: _Budget) -> Iterator[Member | Problem]:
    if info.is_dir():
        return
    mode = info.external_attr >> 16
    reason = unsafe(info.filename) or ("no regular file" if mode and (mode & 0o170000) not in (0, 0o100000) else None)
    if reason:
        yield Problem("unsafe_member", max(info.header_offset, 0), 0, f"{_short(info.filename)}: {reason}")
        return
    is_dense = info.file_size > (64 << 20) and info.file_size > MAX_RATIO * max(info.compress_size, 1)
    if is_dense or info.file_size > allowance(info.compress_size):
        yield Problem(
            "bomb", max(info.header_offset, 0), 0, f"{_short(info.filename)}: {info.file_size} bytes from {info.compress_size}"
        )
        return
    try:
        inner = bundle.open(info)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, ValueError) as error:
        yield Problem("corrupt_archive", max(info.header_offset, 0), 0, f"{_short(info.filename)}: {type(error).__name__}")
        return
    try:
        modified = datetime(*info.date_time, tzinfo=UTC)
    except ValueError:
        modified = None
    yield _member(info.filename, info.file_size, modified, inner, min(MAX_MEMBER_BYTES, max(info.file_size, 64 << 20)), budget)


def _member(name: str, size: int, modified: datetime | None, inner: Any, limit: int, budget: _Budget | None = None) -> Member:
    hashed = _Hashed(inner, limit, budget or _Budget())
    member = Member(_valid(name), size, modified, io.BufferedReader(hashed, 1 << 20))
    hashed.member = member
    return member


def _valid(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _short(name: str) -> str:
    return repr(_valid(name)[:120])
