"""The masks in one compiled pass over bytes: masks, squeezes and hashes at hundreds of megabytes a second.

Does exactly what `ml.templates.masking.mask_reference` does (a property test compares them on any bytes). At every
position the masks are tried in the order of `ml.templates.masks.MASKS`; the look-behinds there are the `before`
byte here. Functions return the end of what a mask claims, or -1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ml.templates import masks

SPACE, DIGIT, LETTER, HEX, PATH, OPENER, NAME, URL_END, CODE_GAP, CODE_FIRST, PLAIN = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024
ASCII_LETTER, CODE_SECOND = 2048, 4096
ALNUM = DIGIT | LETTER
NONE = -1


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that allocates nothing, without counting references; keep the machine code where possible."""
    return _cached(function, _nrt=False)


def _allocating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes arrays."""
    return _cached(function)


def _inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is compiled into its caller."""
    return _cached(function, _nrt=False, inline="always")


def _cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        return numba.njit(nogil=True, **options)(function)


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
MAX_BYTES = masks.MAX_BYTES


@_compiled
def _is(byte, flag):  # type: ignore[no-untyped-def]
    return (CLASS[byte] & flag) != 0


@_compiled
def _run(s, i, end, flag):  # type: ignore[no-untyped-def]
    """End of the run of bytes of a class."""
    while i < end and (CLASS[s[i]] & flag) != 0:
        i += 1
    return i


@_compiled
def _lower(byte):  # type: ignore[no-untyped-def]
    return byte | 32 if 65 <= byte <= 90 else byte


@_compiled
def _pack(s, begin, end):  # type: ignore[no-untyped-def]
    """Up to 8 bytes in lower case as one number; 0 when there are more or none."""
    if end - begin > 8:
        return np.uint64(0)
    value = np.uint64(0)
    for k in range(begin, end):
        value = (value << np.uint64(8)) | np.uint64(_lower(s[k]))
    return value


@_compiled
def _contains(words, value):  # type: ignore[no-untyped-def]
    if value == 0:
        return False
    for k in range(words.shape[0]):  # noqa: SIM110
        if words[k] == value:
            return True
    return False


@_compiled
def _quoted(s, i, begin, end):  # type: ignore[no-untyped-def]
    """Quotes right behind `=`, `:` or `: `, with something else than letters between them."""
    if i == begin:
        return NONE
    before = s[i - 1]
    if not (before == 61 or before == 58 or (before == 32 and i - 2 >= begin and s[i - 2] == 58)):
        return NONE
    j, plain = i + 1, True
    stop = min(end, i + 201)
    while j < stop and s[j] != s[i] and s[j] != 10:
        plain = plain and (CLASS[s[j]] & LETTER) != 0 and s[j] < 128
        j += 1
    return j + 1 if j < end and s[j] == s[i] and not plain else NONE


@_compiled
def _less_than(s, i, end):  # type: ignore[no-untyped-def]
    j = _run(s, i + 1, end, DIGIT)
    if j == i + 1:
        return NONE
    if j < end and s[j] == 32:
        j += 1
    k = _run(s, j, end, LETTER)
    n = k - j
    if n == 1 and s[j] == 115:
        return k
    if n == 2 and s[j] == 109 and s[j + 1] == 115:
        return k
    if n == 3 and s[j] == 115 and s[j + 1] == 101 and s[j + 2] == 99:
        return k
    return k if n == 3 and s[j] == 109 and s[j + 1] == 105 and s[j + 2] == 110 else NONE


@_compiled
def _name3(s, i, end, names):  # type: ignore[no-untyped-def]
    """Whether a name of three letters with a capital stands here."""
    if i + 3 > end or not (65 <= s[i] <= 90 and 97 <= s[i + 1] <= 122 and 97 <= s[i + 2] <= 122):
        return False
    return _contains(names, _pack(s, i, i + 3))


