"""One compiled pass over a block of a regular log: where lines begin, what their headers say, which are plain.

It knows the headers of `OPS` and refuses a line on the slightest doubt; refused lines go through `log_parser`, which
is the reference. A test holds both to the same rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STAMP, RANK, LEVEL_LOGGER, NEMO, BRACKET_STAMP, BRACKET_LEVEL, BRACKET_SOURCE, LEVEL = range(1, 9)
LEVEL_WORDS = ("TRACE", "DEBUG", "INFO", "NOTICE", "WARNING", "WARN", "ERROR", "ERR", "EXCEPTION", "FATAL", "CRITICAL")
LEVEL_NAMES = ("DEBUG", "DEBUG", "INFO", "INFO", "WARNING", "WARNING", "ERROR", "ERROR", "ERROR", "CRITICAL", "CRITICAL")
NEMO_LEVELS = (("D", "DEBUG"), ("I", "INFO"), ("W", "WARNING"), ("E", "ERROR"), ("C", "CRITICAL"))
NAMES = tuple(dict.fromkeys(LEVEL_NAMES))
LINE_CAP = 64 << 10


def _njit(function: Any) -> Any:
    import numba

    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


def _is_digit(c: int) -> bool:
    return 48 <= c <= 57


def _is_word(c: int) -> bool:
    return (48 <= c <= 57) or (65 <= c <= 90) or (97 <= c <= 122) or c == 95


_is_digit, _is_word = _njit(_is_digit), _njit(_is_word)


@_njit
def _number(buf: np.ndarray, at: int, n: int) -> int:
    """`n` digits as a number, -1 when they are none."""
    value = 0
    for i in range(at, at + n):
        c = buf[i]
        if c < 48 or c > 57:
            return -1
        value = value * 10 + (c - 48)
    return value


@_njit
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a civil date (Howard Hinnant's algorithm)."""
    y = year - 1 if month <= 2 else year
    era = y // 400
    yoe = y - era * 400
    doy = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    doe = yoe * 365 + yoe // 4 - yoe // 100 + doy
    return era * 146097 + doe - 719468


