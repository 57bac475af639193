"""The masks in one compiled pass over bytes: masks, squeezes and hashes at hundreds of megabytes a second.

Does exactly what `ml.templates.masking.mask_reference` does (a property test compares them on any bytes). At every
position the masks are tried in the order of `ml.templates.masks.MASKS`; the look-behinds there are the `before`
byte here. Functions return the end of what a mask claims, or -1.
"""

from __future__ import annotations

import numpy as np

from ml.templates.kernel_base import (
    ALNUM,
    ASCII_LETTER,
    CLASS,
    CODE_FIRST,
    CODE_SECOND,
    DIGIT,
    HEX,
    LETTER,
    NAME,
    NONE,
    OPENER,
    PLAIN,
    SPACE,
    Bytes,
    allocating,
    compiled,
    inlined,
    lower,
    put,
    run,
    wild,
)
from ml.templates.kernel_dates import date, iso
from ml.templates.kernel_masks import (
    code_number,
    colons,
    glued,
    host,
    less_than,
    number,
    pci,
    quoted,
    unix_path,
    url,
    uuid,
    windows_path,
    xid,
)
from ml.templates.masks import MAX_BYTES


@compiled
def _shape(s: Bytes, i: int, end: int) -> tuple[int, int, int, bool, bool]:
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


@compiled
def _behind_colon(s: Bytes, i: int, j: int, end: int, before: int, is_hex: bool) -> int:
    """Masks of words with a colon right behind them (`j`): drives, URLs, PCI, IPv6 and MAC addresses."""
    if (CLASS[s[i]] & LETTER) != 0:
        if j == i + 1 and (CLASS[before] & OPENER) != 0:
            k = windows_path(s, i, end)
            if k != NONE:
                return k
        k = url(s, i, end)
        if k != NONE:
            return k
    if is_hex and before != 58 and before != 46:
        k = pci(s, i, end)
        return k if k != NONE else colons(s, i, end)
    return NONE


@compiled
def _word_start(s: Bytes, i: int, j: int, shape: tuple[int, int, bool, bool], before: int, end: int) -> int:
    """The masks that claim at the first byte of a word, in their order, before `Xid`; `j` is the word's end."""
    digits, changes, is_hex, is_ascii = shape
    n = j - i
    after = s[j] if j < end else 32
    is_letter = (CLASS[s[i]] & LETTER) != 0
    k = NONE
    if is_letter and n == 3 and is_ascii:
        k = date(s, i, end)
    elif not is_letter and n == 4 and after == 45:
        k = iso(s, i, end)
    if k != NONE:
        return k
    if after == 58 and is_ascii:
        k = _behind_colon(s, i, j, end, before, is_hex)
        if k != NONE:
            return k
    if is_hex and n == 8 and after == 45:
        k = uuid(s, i, end)
        if k != NONE:
            return k
    if s[i] == 48 and i + 2 < end and lower(s[i + 1]) == 120 and (CLASS[s[i + 2]] & HEX) != 0:
        return run(s, i + 2, end, HEX)
    if changes >= 3 or (is_hex and n >= 6 and 0 < digits < n):
        return j
    return NONE


@compiled
def _symbol(s: Bytes, i: int, begin: int, end: int) -> int:
    """The masks that may claim at a byte that is neither space, letter nor digit; -1 when none does."""
    c = s[i]
    before = s[i - 1] if i > begin else 32
    if c == 60:
        return less_than(s, i, end)
    if c == 47 or c == 126 or c == 46:
        return unix_path(s, i, end) if (CLASS[before] & OPENER) != 0 else NONE
    if c == 92:
        return windows_path(s, i, end) if (CLASS[before] & OPENER) != 0 else NONE
    if c == 58:
        is_free = before != 58 and before != 46 and (CLASS[before] & ALNUM) == 0
        return colons(s, i, end) if is_free else NONE
    if c == 43 or c == 45:
        is_sign = (CLASS[before] & ALNUM) == 0 and before != 41 and before != 93
        if is_sign and i + 1 < end and (CLASS[s[i + 1]] & DIGIT) != 0:
            return number(s, i + 1, end)
    return NONE


@inlined
def _is_hyphen_or_dot(byte: int) -> bool:
    """Marks that join the parts of a host name."""
    return byte == 45 or byte == 46


@compiled
def _plain_word(s: Bytes, i: int, stop: int, end: int, digits: int, out: Bytes, at: int) -> tuple[int, int]:
    """A word that no mask of words claims: a number, letters, or letters up to the digits."""
    if (CLASS[s[i]] & DIGIT) != 0:
        return number(s, i, end), wild(out, at)
    if digits == 0:
        for k in range(i, stop):
            out[at] = s[k]
            at += 1
        return stop, at
    return NONE, at