@_compiled
def _clock(s, i, end):  # type: ignore[no-untyped-def]
    """End of `hh:mm:ss` with a fraction, or -1."""
    if i + 8 > end or s[i + 2] != 58 or s[i + 5] != 58:
        return NONE
    for k in (0, 1, 3, 4, 6, 7):
        if (CLASS[s[i + k]] & DIGIT) == 0:
            return NONE
    j = i + 8
    if j + 1 < end and (s[j] == 46 or s[j] == 44) and (CLASS[s[j + 1]] & DIGIT) != 0:
        j = _run(s, j + 1, end, DIGIT)
    return NONE if j < end and (CLASS[s[j]] & ALNUM) != 0 else j


@_compiled
def _spaces(s, i, end):  # type: ignore[no-untyped-def]
    """One or two spaces; -1 when there is none."""
    if i >= end or s[i] != 32:
        return NONE
    return i + 2 if i + 1 < end and s[i + 1] == 32 else i + 1


@_compiled
def _year(s, i, end):  # type: ignore[no-untyped-def]
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
    stop = _run(s, j + 1, min(end, j + 5), DIGIT)
    return i if stop != j + 5 or (stop < end and (CLASS[s[stop]] & ALNUM) != 0) else stop


@_compiled
def _date(s, i, end):  # type: ignore[no-untyped-def]
    """`Fri Jun 17 20:55:07 2005` and its shorter forms."""
    j = i
    if _name3(s, i, end, WEEKDAYS):
        j = i + 4 if i + 3 < end and s[i + 3] == 44 else i + 3
        j = _spaces(s, j, end)
        if j == NONE:
            return NONE
    if not _name3(s, j, end, MONTHS):
        return NONE
    j = _spaces(s, j + 3, end)
    if j == NONE:
        return NONE
    k = _run(s, j, min(end, j + 2), DIGIT)
    if k == j or (k < end and (CLASS[s[k]] & ALNUM) != 0):
        return NONE
    if k < end and s[k] == 32:
        clock = _clock(s, k + 1, end)
        if clock != NONE:
            k = clock
    return _year(s, k, end)


@_compiled
def _digits_at(s, i, end, n):  # type: ignore[no-untyped-def]
    """Whether `n` digits stand here."""
    return i + n <= end and _run(s, i, i + n, DIGIT) == i + n


@_compiled
def _iso(s, i, end):  # type: ignore[no-untyped-def]
    """`2026-11-30T04:14:12.5+00:00` and its shorter forms."""
    if i + 16 > end or s[i + 4] != 45 or s[i + 7] != 45 or s[i + 10] != 84 or s[i + 13] != 58:
        return NONE
    if not (_digits_at(s, i, end, 4) and _digits_at(s, i + 5, end, 2) and _digits_at(s, i + 8, end, 2)):
        return NONE
    if not (_digits_at(s, i + 11, end, 2) and _digits_at(s, i + 14, end, 2)) or _digits_at(s, i + 16, end, 1):
        return NONE
    j = i + 16
    if j < end and s[j] == 58 and _digits_at(s, j + 1, end, 2) and not _digits_at(s, j + 3, end, 1):
        j += 3
        if j + 1 < end and (s[j] == 46 or s[j] == 44) and (CLASS[s[j + 1]] & DIGIT) != 0:
            j = _run(s, j + 1, end, DIGIT)
    if j < end and s[j] == 90:
        return j + 1
    if j < end and (s[j] == 43 or s[j] == 45) and _digits_at(s, j + 1, end, 2):
        k = j + 4 if j + 3 < end and s[j + 3] == 58 else j + 3
        if _digits_at(s, k, end, 2):
            return k + 2
    return j


@_compiled
def _path(s, i, end):  # type: ignore[no-untyped-def]
    j = i
    if s[j] == 126:
        j += 1
    elif s[j] == 46:
        j += 2 if j + 1 < end and s[j + 1] == 46 else 1
    if j + 1 >= end or s[j] != 47 or (CLASS[s[j + 1]] & DIGIT) != 0:
        return NONE
    k = _run(s, j + 1, end, PATH)
    if k == j + 1 or k >= end or s[k] != 47:
        return NONE
    while k < end and (s[k] == 47 or (CLASS[s[k]] & PATH) != 0):
        k += 1
    return k