@_njit
def _stamp(buf: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """End, microseconds and digits of the fraction of a stamp without a zone; end -1 when it is none or has one."""
    if at + 19 > end:
        return -1, 0, 0
    year, month, day = _number(buf, at, 4), _number(buf, at + 5, 2), _number(buf, at + 8, 2)
    hour, minute, second = _number(buf, at + 11, 2), _number(buf, at + 14, 2), _number(buf, at + 17, 2)
    if year < 2002 or year > 2098 or month < 1 or month > 12 or day < 1 or day > 28 + (month != 2) * 2:
        return -1, 0, 0
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return -1, 0, 0
    dash, gap = buf[at + 4], buf[at + 10]
    if (dash != 45 and dash != 47) or buf[at + 7] != dash or (gap != 32 and gap != 84) or buf[at + 13] != 58 or buf[at + 16] != 58:
        return -1, 0, 0
    us = (_days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second) * 1000000
    p, n_fraction = at + 19, 0
    if p + 1 < end and (buf[p] == 46 or buf[p] == 44) and _is_digit(buf[p + 1]):
        p += 1
        scale = 100000
        while p < end and _is_digit(buf[p]) and n_fraction < 9:
            us += (buf[p] - 48) * scale
            scale //= 10
            n_fraction += 1
            p += 1
    if _has_zone(buf, p, end):
        return -1, 0, 0
    return p, us, n_fraction


@_njit
def _has_zone(buf: np.ndarray, at: int, end: int) -> bool:
    """Whether something like a zone, am/pm or a further number follows: such stamps are not read here."""
    p = at
    if p < end and buf[p] == 32:
        p += 1
    if p >= end:
        return False
    c = buf[p]
    after = buf[p + 1] if p + 1 < end else 32
    if c == 90 or c == 43 or c == 45:
        return True
    if c == 85 and after == 84:
        return True
    if (c == 65 or c == 97 or c == 80 or c == 112) and (after == 77 or after == 109):
        return True
    return p == at and (_is_digit(c) or c == 58 or c == 46 or c == 44)


@_njit
def _level(buf: np.ndarray, at: int, end: int, words: np.ndarray, lengths: np.ndarray) -> int:
    """Which level word stands here, -1 for none; it must not go on as a longer word."""
    for w in range(len(lengths)):
        n = lengths[w]
        if at + n > end:
            continue
        same = True
        for i in range(n):
            if buf[at + i] != words[w, i]:
                same = False
                break
        if same and (at + n >= end or not _is_word(buf[at + n])):
            return w
    return -1


@_njit
def _location(buf: np.ndarray, at: int, end: int) -> int:
    """End of `name:123`, -1 when it is none."""
    p = at
    while p < end and (_is_word(buf[p]) or buf[p] == 46 or buf[p] == 60 or buf[p] == 62) and p - at < 80:
        p += 1
    if p == at or p >= end or buf[p] != 58:
        return -1
    p += 1
    q = p
    while q < end and _is_digit(buf[q]) and q - p < 6:
        q += 1
    return q if q > p else -1


@_njit
def _header(  # noqa: C901 - compiled as one: a call for each token would cost more than the token
    buf: np.ndarray, at: int, end: int, ops: np.ndarray, words: np.ndarray, lengths: np.ndarray, out: np.ndarray
) -> int:
    """Where the message begins, -1 when the header is not of this layout. `out`: µs, fraction digits, rank, level."""
    out[0], out[1], out[2], out[3] = -1, 0, -1, -1
    p = at
    for k in range(len(ops)):
        op = ops[k]
        if p >= end:
            return -1
        if op in (STAMP, BRACKET_STAMP):
            if op == BRACKET_STAMP:
                if buf[p] != 91:
                    return -1
                p += 1
            p, us, n_fraction = _stamp(buf, p, end)
            if p < 0:
                return -1
            if out[0] < 0:
                out[0], out[1] = us, n_fraction
            if op == BRACKET_STAMP:
                if p >= end or buf[p] != 93:
                    return -1
                p += 1
                if p < end and buf[p] == 58:
                    p += 1
                elif p < end and buf[p] == 32:
                    p += 1
                    if p + 1 < end and buf[p] == 45 and buf[p + 1] == 32:
                        return -1
            else:
                if p < end and buf[p] == 58:
                    p += 1
                n = 0
                while p < end and buf[p] == 32 and n < 4:
                    p += 1
                    n += 1
                if n == 0 or (p < end and buf[p] == 32):
                    return -1
        elif op == RANK:
            if (
                p + 7 > end
                or buf[p] != 91
                or (buf[p + 1] != 114 and buf[p + 1] != 82)
                or buf[p + 2] != 97
                or buf[p + 3] != 110
                or buf[p + 4] != 107
            ):
                return -1
            p += 5
            if buf[p] == 32 or buf[p] == 61 or buf[p] == 58:
                p += 1
            rank, n = 0, 0
            while p < end and _is_digit(buf[p]) and n < 6:
                rank = rank * 10 + (buf[p] - 48)
                p += 1
                n += 1
            if n == 0 or p >= end or buf[p] != 93:
                return -1
            p += 1
            if p < end and buf[p] == 58:
                return -1
            if p < end and buf[p] == 32:
                p += 1
            if out[2] < 0:
                out[2] = rank
        elif op == NEMO:
            if (
                p + 8 > end
                or buf[p] != 91
                or buf[p + 1] != 78
                or buf[p + 2] != 101
                or buf[p + 3] != 77
                or buf[p + 4] != 111
                or buf[p + 5] != 32
                or buf[p + 7] != 32
            ):
                return -1
            letter = buf[p + 6]
            level = -1
            if letter == 68:
                level = 1
            elif letter == 73:
                level = 2
            elif letter == 87:
                level = 4
            elif letter == 69:
                level = 6
            elif letter == 67:
                level = 10
            if level < 0:
                return -1
            p, us, n_fraction = _stamp(buf, p + 8, end)
            if p < 0 or p >= end or buf[p] != 32:
                return -1
            if out[0] < 0:
                out[0], out[1] = us, n_fraction
            if out[3] < 0:
                out[3] = level
            p = _location(buf, p + 1, end)
            if p < 0 or p + 1 >= end or buf[p] != 93 or buf[p + 1] != 32:
                return -1
            p += 2
        elif op == BRACKET_SOURCE:
            if buf[p] != 91:
                return -1
            q = _location(buf, p + 1, end)
            if q < 0 or q >= end:
                return -1
            if buf[q] == 58:
                q += 1
                while q < end and (_is_word(buf[q]) or buf[q] == 46 or buf[q] == 60 or buf[q] == 62):
                    q += 1
            if q + 1 >= end or buf[q] != 93 or buf[q + 1] != 32:
                return -1
            p = q + 2
        else:
            bracket = op == BRACKET_LEVEL
            if bracket:
                if buf[p] != 91:
                    return -1
                p += 1
            level = _level(buf, p, end, words, lengths)
            if level < 0:
                return -1
            if out[3] < 0:
                out[3] = level
            p += lengths[level]
            if p >= end:
                return -1
            if bracket:
                if p + 1 >= end or buf[p] != 93 or buf[p + 1] != 32:
                    return -1
                p += 2
                if p + 1 < end and buf[p] == 45 and buf[p + 1] == 32:
                    return -1
            elif op == LEVEL_LOGGER:
                n = 0
                while p < end and buf[p] == 32 and n < 4:
                    p += 1
                    n += 1
                if n == 0:
                    return -1
                p = _location(buf, p, end)
                if p < 0 or p + 2 >= end:
                    return -1
                if buf[p] == 32 and buf[p + 1] == 124 and buf[p + 2] == 32:
                    p += 3
                elif (buf[p] == 93 or buf[p] == 58) and buf[p + 1] == 32:
                    p += 2
                else:
                    return -1
            else:
                if buf[p] == 58 and p + 1 < end and buf[p + 1] == 32:
                    p += 2
                elif buf[p] == 32 and p + 1 < end and buf[p + 1] > 32 and buf[p + 1] != 45 and buf[p + 1] != 124:
                    p += 1
                    if _location(buf, p, end) >= 0:
                        return -1
                else:
                    return -1
    return p


@_njit
def _begins_plainly(buf: np.ndarray, at: int, end: int, words: np.ndarray, lengths: np.ndarray) -> bool:
    """Whether nothing at the message's start could be a further token of a header."""
    c = buf[at]
    after = buf[at + 1] if at + 1 < end else 32
    if c == 91 or (c == 45 and after == 32):
        return False
    if _is_digit(c) and at + 4 < end and _number(buf, at, 4) >= 0:
        return False
    if 65 <= c <= 90:
        if _is_digit(after):
            return False
        if at + 4 < end and buf[at + 3] == 32 and (_is_digit(buf[at + 4]) or buf[at + 4] == 32):
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


@_njit
def scan(
    buf: np.ndarray, ops: np.ndarray, own_rank: int, words: np.ndarray, lengths: np.ndarray, table: np.ndarray, is_end: np.ndarray,
    starts: np.ndarray, ends: np.ndarray, heads: np.ndarray, messages: np.ndarray, at_us: np.ndarray, fractions: np.ndarray,
    levels: np.ndarray,
) -> int:  # fmt: skip
    """Number of lines; for each its bounds, its header's end (0: not read here), its message's begin (0: look closer)."""
    n, at, size = 0, 0, len(buf)
    out = np.empty(4, np.int64)
    while at < size:
        end = at
        while end < size and buf[end] != 10:
            end += 1
        starts[n], ends[n], heads[n], messages[n] = at, end, 0, 0
        begin = _header(buf, at, end, ops, words, lengths, out) if 0 < end - at < LINE_CAP else -1
        if begin > 0 and begin < end and out[0] >= 0 and (out[2] < 0 or out[2] == own_rank):
            last = buf[end - 1]
            clear = _begins_plainly(buf, begin, end, words, lengths)
            plain = clear and last not in (123, 40, 91, 58, 44)
            state = 0
            p = begin
            while clear and p < end:
                c = buf[p]
                state = table[state, c]
                clear = is_end[state] != 2
                plain = plain and not (is_end[state] or c >= 127 or (c < 32 and c != 9))
                p += 1
            if clear:
                heads[n], at_us[n], fractions[n], levels[n] = begin, out[0], out[1], out[3]
                messages[n] = begin if plain else 0
        n += 1
        at = end + 1
    return n


@_njit
def gather(buf: np.ndarray, begins: np.ndarray, ends: np.ndarray, out: np.ndarray, offsets: np.ndarray) -> None:
    """Copy messages one behind the other; `offsets` are Arrow's."""
    at = 0
    for i in range(len(begins)):
        offsets[i] = at
        for p in range(begins[i], ends[i]):
            out[at] = buf[p]
            at += 1
    offsets[len(begins)] = at


def level_table() -> tuple[np.ndarray, np.ndarray]:
    """Level words as bytes, and their lengths."""
    words = np.zeros((len(LEVEL_WORDS), 12), np.uint8)
    for i, word in enumerate(LEVEL_WORDS):
        words[i, : len(word)] = np.frombuffer(word.encode(), np.uint8)
    return words, np.array([len(word) for word in LEVEL_WORDS], np.int64)
