"""Headers of log lines in one compiled pass over their bytes, for the layouts that the kernel knows."""

from __future__ import annotations

import numpy as np

from jobs.adapters.fast_base import digits, is_digit, is_word, level_at, location, njit, number, stamp

STAMP, RANK, LEVEL_LOGGER, NEMO, BRACKET_STAMP, BRACKET_LEVEL, BRACKET_SOURCE, LEVEL, LABEL = range(1, 10)
US, DIGITS, TOLD_RANK, TOLD_LEVEL, TOLD_LABEL = range(5)
"""What `header` writes: microseconds, digits of the fraction, rank, level, srun's label; -1 where the line does not say."""


@njit
def _stamp_token(  # noqa: C901 - a chain of bytes, each tested once
    buf: np.ndarray, at: int, end: int, is_bracketed: bool, out: np.ndarray
) -> int:
    p = at
    if is_bracketed:
        if buf[p] != 91:
            return -1
        p += 1
    p, us, n_fraction = stamp(buf, p, end)
    if p < 0:
        return -1
    if out[US] < 0:
        out[US], out[DIGITS] = us, n_fraction
    if is_bracketed:
        if p >= end or buf[p] != 93:
            return -1
        p += 1
        if p < end and buf[p] == 58:
            return p + 1
        if p < end and buf[p] == 32:
            p += 1
            if p + 1 < end and buf[p] == 45 and buf[p + 1] == 32:
                return -1
        return p
    if p < end and buf[p] == 58:
        p += 1
    n = 0
    while p < end and buf[p] == 32 and n < 4:
        p += 1
        n += 1
    return -1 if n == 0 or (p < end and buf[p] == 32) else p


@njit
def _rank_token(buf: np.ndarray, at: int, end: int, out: np.ndarray) -> int:
    """`[rank0] `, `[Rank 0] `."""
    p = at
    if p + 7 > end or buf[p] != 91 or (buf[p + 1] != 114 and buf[p + 1] != 82) or buf[p + 2] != 97:
        return -1
    if buf[p + 3] != 110 or buf[p + 4] != 107:
        return -1
    p += 5
    if buf[p] == 32 or buf[p] == 61 or buf[p] == 58:
        p += 1
    begin = p
    rank, p = digits(buf, begin, end)
    if p == begin or p >= end or buf[p] != 93:
        return -1
    p += 1
    if p < end and buf[p] == 58:
        return -1
    if p < end and buf[p] == 32:
        p += 1
    if out[TOLD_RANK] < 0:
        out[TOLD_RANK] = rank
    return p


@njit
def _label_token(buf: np.ndarray, at: int, end: int, out: np.ndarray) -> int:
    """srun's task label: `  12: `."""
    p = at
    while p < end and buf[p] == 32 and p - at < 6:
        p += 1
    begin = p
    label, p = digits(buf, begin, end)
    if p == begin or p >= end or buf[p] != 58:
        return -1
    out[TOLD_LABEL] = label
    p += 1
    return p + 1 if p < end and buf[p] == 32 else p


@njit
def _level_of_letter(letter: int) -> int:
    """Index among the level words of D, I, W, E, C and F."""
    if letter == 68:
        return 1
    if letter == 73:
        return 2
    if letter == 87:
        return 4
    if letter == 69:
        return 6
    return 10 if letter in (67, 70) else -1


@njit
def _nemo_token(buf: np.ndarray, at: int, end: int, out: np.ndarray) -> int:
    """`[NeMo W 2026-11-30 03:04:05 data:12] `."""
    p = at
    if p + 8 > end or buf[p] != 91 or buf[p + 1] != 78 or buf[p + 2] != 101 or buf[p + 3] != 77 or buf[p + 4] != 111:
        return -1
    if buf[p + 5] != 32 or buf[p + 7] != 32:
        return -1
    level = _level_of_letter(buf[p + 6]) if buf[p + 6] != 70 else -1
    if level < 0:
        return -1
    p, us, n_fraction = stamp(buf, p + 8, end)
    if p < 0 or p >= end or buf[p] != 32:
        return -1
    if out[US] < 0:
        out[US], out[DIGITS] = us, n_fraction
    if out[TOLD_LEVEL] < 0:
        out[TOLD_LEVEL] = level
    p = location(buf, p + 1, end)
    return -1 if p < 0 or p + 1 >= end or buf[p] != 93 or buf[p + 1] != 32 else p + 2