@_compiled
def _windows_path(s, i, end):  # type: ignore[no-untyped-def]
    j = i
    if s[j] != 92:
        if not (i + 2 < end and s[i + 1] == 58 and s[i + 2] == 92):
            return NONE
        j = i + 2
    j += 1
    k = j
    while k < end and (s[k] == 92 or s[k] == 63 or (CLASS[s[k]] & PATH) != 0):
        k += 1
    return k if k > j else NONE


@_compiled
def _url(s, i, end):  # type: ignore[no-untyped-def]
    j = i
    while j < end and s[j] < 128 and (CLASS[s[j]] & ALNUM) != 0:
        j += 1
    if not (j + 2 < end and s[j] == 58 and s[j + 1] == 47 and s[j + 2] == 47):
        return NONE
    j += 3
    while j < end and (CLASS[s[j]] & URL_END) == 0:
        j += 1
    return j


@_compiled
def _pci(s, i, end):  # type: ignore[no-untyped-def]
    """A PCI address: domain, bus, device, and maybe the function."""
    j = _run(s, i, end, HEX)
    if j - i < 4 or j - i > 8 or j + 6 > end or s[j] != 58 or s[j + 3] != 58:
        return NONE
    for k in (1, 2, 4, 5):
        if (CLASS[s[j + k]] & HEX) == 0:
            return NONE
    j += 6
    if j + 1 < end and s[j] == 46 and 48 <= s[j + 1] <= 55:
        j += 2
    return NONE if j < end and (s[j] == 58 or (CLASS[s[j]] & ALNUM) != 0) else j


@_compiled
def _colons(s, i, end):  # type: ignore[no-untyped-def]
    """IPv6 and MAC addresses: a run of hexadecimal digits and colons."""
    j, n, pair, digit = i, 0, False, False
    while j < end and (s[j] == 58 or (CLASS[s[j]] & HEX) != 0):
        if s[j] == 58:
            n += 1
            pair = pair or (j > i and s[j - 1] == 58)
        digit = digit or (CLASS[s[j]] & DIGIT) != 0
        j += 1
    if not digit or not (n >= 4 or pair) or (j < end and (CLASS[s[j]] & ALNUM) != 0):
        return NONE
    return j


@_compiled
def _uuid(s, i, end):  # type: ignore[no-untyped-def]
    if end - i < 36 or s[i + 8] != 45 or s[i + 13] != 45:
        return NONE
    for k in range(36):
        if k in (8, 13, 18, 23):
            if s[i + k] != 45:
                return NONE
        elif (CLASS[s[i + k]] & HEX) == 0:
            return NONE
    return NONE if i + 36 < end and (CLASS[s[i + 36]] & ALNUM) != 0 else i + 36


@_compiled
def _shape(s, i, end):  # type: ignore[no-untyped-def]
    """One look at the word that begins here: end, digits, changes between letters and digits, hexadecimal, ASCII."""
    j, digits, changes, kinds, high = i, 0, 0, HEX, 0
    was = CLASS[s[i]] & DIGIT
    while j < end:
        kind = CLASS[s[j]]
        if (kind & ALNUM) == 0:
            break
        now = kind & DIGIT
        changes += now != was
        was = now
        digits += now != 0
        kinds &= kind
        high |= s[j]
        j += 1
    return j, digits, changes, kinds != 0, high < 128


@_compiled
def _code(s, i, end):  # type: ignore[no-untyped-def]
    """A code word, a short gap, and the number that stays."""
    first = _lower(s[i])
    for row in range(CODES.shape[0]):
        if CODES[row, 0] != first:
            continue
        k = 0
        while CODES[row, k] != 0 and i + k < end and _lower(s[i + k]) == CODES[row, k]:
            k += 1
        if CODES[row, k] != 0:
            continue
        j = i + k
        while j < end and (CLASS[s[j]] & CODE_GAP) != 0 and j - i - k < 8:
            j += 1
        if j == i + k:
            continue
        if j < end and (s[j] == 43 or s[j] == 45):
            j += 1
        stop = _run(s, j, end, DIGIT)
        if stop > j:
            return stop
    return NONE


