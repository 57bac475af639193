"""What the compiled readers of log lines share: digits, stamps, level words and source locations in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

LEVEL_WORDS = ("TRACE", "DEBUG", "INFO", "NOTICE", "WARNING", "WARN", "ERROR", "ERR", "EXCEPTION", "FATAL", "CRITICAL")
LEVEL_NAMES = ("DEBUG", "DEBUG", "INFO", "INFO", "WARNING", "WARNING", "ERROR", "ERROR", "ERROR", "CRITICAL", "CRITICAL")


def njit(function: Any) -> Any:
    """Compile a function; its machine code is kept beside the package where that can be written."""
    import numba

    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


def is_digit(c: int) -> bool:
    """Whether a byte is a digit."""
    return 48 <= c <= 57


def is_word(c: int) -> bool:
    """Whether a byte is a letter, a digit or an underscore."""
    return (48 <= c <= 57) or (65 <= c <= 90) or (97 <= c <= 122) or c == 95


is_digit, is_word = njit(is_digit), njit(is_word)


@njit
def number(buf: np.ndarray, at: int, n: int) -> int:
    """`n` digits as a number, -1 when they are none."""
    value = 0
    for i in range(at, at + n):
        c = buf[i]
        if c < 48 or c > 57:
            return -1
        value = value * 10 + (c - 48)
    return value


@njit
def digits(buf: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Up to six digits as a number, and where they end: at `at` when there are none."""
    value, p = 0, at
    while p < end and is_digit(buf[p]) and p - at < 6:
        value = value * 10 + (buf[p] - 48)
        p += 1
    return value, p


@njit
def days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a civil date (Howard Hinnant's algorithm)."""
    y = year - 1 if month <= 2 else year
    era = y // 400
    yoe = y - era * 400
    doy = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    doe = yoe * 365 + yoe // 4 - yoe // 100 + doy
    return era * 146097 + doe - 719468


@njit
def stamp(buf: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """End, microseconds and digits of the fraction of a stamp without a zone; end -1 when it is none or has one."""
    if at + 19 > end:
        return -1, 0, 0
    year, month, day = number(buf, at, 4), number(buf, at + 5, 2), number(buf, at + 8, 2)
    hour, minute, second = number(buf, at + 11, 2), number(buf, at + 14, 2), number(buf, at + 17, 2)
    if year < 2002 or year > 2098 or month < 1 or month > 12 or day < 1 or day > 28 + (month != 2) * 2:
        return -1, 0, 0
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return -1, 0, 0
    dash, gap = buf[at + 4], buf[at + 10]
    if (dash != 45 and dash != 47) or buf[at + 7] != dash or (gap != 32 and gap != 84) or buf[at + 13] != 58 or buf[at + 16] != 58:
        return -1, 0, 0
    us = (days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second) * 1000000
    p, n_fraction = at + 19, 0
    if p + 1 < end and (buf[p] == 46 or buf[p] == 44) and is_digit(buf[p + 1]):
        p += 1
        scale = 100000
        while p < end and is_digit(buf[p]) and n_fraction < 9:
            us += (buf[p] - 48) * scale
            scale //= 10
            n_fraction += 1
            p += 1
    if has_zone(buf, p, end):
        return -1, 0, 0
    return p, us, n_fraction


@njit
def has_zone(buf: np.ndarray, at: int, end: int) -> bool:
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
    return p == at and (is_digit(c) or c == 58 or c == 46 or c == 44)


@njit
def level_at(buf: np.ndarray, at: int, end: int, words: np.ndarray, lengths: np.ndarray) -> int:
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
        if same and (at + n >= end or not is_word(buf[at + n])):
            return w
    return -1


@njit
def location(buf: np.ndarray, at: int, end: int) -> int:
    """End of `name:123`, -1 when it is none."""
    p = at
    while p < end and (is_word(buf[p]) or buf[p] == 46 or buf[p] == 60 or buf[p] == 62) and p - at < 80:
        p += 1
    if p == at or p >= end or buf[p] != 58:
        return -1
    p += 1
    _, after = digits(buf, p, end)
    return after if after > p else -1


def level_table() -> tuple[np.ndarray, np.ndarray]:
    """Level words as bytes, and their lengths."""
    words = np.zeros((len(LEVEL_WORDS), 12), np.uint8)
    for i, word in enumerate(LEVEL_WORDS):
        words[i, : len(word)] = np.frombuffer(word.encode(), np.uint8)
    return words, np.array([len(word) for word in LEVEL_WORDS], np.int64)
