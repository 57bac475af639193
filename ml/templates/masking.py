"""What is variable in a log message becomes `<*>`; what is left is hashed into the message's key.

    >>> mask("rank 5: loss 3.2 at /data/run/x.bin")
    'rank <*>: loss <*> at <*>'

`message_keys` is the only grain at which messages are told apart after ingest: equal masked text, equal key, on
every machine and for ever (`ml.templates.masks.MASK_VERSION`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ml.templates.masks import MASKS, MAX_BYTES, SPACE, WILDCARD

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
MIX_1 = 0xFF51AFD7ED558CCD
MIX_2 = 0xC4CEB9FE1A85EC53
SMALL_BYTES = 256 << 10
_64 = 0xFFFFFFFFFFFFFFFF
_SPACES = re.compile(rb"[" + SPACE + rb"]++")


def mask(message: str) -> str:
    """The message with its variable parts as `<*>` and its white space squeezed; only its first 16 KiB count."""
    return mask_bytes(_encoded(message)).decode("utf-8", "replace")


def mask_bytes(message: bytes) -> bytes:
    """`mask` for bytes of any encoding that holds ASCII (UTF-8, Latin-1)."""
    from ml.templates import kernel

    data = np.frombuffer(message, dtype=np.uint8)
    out = np.empty(kernel.bound(len(data)), dtype=np.uint8)
    return out[: kernel.mask_into(data, 0, len(data), out)].tobytes()


def message_keys(messages: Sequence[str] | pa.Array | pa.ChunkedArray) -> np.ndarray:
    """int64 key of each message: FNV-1a over the masked bytes, finished with murmur3's 64-bit mix.

    Strings of Python or an Arrow array of strings without nulls; shape (n,). Equal keys mean equal masked text.
    """
    data, offsets = text_buffers(messages)
    if _is_quicker_without_kernel(data):
        return np.array([hash_bytes(mask_reference(text)) for text in _texts(data, offsets)], np.int64)
    from ml.templates import kernel

    return kernel.keys(data, offsets)


def masked_messages(messages: Sequence[str] | pa.Array | pa.ChunkedArray) -> list[str]:
    """`mask` of each message."""
    data, offsets = text_buffers(messages)
    if _is_quicker_without_kernel(data):
        return [mask_reference(text).decode("utf-8", "replace") for text in _texts(data, offsets)]
    from ml.templates import kernel

    out, ends = kernel.mask_all(data, offsets)
    starts = [0, *ends.tolist()]
    text = out.tobytes()
    return [text[a:b].decode("utf-8", "replace") for a, b in pairwise(starts)]


def _is_quicker_without_kernel(data: np.ndarray) -> bool:
    """Loading compiled code takes longer than masking little text without it; both give the same."""
    return len(data) < SMALL_BYTES and "numba" not in sys.modules


def _texts(data: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets.tolist())]


def text_buffers(messages: Sequence[str] | pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """UTF-8 bytes of all messages and where each begins (n + 1 offsets, int64)."""
    if not isinstance(messages, pa.ChunkedArray | pa.Array):
        # Not through Arrow, which loads pandas as soon as it is given a list.
        encoded = [_encoded(message) for message in messages]
        begins = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=begins[1:])
        return np.frombuffer(b"".join(encoded), dtype=np.uint8), begins
    array = messages.cast(pa.large_string())
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    begins = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    text = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return text, begins


def arrow_texts(texts: Sequence[str]) -> pa.Array:
    """An Arrow array of texts. `pa.array` of a list would load pandas, which takes longer than a small log."""
    data, begins = text_buffers(texts)
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(begins), pa.py_buffer(data))


def arrow_numbers(values: np.ndarray) -> pa.Array:
    """An Arrow array of whole numbers, for the same reason not through `pa.array`."""
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values.astype(np.int64))])


def _encoded(message: str) -> bytes:
    return message.encode("utf-8", "replace")


def hash_bytes(masked: bytes) -> int:
    """The reference of the key's hash, as a signed 64-bit integer."""
    value = FNV_OFFSET
    for byte in masked:
        value = ((value ^ byte) * FNV_PRIME) & _64
    value = ((value ^ (value >> 33)) * MIX_1) & _64
    value = ((value ^ (value >> 33)) * MIX_2) & _64
    value ^= value >> 33
    return value - (1 << 64) if value >> 63 else value


@cache
def reference_pattern() -> re.Pattern[bytes]:
    """All masks in order, joined; group `m3` is the fourth mask."""
    return re.compile(b"|".join(b"(?P<m%d>%b)" % (number, each.pattern) for number, each in enumerate(MASKS)))


def mask_reference(message: bytes) -> bytes:
    """The slow reference of `mask_bytes`: the masks as plain regular expressions."""
    return reference_pattern().sub(_becomes, message[:MAX_BYTES]).strip(b" \n")


def _becomes(found: re.Match[bytes]) -> bytes:
    becomes = MASKS[int(str(found.lastgroup)[1:])].becomes
    if becomes == " ":
        return b"\n" if b"\n" in found[0] else b" "
    if becomes == "{0}":
        return _SPACES.sub(b" ", found[0])
    if becomes == "quoted":
        return found[0][:1] + WILDCARD + found[0][-1:]
    if becomes != WILDCARD.decode():
        return found["a"] + b" (<*>): " + found["b"]
    return WILDCARD