@_compiled
def _xid(s, i, end):  # type: ignore[no-untyped-def]
    """End of the word, begin of the number, end of the number; or -1 thrice."""
    word = i + 1 if _lower(s[i]) == 115 else i
    if not (word + 4 < end and _lower(s[word]) == 120 and _lower(s[word + 1]) == 105 and _lower(s[word + 2]) == 100):
        return NONE, NONE, NONE
    j = word + 3
    if s[j] != 32 or s[j + 1] != 40:
        return NONE, NONE, NONE
    k = j + 2
    while k < end and k - j - 2 < 40 and s[k] != 40 and s[k] != 41 and s[k] != 10:
        k += 1
    if k == j + 2 or k + 1 >= end or s[k] != 41 or s[k + 1] != 58:
        return NONE, NONE, NONE
    k += 2
    if k < end and s[k] == 32:
        k += 1
    stop = _run(s, k, end, DIGIT)
    return (j, k, stop) if stop > k else (NONE, NONE, NONE)


@_compiled
def _host(s, i, end):  # type: ignore[no-untyped-def]
    j, dots, last = i, 0, i
    while j < end and (CLASS[s[j]] & NAME) != 0:
        if s[j] == 46:
            dots += 1
            last = j + 1
        j += 1
    if dots == 0 or last == j or (CLASS[s[last]] & LETTER) == 0 or (j < end and s[j] >= 128):
        return NONE
    domain = _pack(s, last, j)
    if _contains(GENERIC, domain) or (dots >= 2 and _contains(COUNTRY, domain)):
        return j
    return NONE


@_compiled
def _number(s, i, end):  # type: ignore[no-untyped-def]
    j = _run(s, i, end, DIGIT)
    while j + 1 < end and (s[j] == 46 or s[j] == 44) and (CLASS[s[j + 1]] & DIGIT) != 0:
        j = _run(s, j + 1, end, DIGIT)
    if j < end and (s[j] == 101 or s[j] == 69):
        k = j + 1
        if k < end and (s[k] == 43 or s[k] == 45):
            k += 1
        stop = _run(s, k, end, DIGIT)
        if stop > k:
            return stop
    return j


@_compiled
def _glued(s, i, begin, end):  # type: ignore[no-untyped-def]
    """Digits behind letters: masked when long, dotted or behind an index noun."""
    j = _run(s, i, end, DIGIT)
    k = j
    while k + 1 < end and s[k] == 46 and (CLASS[s[k + 1]] & DIGIT) != 0:
        k = _run(s, k + 1, end, DIGIT)
    if j - i >= 3 or k > j:
        return k
    b = i
    while b > begin and i - b < 9 and (CLASS[s[b - 1]] & LETTER) != 0:
        b -= 1
    return j if _contains(NOUNS, _pack(s, b, i)) else NONE


@_compiled
def _behind_colon(s, i, j, end, before, is_hex):  # type: ignore[no-untyped-def]
    """Masks of words with a colon right behind them (`j`): drives, URLs, PCI, IPv6 and MAC addresses."""
    if (CLASS[s[i]] & LETTER) != 0:
        if j == i + 1 and (CLASS[before] & OPENER) != 0:
            k = _windows_path(s, i, end)
            if k != NONE:
                return k
        k = _url(s, i, end)
        if k != NONE:
            return k
    if is_hex and before != 58 and before != 46:
        k = _pci(s, i, end)
        return k if k != NONE else _colons(s, i, end)
    return NONE


@_compiled
def _word_start(s, i, j, shape, before, end):  # type: ignore[no-untyped-def]
    """The masks that claim at the first byte of a word, in their order, before `Xid`; `j` is the word's end."""
    digits, changes, is_hex, is_ascii = shape
    n = j - i
    after = s[j] if j < end else 32
    is_letter = (CLASS[s[i]] & LETTER) != 0
    if is_letter and n == 3 and is_ascii:
        k = _date(s, i, end)
        if k != NONE:
            return k
    if not is_letter and n == 4 and after == 45:
        k = _iso(s, i, end)
        if k != NONE:
            return k
    if after == 58 and is_ascii:
        k = _behind_colon(s, i, j, end, before, is_hex)
        if k != NONE:
            return k
    if is_hex and n == 8 and after == 45:
        k = _uuid(s, i, end)
        if k != NONE:
            return k
    if s[i] == 48 and i + 2 < end and _lower(s[i + 1]) == 120 and (CLASS[s[i + 2]] & HEX) != 0:
        return _run(s, i + 2, end, HEX)
    if changes >= 3 or (is_hex and n >= 6 and 0 < digits < n):
        return j
    return NONE


