"""Compiled masks of dates; each function returns the end of what its mask claims, or -1."""

from __future__ import annotations

from ml.templates.kernel_base import (
    ALNUM,
    CLASS,
    DIGIT,
    MONTHS,
    NONE,
    WEEKDAYS,
    Bytes,
    compiled,
    contains,
    digits_at,
    pack,
    run,
    spaces,
)


@compiled
def name3(s: Bytes, i: int, end: int, names: Bytes) -> bool:
    """Whether a name of three letters with a capital stands here."""
    if i + 3 > end or not (65 <= s[i] <= 90 and 97 <= s[i + 1] <= 122 and 97 <= s[i + 2] <= 122):
        return False
    return contains(names, pack(s, i, i + 3))


@compiled
def clock(s: Bytes, i: int, end: int) -> int:
    """End of `hh:mm:ss` with a fraction, or -1."""
    if i + 8 > end or s[i + 2] != 58 or s[i + 5] != 58:
        return NONE
    for k in (0, 1, 3, 4, 6, 7):
        if (CLASS[s[i + k]] & DIGIT) == 0:
            return NONE
    j = i + 8
    if j + 1 < end and (s[j] == 46 or s[j] == 44) and (CLASS[s[j + 1]] & DIGIT) != 0:
        j = run(s, j + 1, end, DIGIT)
    return NONE if j < end and (CLASS[s[j]] & ALNUM) != 0 else j


@compiled
def year(s: Bytes, i: int, end: int) -> int:
    """End of ` 2005` or ` PDT 2005`, or `i` when there is none."""
    j = i
    if i < end and s[i] == 32:
        k = i + 1
        while k < end and k - i - 1 < 4 and 65 <= s[k] <= 90:
            k += 1
        if k - i - 1 >= 3:
            j = k
        if k - i - 1 == 4 and not (k < end and s[k] == 32):
            j = i + 4  # never a year behind it: falls through below
    if j + 5 > end or s[j] != 32:
        return i
    stop = run(s, j + 1, min(end, j + 5), DIGIT)
    return i if stop != j + 5 or (stop < end and (CLASS[s[stop]] & ALNUM) != 0) else stop


@compiled
def date(s: Bytes, i: int, end: int) -> int:
    """`Fri Jun 17 20:55:07 2005` and its shorter forms."""
    j = i
    if name3(s, i, end, WEEKDAYS):
        j = i + 4 if i + 3 < end and s[i + 3] == 44 else i + 3
        j = spaces(s, j, end)
        if j == NONE:
            return NONE
    if not name3(s, j, end, MONTHS):
        return NONE
    j = spaces(s, j + 3, end)
    if j == NONE:
        return NONE
    k = run(s, j, min(end, j + 2), DIGIT)
    if k == j or (k < end and (CLASS[s[k]] & ALNUM) != 0):
        return NONE
    if k < end and s[k] == 32:
        stop = clock(s, k + 1, end)
        if stop != NONE:
            k = stop
    return year(s, k, end)


@compiled
def iso(s: Bytes, i: int, end: int) -> int:
    """`2026-11-30T04:14:12.5+00:00` and its shorter forms."""
    if i + 16 > end or s[i + 4] != 45 or s[i + 7] != 45 or s[i + 10] != 84 or s[i + 13] != 58:
        return NONE
    if not (digits_at(s, i, end, 4) and digits_at(s, i + 5, end, 2) and digits_at(s, i + 8, end, 2)):
        return NONE
    if not (digits_at(s, i + 11, end, 2) and digits_at(s, i + 14, end, 2)) or digits_at(s, i + 16, end, 1):
        return NONE
    j = i + 16
    if j < end and s[j] == 58 and digits_at(s, j + 1, end, 2) and not digits_at(s, j + 3, end, 1):
        j += 3
        if j + 1 < end and (s[j] == 46 or s[j] == 44) and (CLASS[s[j + 1]] & DIGIT) != 0:
            j = run(s, j + 1, end, DIGIT)
    if j < end and s[j] == 90:
        return j + 1
    if j < end and (s[j] == 43 or s[j] == 45) and digits_at(s, j + 1, end, 2):
        k = j + 4 if j + 3 < end and s[j + 3] == 58 else j + 3
        if digits_at(s, k, end, 2):
            return k + 2
    return j
