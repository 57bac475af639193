"""One compiled pass over a block of a regular log: where lines begin, what their headers say, which are plain.

It knows the headers of `fast_header` and refuses a line on the slightest doubt; refused lines go through `log_parser`,
which is the reference. A test holds both to the same rows. Lines of a known shape (`shapes`) have their numbers read.
"""

from __future__ import annotations

import numpy as np

from jobs.adapters.fast_base import is_digit, is_word, njit
from jobs.adapters.fast_header import DIGITS, TOLD_LABEL, TOLD_LEVEL, TOLD_RANK, US, begins_plainly, header

LINE_CAP = 64 << 10
SHAPE_CAP = 1 << 10
MAX_SLOTS = 24
MAX_SPACES = 8
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_FOLD = np.uint64(29)
NUMBER, SPACES = 0x100, 0x110
"""What a number (plus its kind) and the run of spaces before it stand for in a shape: no byte has these values."""

POWERS = 10.0 ** np.arange(23)
"""Powers of ten that a double holds exactly: a mantissa of 15 digits times or over one of them is rounded once."""


@njit
def number_at(buf: np.ndarray, at: int, end: int) -> tuple[int, int, float]:
    """End, kind and value of a number; end -1 when it is none that is read exactly here.

    Kinds: 0 integer, 1 with a point, 2 with an exponent, and 3 more with a sign.
    """
    p, kind, sign = at, 0, 1.0
    if p < end and (buf[p] == 45 or buf[p] == 43):
        sign = -1.0 if buf[p] == 45 else 1.0
        kind = 3
        p += 1
    mantissa, n_digits, scale = 0, 0, 0
    while p < end and is_digit(buf[p]) and n_digits < 16:
        mantissa = mantissa * 10 + (buf[p] - 48)
        n_digits += 1
        p += 1
    if n_digits == 0:
        return -1, 0, 0.0
    if p + 1 < end and buf[p] == 46 and is_digit(buf[p + 1]):
        kind += 1
        p += 1
        while p < end and is_digit(buf[p]) and n_digits < 16:
            mantissa = mantissa * 10 + (buf[p] - 48)
            n_digits += 1
            scale -= 1
            p += 1
    if p + 2 < end and (buf[p] == 69 or buf[p] == 101) and (buf[p + 1] == 43 or buf[p + 1] == 45) and is_digit(buf[p + 2]):
        kind = 5 if kind >= 3 else 2
        exponent, q = 0, p + 2
        while q < end and is_digit(buf[q]) and q - p < 5:
            exponent = exponent * 10 + (buf[q] - 48)
            q += 1
        scale += exponent if buf[p + 1] == 43 else -exponent
        p = q
    if n_digits > (12 if kind % 3 == 0 else 15) or scale > 22 or scale < -22 or (p < end and is_digit(buf[p])):
        return -1, 0, 0.0
    value = mantissa * POWERS[scale] if scale >= 0 else mantissa / POWERS[-scale]
    return p, kind, sign * value


@njit
def shape_of(buf: np.ndarray, at: int, end: int, numbers: np.ndarray, marks: np.ndarray) -> tuple[np.uint64, int]:
    """Hash of a message with its numbers left out, and how many there are; 0 numbers for what has no shape.

    `numbers` takes their values; `marks` takes each one's begin, end and the begin of the spaces before it.
    """
    value, n, p = _SEED, 0, at
    while p < end:
        c = buf[p]
        q = p
        if c == 32:
            while q < end and buf[q] == 32 and q - p < MAX_SPACES:
                q += 1
        is_start = p == at or not (is_word(buf[p - 1]) or buf[p - 1] == 46 or buf[p - 1] == 43 or buf[p - 1] == 45)
        r, kind, figure = -1, 0, 0.0
        if q < end and (is_digit(buf[q]) or buf[q] == 45 or buf[q] == 43) and (q > p or is_start):
            r, kind, figure = number_at(buf, q, end)
        if r > 0:
            if n >= len(numbers):
                return value, 0
            if q > p:
                value = ((value ^ np.uint64(SPACES)) * _PRIME) ^ (value >> _FOLD)
            value = ((value ^ np.uint64(NUMBER + kind)) * _PRIME) ^ (value >> _FOLD)
            numbers[n] = figure
            marks[n, 0], marks[n, 1], marks[n, 2] = q, r, p
            n += 1
            p = r
        else:
            if is_digit(c) and is_start:
                return value, 0
            stop = max(q, p + 1)
            while p < stop:
                value = ((value ^ np.uint64(buf[p])) * _PRIME) ^ (value >> _FOLD)
                p += 1
    return value, n