@_compiled
def _symbol(s, i, begin, end):  # type: ignore[no-untyped-def]
    """The masks that may claim at a byte that is neither space, letter nor digit; -1 when none does."""
    c = s[i]
    before = s[i - 1] if i > begin else 32
    if c == 60:
        return _less_than(s, i, end)
    if c == 47 or c == 126 or c == 46:
        return _path(s, i, end) if (CLASS[before] & OPENER) != 0 else NONE
    if c == 92:
        return _windows_path(s, i, end) if (CLASS[before] & OPENER) != 0 else NONE
    if c == 58:
        is_free = before != 58 and before != 46 and (CLASS[before] & ALNUM) == 0
        return _colons(s, i, end) if is_free else NONE
    if c == 43 or c == 45:
        is_sign = (CLASS[before] & ALNUM) == 0 and before != 41 and before != 93
        if is_sign and i + 1 < end and (CLASS[s[i + 1]] & DIGIT) != 0:
            return _number(s, i + 1, end)
    return NONE


@_compiled
def _put(out, at, source, begin, end):  # type: ignore[no-untyped-def]
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


@_compiled
def _wild(out, at):  # type: ignore[no-untyped-def]
    out[at] = 60
    out[at + 1] = 42
    out[at + 2] = 62
    return at + 3


@_compiled
def _word(s, i, begin, end, out, at):  # type: ignore[no-untyped-def]
    """One step at a letter or digit that begins a word: (where to go on, end of the output)."""
    before = s[i - 1] if i > begin else 32
    stop, digits, changes, is_hex, is_ascii = _shape(s, i, end)
    if digits == stop - i and (stop == end or (CLASS[s[stop]] & NAME) == 0) and (stop == end or s[stop] != 58):
        return _number(s, i, end), _wild(out, at)  # nothing else claims plain digits
    j = _word_start(s, i, stop, (digits, changes, is_hex, is_ascii), before, end)
    if j != NONE:
        return j, _wild(out, at)
    if (CLASS[s[i]] & CODE_FIRST) != 0:
        a, b, j = _xid(s, i, end)
        if j != NONE:
            at = _wild(out, _put(out, _put(out, at, s, i, a), s, a, a + 2))
            out[at], out[at + 1], out[at + 2] = 41, 58, 32
            return j, _put(out, at + 3, s, b, j)
        j = _code(s, i, end)
        if j != NONE:
            return j, _put(out, at, s, i, j)
    if stop < end and (s[stop] == 46 or s[stop] == 45) and before != 46 and before != 45 and is_ascii:
        j = _host(s, i, end)
        if j != NONE:
            return j, _wild(out, at)
    if (CLASS[s[i]] & DIGIT) != 0:
        return _number(s, i, end), _wild(out, at)
    if digits == 0:
        for k in range(i, stop):
            out[at] = s[k]
            at += 1
        return stop, at
    return NONE, at


@_compiled
def _step(s, i, begin, end, out, at):  # type: ignore[no-untyped-def]
    """One step at a byte that is not white space."""
    kind = CLASS[s[i]]
    before = CLASS[s[i - 1]] if i > begin else SPACE
    j = NONE
    if (kind & ALNUM) != 0:
        if (before & ALNUM) == 0:
            j, at = _word(s, i, begin, end, out, at)
            if j != NONE:
                return j, at
        elif (kind & DIGIT) != 0 and (before & LETTER) != 0:
            j = _glued(s, i, begin, end)
            if j != NONE:
                return j, _wild(out, at)
        out[at] = s[i]
        i, at = i + 1, at + 1
        while i < end and (CLASS[s[i]] & LETTER) != 0 and (CLASS[s[i - 1]] & LETTER) != 0:
            out[at] = s[i]
            i, at = i + 1, at + 1
        return i, at
    if s[i] == 34 or s[i] == 39:
        j = _quoted(s, i, begin, end)
        if j != NONE:
            out[at] = s[i]
            at = _wild(out, at + 1)
            out[at] = s[i]
            return j, at + 1
    else:
        j = _symbol(s, i, begin, end)
        if j != NONE:
            return j, _wild(out, at)
    out[at] = s[i]
    return i + 1, at + 1


