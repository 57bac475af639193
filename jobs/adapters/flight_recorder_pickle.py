"""Unpickling without trust: plain data comes out, and nothing that a pickle names is ever looked up, built or called.

Two walls stand one behind the other. Before anything is built, the opcodes are walked and only those that make plain
data pass; then the unpickler itself refuses every class. The walk also bounds what a few bytes could ask for: memo
slots, numbers, nesting of tuples.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
from typing import Any

import numpy as np

MAX_BYTES = 512 << 20


def _short_texts() -> bytes:
    """Alternatives for texts of fewer than 48 bytes, whose length a pattern can check."""
    long_form = b"|".join(b"\\x%02x\\x00\\x00\\x00.{%d}" % (n, n) for n in range(48))
    short_form = b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(48))
    return b"X(?:%s)|\\x8c(?:%s)|" % (long_form, short_form)


_PLAIN = re.compile(
    rb"(?s)(?:"
    rb"[hq].|j....|"  # memo
    rb"[(\]}a01eNus)\x88\x89\x8f\x90\x91\x94lt\x85\x86\x87d]|"  # marks, containers, constants, memoize, tuples
    + _short_texts()
    + rb"K.|M..|J....|G.{8}|"  # numbers
    rb"\x80[\x00-\x05]|\x95.{8}|"  # protocol, frame
    rb"\x8a(?:\x08.{8}|\x07.{7}|\x06.{6}|\x05.{5}|\x04.{4}|\x00)|"  # long numbers
    rb"r..[\x00-\x3f]\x00|"  # memo by four bytes: four million slots at most
    rb"[pg]\d{1,7}\n|[IL][+\-0-9L]{1,40}\n|F[^\n]{1,40}\n|[SV][^\n]{0,65536}\n"  # text forms
    rb")*+"
)
_LENGTHS = {b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4, b"C": 1, b"B": 4, b"\x8e": 8, b"\x8a": 1, b"\x8b": 4}
_NUMBERS = (b"\x8a", b"\x8b")
_NESTED_TUPLES = re.compile(rb"(?s)(?:[\x85\x86\x87](?:q.|r....|\x94)?(?:0)?(?:h.|j....|2){0,4}){15}")
_DEPTH = 15
_WIDEST_STEP = 32
_MOST_TRIES = 100_000
_IS_TUPLE = np.isin(np.arange(256), (0x85, 0x86, 0x87))
_CALLS = {
    b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"i": "INST", b"o": "OBJ", b"b": "BUILD",
    b"\x81": "NEWOBJ", b"\x92": "NEWOBJ_EX", b"P": "PERSID", b"Q": "BINPERSID", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4",
}  # fmt: skip


class UnsafePickleError(ValueError):
    """The pickle asks for more than plain data; the message says for what, `offset` says where."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.offset = offset


class CorruptPickleError(ValueError):
    """The pickle is cut off or is none; `offset` says where reading stopped."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.offset = offset


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain data only."""

    def find_class(self, module: str, name: str) -> Any:
        """Never."""
        raise UnsafePickleError(f"it asks for {module[:60]}.{name[:60]}", 0)

    def persistent_load(self, pid: Any) -> Any:
        """Never."""
        raise UnsafePickleError("it asks for an object outside of itself", 0)


def plain_data(data: bytes) -> Any:
    """What a pickle of plain data holds.

    Raises UnsafePickleError when it asks for anything but numbers, text, bytes, lists, tuples, dicts and constants;
    CorruptPickleError when it is cut off or is no pickle.
    """
    walk(data)
    was_collecting = gc.isenabled()
    gc.disable()  # Plain data has no cycles worth looking for, and looking takes as long as building.
    try:
        # A reader that can look ahead gives the unpickler all bytes at once: three times as fast as opcode by opcode.
        return _PlainUnpickler(io.BufferedReader(io.BytesIO(data), max(1, len(data)))).load()
    except UnsafePickleError:
        raise
    except Exception as error:
        raise CorruptPickleError(f"it cannot be unpickled: {type(error).__name__}", 0) from None
    finally:
        if was_collecting:
            gc.enable()


def walk(data: bytes) -> None:
    """Pass over the opcodes without building anything; raises as `plain_data` does."""
    if _nests(data):
        raise UnsafePickleError("it nests tuples in tuples beyond all use", 0)
    at, end = 0, len(data)
    while True:
        run = _PLAIN.match(data, at)
        if run is not None and run.end() > at:
            at = run.end()
        opcode = data[at : at + 1]
        if opcode == b".":
            return
        if opcode == b"" or at >= end:
            raise CorruptPickleError("it is cut off", end)
        size = _LENGTHS.get(opcode)
        if size is None:
            raise _refusal(opcode, at)
        n_bytes = int.from_bytes(data[at + 1 : at + 1 + size], "little")
        if opcode in _NUMBERS and n_bytes > 32:
            raise UnsafePickleError("it holds a number of more than 32 bytes", at)
        at += 1 + size + n_bytes
        if at > end:
            raise CorruptPickleError("it is cut off", end)


def _nests(data: bytes) -> bool:
    """Whether tuples are built of tuples sixteen deep: hashing such a thing as a key would never end.

    The pattern is slow, so that it is tried only where bytes like tuples' opcodes stand as densely as it needs.
    """
    places = np.flatnonzero(_IS_TUPLE[np.frombuffer(data, np.uint8)])
    dense = np.flatnonzero(places[_DEPTH - 1 :] - places[: 1 - _DEPTH] <= _DEPTH * _WIDEST_STEP)
    return any(_NESTED_TUPLES.match(data, int(places[i])) for i in dense[:_MOST_TRIES]) or len(dense) > _MOST_TRIES


def _refusal(opcode: bytes, at: int) -> UnsafePickleError | CorruptPickleError:
    if opcode in _CALLS:
        return UnsafePickleError(f"it asks for an object by {_CALLS[opcode]}", at)
    if opcode in b"rpgILFSVMJjKhqG\x95\x80":
        return CorruptPickleError("it is cut off, or asks for more than is allowed", at)
    return CorruptPickleError(f"it is no pickle of plain data: opcode {opcode!r}", at)