@compiled
def _word(s: Bytes, i: int, begin: int, end: int, out: Bytes, at: int) -> tuple[int, int]:
    """One step at a letter or digit that begins a word: (where to go on, end of the output)."""
    before = s[i - 1] if i > begin else 32
    stop, digits, changes, is_hex, is_ascii = _shape(s, i, end)
    if digits == stop - i and (stop == end or (CLASS[s[stop]] & NAME) == 0) and (stop == end or s[stop] != 58):
        return number(s, i, end), wild(out, at)  # nothing else claims plain digits
    j = _word_start(s, i, stop, (digits, changes, is_hex, is_ascii), before, end)
    if j != NONE:
        return j, wild(out, at)
    if (CLASS[s[i]] & CODE_FIRST) != 0:
        a, b, j = xid(s, i, end)
        if j != NONE:
            at = wild(out, put(out, put(out, at, s, i, a), s, a, a + 2))
            out[at], out[at + 1], out[at + 2] = 41, 58, 32
            return j, put(out, at + 3, s, b, j)
        j = code_number(s, i, end)
        if j != NONE:
            return j, put(out, at, s, i, j)
    if is_ascii and stop < end and _is_hyphen_or_dot(s[stop]) and not _is_hyphen_or_dot(before):
        j = host(s, i, end)
        if j != NONE:
            return j, wild(out, at)
    return _plain_word(s, i, stop, end, digits, out, at)


@compiled
def _step(s: Bytes, i: int, begin: int, end: int, out: Bytes, at: int) -> tuple[int, int]:
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
            j = glued(s, i, begin, end)
            if j != NONE:
                return j, wild(out, at)
        out[at] = s[i]
        i, at = i + 1, at + 1
        while i < end and (CLASS[s[i]] & LETTER) != 0 and (CLASS[s[i - 1]] & LETTER) != 0:
            out[at] = s[i]
            i, at = i + 1, at + 1
        return i, at
    if s[i] == 34 or s[i] == 39:
        j = quoted(s, i, begin, end)
        if j != NONE:
            out[at] = s[i]
            at = wild(out, at + 1)
            out[at] = s[i]
            return j, at + 1
    else:
        j = _symbol(s, i, begin, end)
        if j != NONE:
            return j, wild(out, at)
    out[at] = s[i]
    return i + 1, at + 1


@inlined
def _common(s: Bytes, i: int, before: int, end: int, out: Bytes, at: int) -> tuple[int, int]:
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
    is_free = j < end and (CLASS[s[j]] & (SPACE | PLAIN)) != 0 and (j - i != 3 or s[i] >= 97)
    if is_free and ((kind & CODE_FIRST) == 0 or (CLASS[s[i + 1]] & CODE_SECOND) == 0):
        return j, k
    return NONE, at


@compiled
def mask_into(s: Bytes, begin: int, end: int, out: Bytes) -> int:
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


@compiled
def _hash(out: Bytes, n: int) -> int:
    value = np.uint64(0xCBF29CE484222325)
    for k in range(n):
        value = (value ^ np.uint64(out[k])) * np.uint64(0x100000001B3)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(value ^ (value >> np.uint64(33)))  # type: ignore[return-value]


def bound(n_bytes: int) -> int:
    """Room that the masked form of `n_bytes` bytes may need."""
    return 3 * min(n_bytes, MAX_BYTES) + 64


@allocating
def keys(s: Bytes, offsets: Bytes) -> Bytes:
    """Key of each message `s[offsets[k]:offsets[k + 1]]`."""
    n = offsets.shape[0] - 1
    found = np.empty(n, np.int64)
    out = np.empty(3 * MAX_BYTES + 64, np.uint8)
    for k in range(n):
        found[k] = _hash(out, mask_into(s, offsets[k], offsets[k + 1], out))
    return found


@allocating
def mask_all(s: Bytes, offsets: Bytes) -> tuple[Bytes, Bytes]:
    """Masked bytes of all messages, one behind the other, and where each ends."""
    n = offsets.shape[0] - 1
    ends = np.empty(n, np.int64)
    out = np.empty(3 * (offsets[n] - offsets[0]) + 64, np.uint8)
    at = 0
    for k in range(n):
        at += mask_into(s, offsets[k], offsets[k + 1], out[at:])
        ends[k] = at
    return out[:at], ends