@_inlined
def _common(s, i, before, end, out, at):  # type: ignore[no-untyped-def]
    """The cases that make up most of a log, without a look at the masks that cannot claim there; -1 when it is not one.

    Words of ASCII letters that no colon, dot, hyphen or digit follows and that cannot begin a date or a code word;
    plain digits that end a word; symbols that no mask begins with.
    """
    kind = CLASS[s[i]]
    if (kind & PLAIN) != 0:
        out[at] = s[i]
        return i + 1, at + 1
    if (CLASS[before] & ALNUM) != 0 or (kind & ALNUM) == 0:
        return NONE, at
    j = i
    if (kind & DIGIT) != 0:
        while j < end:
            is_mark = (s[j] == 46 or s[j] == 44) and j + 1 < end and (CLASS[s[j + 1]] & DIGIT) != 0
            if (CLASS[s[j]] & DIGIT) == 0 and not is_mark:
                break
            j += 1
        if j < end and (CLASS[s[j]] & (SPACE | PLAIN)) != 0:
            out[at], out[at + 1], out[at + 2] = 60, 42, 62
            return j, at + 3
        return NONE, at
    k = at
    while j < end and (CLASS[s[j]] & ASCII_LETTER) != 0:
        out[k] = s[j]
        k += 1
        j += 1
    if j < end and (CLASS[s[j]] & (SPACE | PLAIN)) != 0 and (j - i != 3 or s[i] >= 97):
        if (kind & CODE_FIRST) == 0 or (CLASS[s[i + 1]] & CODE_SECOND) == 0:
            return j, k
    return NONE, at


@_compiled
def mask_into(s, begin, end, out):  # type: ignore[no-untyped-def]
    """Mask `s[begin:end]` into `out` from its start; returns the length."""
    end = min(end, begin + MAX_BYTES)
    i, at, gap = begin, 0, 0
    while i < end:
        if (CLASS[s[i]] & SPACE) != 0:
            gap = 10 if gap == 10 or s[i] == 10 else 32
            i += 1
            continue
        if gap != 0 and at > 0:
            out[at] = gap
            at += 1
        gap = 0
        j, at = _common(s, i, s[i - 1] if i > begin else 32, end, out, at)
        if j != NONE:
            i = j
        else:
            i, at = _step(s, i, begin, end, out, at)
    while at > 0 and (out[at - 1] == 32 or out[at - 1] == 10):
        at -= 1
    return at


@_compiled
def _hash(out, n):  # type: ignore[no-untyped-def]
    value = np.uint64(0xCBF29CE484222325)
    for k in range(n):
        value = (value ^ np.uint64(out[k])) * np.uint64(0x100000001B3)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(value ^ (value >> np.uint64(33)))


def bound(n_bytes: int) -> int:
    """Room that the masked form of `n_bytes` bytes may need."""
    return 3 * min(n_bytes, MAX_BYTES) + 64


@_allocating
def keys(s, offsets):  # type: ignore[no-untyped-def]
    """Key of each message `s[offsets[k]:offsets[k + 1]]`."""
    n = offsets.shape[0] - 1
    found = np.empty(n, np.int64)
    out = np.empty(3 * MAX_BYTES + 64, np.uint8)
    for k in range(n):
        found[k] = _hash(out, mask_into(s, offsets[k], offsets[k + 1], out))
    return found


@_allocating
def mask_all(s, offsets):  # type: ignore[no-untyped-def]
    """Masked bytes of all messages, one behind the other, and where each ends."""
    n = offsets.shape[0] - 1
    ends = np.empty(n, np.int64)
    out = np.empty(3 * (offsets[n] - offsets[0]) + 64, np.uint8)
    at = 0
    for k in range(n):
        at += mask_into(s, offsets[k], offsets[k + 1], out[at:])
        ends[k] = at
    return out[:at], ends


def cache_folder() -> str | None:
    """The folder that the environment names for compiled code, for `doctor`."""
    return os.environ.get("NUMBA_CACHE_DIR")
