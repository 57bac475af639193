"""What the compiled masks share: classes of bytes, tables of words, and how functions are compiled and cached."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ml.templates import masks

Bytes = NDArray[Any]
SPACE, DIGIT, LETTER, HEX, PATH, OPENER, NAME, URL_END, CODE_GAP, CODE_FIRST, PLAIN = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024
ASCII_LETTER, CODE_SECOND = 2048, 4096
ALNUM = DIGIT | LETTER
NONE = -1


def _fingerprint() -> str:
    """Hash of all code and data that is compiled: machine code of another version is never taken from the cache."""
    folder = Path(__file__).parent
    content = b"".join(file.read_bytes() for file in sorted([*folder.glob("kernel*.py"), folder / "masks.py"]))
    return hashlib.sha256(content).hexdigest()[:12]


def _cache_folder() -> str | None:
    """The first folder that can be written: the environment's, the package's, the user's; None when none can."""
    package, user = str(Path(__file__).parent / "__pycache__"), os.path.expanduser("~/.cache/fleetdiff")
    homes = (os.environ.get("NUMBA_CACHE_DIR"), package, user)
    for home in filter(None, homes):
        folder = os.path.join(home, "masks-" + _fingerprint())
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


CACHE_FOLDER = _cache_folder()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that allocates nothing, without counting references; keep the machine code where possible."""
    return _cached(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is compiled into its caller."""
    return _cached(function, _nrt=False, inline="always")


def allocating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes arrays."""
    return _cached(function)


def _cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    before = numba.config.CACHE_DIR
    try:
        numba.config.CACHE_DIR = CACHE_FOLDER or before
        return numba.njit(cache=CACHE_FOLDER is not None, nogil=True, **options)(function)
    except RuntimeError:  # the folder cannot be used after all
        return numba.njit(nogil=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def _classes() -> np.ndarray:
    table = np.zeros(256, np.int32)
    for flag, text in (
        (SPACE, b" \t\n\r\x0b\x0c\x00"), (DIGIT, b"0123456789"), (HEX, b"0123456789abcdefABCDEF"),
        (PATH, b"_.-+@%~#$&"), (OPENER, b" \t\n\r\x0b\x0c\x00\"'([{=,;|<:"), (NAME, b".-"),
        (URL_END, b" \t\n\r\x0b\x0c\x00\"'<>()[]{},;|`"), (CODE_GAP, b" \t:=([#'\""),
        (CODE_SECOND, b"".join(word[1:2].encode() + word[1:2].upper().encode() for word in (*masks.CODE_WORDS, "sxid"))),
        (CODE_FIRST, b"".join(word[:1].encode() + word[:1].upper().encode() for word in (*masks.CODE_WORDS, "sxid"))),
    ):  # fmt: skip
        table[list(text)] |= flag
    letters = [*range(65, 91), *range(97, 123)]
    table[letters] |= LETTER | NAME | ASCII_LETTER
    table[128:] |= LETTER
    table[48:58] |= NAME
    table[list(b"|()[]{},;=_*!?%&#@^$`>")] |= PLAIN
    table[[*letters, *range(128, 256), *range(48, 58)]] |= PATH
    return table


def _packed(words: tuple[str, ...]) -> np.ndarray:
    """Words of up to 8 letters as numbers: one compare a word."""
    return np.array([int.from_bytes(word.encode(), "big") for word in words], np.uint64)


def _table(words: tuple[str, ...]) -> np.ndarray:
    rows = np.zeros((len(words), 16), np.uint8)
    for row, word in zip(rows, words):
        row[: len(word)] = list(word.encode())
    return rows


CLASS = _classes()
NOUNS = _packed(masks.INDEX_NOUNS)
GENERIC = _packed(masks.GENERIC_DOMAINS)
COUNTRY = _packed(masks.COUNTRY_DOMAINS)
WEEKDAYS = _packed(tuple(day.lower() for day in masks.WEEKDAYS))
MONTHS = _packed(tuple(month.lower() for month in masks.MONTHS))
CODES = _table(masks.CODE_WORDS)


@compiled
def run(s: Bytes, i: int, end: int, flag: int) -> int:
    """End of the run of bytes of a class."""
    while i < end and (CLASS[s[i]] & flag) != 0:
        i += 1
    return i


@compiled
def lower(byte: int) -> int:
    """The byte in lower case."""
    return byte | 32 if 65 <= byte <= 90 else byte


@compiled
def pack(s: Bytes, begin: int, end: int) -> int:
    """Up to 8 bytes in lower case as one number; 0 when there are more or none."""
    if end - begin > 8:
        return np.uint64(0)  # type: ignore[return-value]
    value = np.uint64(0)
    for k in range(begin, end):
        value = (value << np.uint64(8)) | np.uint64(lower(s[k]))
    return value  # type: ignore[return-value]


@compiled
def contains(words: Bytes, value: int) -> bool:
    """Whether a packed word is in a table."""
    if value == 0:
        return False
    for k in range(words.shape[0]):  # noqa: SIM110
        if words[k] == value:
            return True
    return False


@compiled
def put(out: Bytes, at: int, source: Bytes, begin: int, end: int) -> int:
    """Copy bytes, white space squeezed into single spaces; returns the new end."""
    spaced = False
    for k in range(begin, end):
        if (CLASS[source[k]] & SPACE) != 0:
            spaced = True
            continue
        if spaced:
            out[at] = 32
            at += 1
            spaced = False
        out[at] = source[k]
        at += 1
    if spaced:
        out[at] = 32
        at += 1
    return at


@compiled
def wild(out: Bytes, at: int) -> int:
    """Write the wildcard; the new end."""
    out[at] = 60
    out[at + 1] = 42
    out[at + 2] = 62
    return at + 3


@compiled
def spaces(s: Bytes, i: int, end: int) -> int:
    """One or two spaces; -1 when there is none."""
    if i >= end or s[i] != 32:
        return NONE
    return i + 2 if i + 1 < end and s[i + 1] == 32 else i + 1


@compiled
def digits_at(s: Bytes, i: int, end: int, n: int) -> bool:
    """Whether `n` digits stand here."""
    return i + n <= end and run(s, i, i + n, DIGIT) == i + n