@njit
def _source_token(buf: np.ndarray, at: int, end: int) -> int:
    """`[engine.py:96:step] `."""
    if buf[at] != 91:
        return -1
    q = location(buf, at + 1, end)
    if q < 0 or q >= end:
        return -1
    if buf[q] == 58:
        q += 1
        while q < end and (is_word(buf[q]) or buf[q] == 46 or buf[q] == 60 or buf[q] == 62):
            q += 1
    return -1 if q + 1 >= end or buf[q] != 93 or buf[q + 1] != 32 else q + 2


@njit
def _level_token(buf: np.ndarray, at: int, end: int, op: int, words: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> int:
    """`INFO: `, `INFO `, `[INFO] `, `INFO trainer:12 | `."""
    p = at
    if op == BRACKET_LEVEL:
        if buf[p] != 91:
            return -1
        p += 1
    level = level_at(buf, p, end, words, lengths)
    if level < 0:
        return -1
    if out[TOLD_LEVEL] < 0:
        out[TOLD_LEVEL] = level
    p += lengths[level]
    if p >= end:
        return -1
    if op == BRACKET_LEVEL:
        if p + 1 >= end or buf[p] != 93 or buf[p + 1] != 32:
            return -1
        p += 2
        return -1 if p + 1 < end and buf[p] == 45 and buf[p + 1] == 32 else p
    return _after_level(buf, p, end, op)


@njit
def _after_level(buf: np.ndarray, at: int, end: int, op: int) -> int:
    p = at
    if op == LEVEL_LOGGER:
        n = 0
        while p < end and buf[p] == 32 and n < 4:
            p += 1
            n += 1
        p = location(buf, p, end) if n else -1
        if p < 0 or p + 2 >= end:
            return -1
        if buf[p] == 32 and buf[p + 1] == 124 and buf[p + 2] == 32:
            return p + 3
        return p + 2 if (buf[p] == 93 or buf[p] == 58) and buf[p + 1] == 32 else -1
    if buf[p] == 58 and p + 1 < end and buf[p + 1] == 32:
        return p + 2
    if buf[p] == 32 and p + 1 < end and buf[p + 1] > 32 and buf[p + 1] != 45 and buf[p + 1] != 124:
        return -1 if location(buf, p + 1, end) >= 0 else p + 1
    return -1


@njit
def header(buf: np.ndarray, at: int, end: int, ops: np.ndarray, words: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> int:
    """Where the message begins, -1 when the header is not of this layout, whose operations end with a zero."""
    out[US], out[DIGITS], out[TOLD_RANK], out[TOLD_LEVEL], out[TOLD_LABEL] = -1, 0, -1, -1, -1
    p = at
    for k in range(len(ops)):
        op = ops[k]
        if op == 0:
            break
        if p >= end:
            return -1
        if op in (STAMP, BRACKET_STAMP):
            p = _stamp_token(buf, p, end, op == BRACKET_STAMP, out)
        elif op == RANK:
            p = _rank_token(buf, p, end, out)
        elif op == LABEL:
            p = _label_token(buf, p, end, out)
        elif op == NEMO:
            p = _nemo_token(buf, p, end, out)
        elif op == BRACKET_SOURCE:
            p = _source_token(buf, p, end)
        else:
            p = _level_token(buf, p, end, op, words, lengths, out)
        if p < 0:
            return -1
    return p


@njit
def begins_plainly(buf: np.ndarray, at: int, end: int, words: np.ndarray, lengths: np.ndarray) -> bool:
    """Whether nothing at the message's start could be a further token of a header."""
    c = buf[at]
    after = buf[at + 1] if at + 1 < end else 32
    if c == 91 or (c == 45 and after == 32):
        return False
    if is_digit(c) and at + 4 < end and number(buf, at, 4) >= 0:
        return False
    if 65 <= c <= 90:
        if is_digit(after):
            return False
        if at + 4 < end and buf[at + 3] == 32 and (is_digit(buf[at + 4]) or buf[at + 4] == 32):
            return False
        if 65 <= after <= 90:
            return False
        return not (
            at + 4 < end
            and (
                (c == 68 or c == 73 or c == 87 or c == 69 or c == 70)
                and (after == 101 or after == 110 or after == 97 or after == 114)
            )
        )
    return not (at + 4 < end and (c == 100 or c == 105 or c == 119 or c == 101 or c == 102) and buf[min(at + 4, end - 1)] == 58)