@njit
def _is_own(told: int, label: int, own_rank: int, is_shared: bool) -> bool:
    if is_shared:
        return told >= 0 or label >= 0
    return label < 0 and (told < 0 or told == own_rank)


@njit
def scan(  # noqa: C901 - one loop over the bytes: what is known of a line decides what is looked at next
    buf: np.ndarray, layouts: np.ndarray, own_rank: int, is_shared: bool, words: np.ndarray, lengths: np.ndarray,
    table: np.ndarray, is_end: np.ndarray, shapes: np.ndarray, lines: np.ndarray, hashes: np.ndarray, numbers: np.ndarray,
) -> int:  # fmt: skip
    """Number of lines of known shapes. `lines` takes a column a line, rows as `Lines.of` names them; `shapes` are sorted.

    `hashes` takes the shapes of lines that are clear and not plain; `numbers` the figures of those that are known.
    """
    n, at, size, n_shaped = 0, 0, len(buf), 0
    n_plain, n_known = np.searchsorted(is_end, 1), np.searchsorted(is_end, 2)
    out = np.empty(5, np.int64)
    marks = np.empty((MAX_SLOTS, 3), np.int64)
    while at < size:
        end = at
        while end < size and buf[end] != 10:
            end += 1
        lines[0, n], lines[1, n], lines[2, n], lines[3, n] = at, end, 0, 0
        lines[7, n], lines[8, n], lines[9, n] = -1, -1, -1
        hashes[n] = 0
        begin, clear = -1, False
        if 0 < end - at < LINE_CAP:
            for k in range(len(layouts)):
                begin = header(buf, at, end, layouts[k], words, lengths, out)
                clear = begin > 0 and begin < end and out[US] >= 0 and begins_plainly(buf, begin, end, words, lengths)
                if clear:
                    break
        if clear and _is_own(out[TOLD_RANK], out[TOLD_LABEL], own_rank, is_shared):
            last = buf[end - 1]
            has_words, odd, state, p = False, last in (123, 40, 91, 58, 44), 0, begin
            while p < end:
                c = buf[p]
                state = table[state, c]
                if state >= n_plain:
                    has_words = True
                    if state >= n_known:
                        clear = False
                        break
                odd |= c >= 127 or (c < 32 and c != 9)
                p += 1
            if clear:
                lines[2, n], lines[4, n], lines[5, n], lines[6, n] = begin, out[US], out[DIGITS], out[TOLD_LEVEL]
                lines[7, n], lines[8, n] = out[TOLD_RANK], out[TOLD_LABEL]
                if not odd and not has_words:
                    lines[3, n] = begin
                elif not odd and end - begin <= SHAPE_CAP:
                    shape, n_numbers = shape_of(buf, begin, end, numbers[n_shaped], marks)
                    if n_numbers:
                        hashes[n] = shape
                        k = np.searchsorted(shapes, shape)
                        if k < len(shapes) and shapes[k] == shape:
                            lines[9, n] = k
                            n_shaped += 1
        n += 1
        at = end + 1
    return n_shaped


@njit
def gather(buf: np.ndarray, begins: np.ndarray, ends: np.ndarray, out: np.ndarray, offsets: np.ndarray) -> None:
    """Copy messages one behind the other; `offsets` are Arrow's."""
    at = 0
    for i in range(len(begins)):
        offsets[i] = at
        for p in range(begins[i], ends[i]):
            out[at] = buf[p]
            at += 1
    offsets[len(begins)] = at
