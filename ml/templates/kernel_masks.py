"""The compiled masks, one function each: the end of what it claims, or -1. Look-behinds are the caller's business."""

from __future__ import annotations

from ml.templates.kernel_base import (
    ALNUM,
    CLASS,
    CODE_GAP,
    CODES,
    COUNTRY,
    DIGIT,
    GENERIC,
    HEX,
    LETTER,
    NAME,
    NONE,
    NOUNS,
    PATH,
    URL_END,
    Bytes,
    compiled,
    contains,
    lower,
    pack,
    run,
)


@compiled
def quoted(s: Bytes, i: int, begin: int, end: int) -> int:
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


@compiled
def less_than(s: Bytes, i: int, end: int) -> int:
    """`<1 sec`: less than a unit of time."""
    j = run(s, i + 1, end, DIGIT)
    if j == i + 1:
        return NONE
    if j < end and s[j] == 32:
        j += 1
    k = run(s, j, end, LETTER)
    n = k - j
    if n == 1 and s[j] == 115:
        return k
    if n == 2 and s[j] == 109 and s[j + 1] == 115:
        return k
    if n == 3 and s[j] == 115 and s[j + 1] == 101 and s[j + 2] == 99:
        return k
    return k if n == 3 and s[j] == 109 and s[j + 1] == 105 and s[j + 2] == 110 else NONE


@compiled
def unix_path(s: Bytes, i: int, end: int) -> int:
    """A Unix path of two segments or more."""
    j = i
    if s[j] == 126:
        j += 1
    elif s[j] == 46:
        j += 2 if j + 1 < end and s[j + 1] == 46 else 1
    if j + 1 >= end or s[j] != 47 or (CLASS[s[j + 1]] & DIGIT) != 0:
        return NONE
    k = run(s, j + 1, end, PATH)
    if k == j + 1 or k >= end or s[k] != 47:
        return NONE
    while k < end and (s[k] == 47 or (CLASS[s[k]] & PATH) != 0):
        k += 1
    return k


@compiled
def windows_path(s: Bytes, i: int, end: int) -> int:
    """A path with backslashes, with or without a drive."""
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


@compiled
def url(s: Bytes, i: int, end: int) -> int:
    """A scheme, `://` and what follows."""
    j = i
    while j < end and s[j] < 128 and (CLASS[s[j]] & ALNUM) != 0:
        j += 1
    if not (j + 2 < end and s[j] == 58 and s[j + 1] == 47 and s[j + 2] == 47):
        return NONE
    j += 3
    while j < end and (CLASS[s[j]] & URL_END) == 0:
        j += 1
    return j


@compiled
def pci(s: Bytes, i: int, end: int) -> int:
    """A PCI address: domain, bus, device, and maybe the function."""
    j = run(s, i, end, HEX)
    if j - i < 4 or j - i > 8 or j + 6 > end or s[j] != 58 or s[j + 3] != 58:
        return NONE
    for k in (1, 2, 4, 5):
        if (CLASS[s[j + k]] & HEX) == 0:
            return NONE
    j += 6
    if j + 1 < end and s[j] == 46 and 48 <= s[j + 1] <= 55:
        j += 2
    return NONE if j < end and (s[j] == 58 or (CLASS[s[j]] & ALNUM) != 0) else j


@compiled
def colons(s: Bytes, i: int, end: int) -> int:
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


@compiled
def uuid(s: Bytes, i: int, end: int) -> int:
    """A UUID."""
    if end - i < 36 or s[i + 8] != 45 or s[i + 13] != 45:
        return NONE
    for k in range(36):
        if k in (8, 13, 18, 23):
            if s[i + k] != 45:
                return NONE
        elif (CLASS[s[i + k]] & HEX) == 0:
            return NONE
    return NONE if i + 36 < end and (CLASS[s[i + 36]] & ALNUM) != 0 else i + 36


@compiled
def code_number(s: Bytes, i: int, end: int) -> int:
    """A code word, a short gap, and the number that stays."""
    first = lower(s[i])
    for row in range(CODES.shape[0]):
        if CODES[row, 0] != first:
            continue
        k = 0
        while CODES[row, k] != 0 and i + k < end and lower(s[i + k]) == CODES[row, k]:
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
        stop = run(s, j, end, DIGIT)
        if stop > j:
            return stop
    return NONE


@compiled
def xid(s: Bytes, i: int, end: int) -> tuple[int, int, int]:
    """End of the word, begin of the number, end of the number; or -1 thrice."""
    word = i + 1 if lower(s[i]) == 115 else i
    if not (word + 4 < end and lower(s[word]) == 120 and lower(s[word + 1]) == 105 and lower(s[word + 2]) == 100):
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
    stop = run(s, k, end, DIGIT)
    return (j, k, stop) if stop > k else (NONE, NONE, NONE)


@compiled
def host(s: Bytes, i: int, end: int) -> int:
    """A host name under a known domain."""
    j, dots, last = i, 0, i
    while j < end and (CLASS[s[j]] & NAME) != 0:
        if s[j] == 46:
            dots += 1
            last = j + 1
        j += 1
    if dots == 0 or last == j or (CLASS[s[last]] & LETTER) == 0 or (j < end and s[j] >= 128):
        return NONE
    domain = pack(s, last, j)
    if contains(GENERIC, domain) or (dots >= 2 and contains(COUNTRY, domain)):
        return j
    return NONE


@compiled
def number(s: Bytes, i: int, end: int) -> int:
    """A number with marks and exponent."""
    j = run(s, i, end, DIGIT)
    while j + 1 < end and (s[j] == 46 or s[j] == 44) and (CLASS[s[j + 1]] & DIGIT) != 0:
        j = run(s, j + 1, end, DIGIT)
    if j < end and (s[j] == 101 or s[j] == 69):
        k = j + 1
        if k < end and (s[k] == 43 or s[k] == 45):
            k += 1
        stop = run(s, k, end, DIGIT)
        if stop > k:
            return stop
    return j


@compiled
def glued(s: Bytes, i: int, begin: int, end: int) -> int:
    """Digits behind letters: masked when long, dotted or behind an index noun."""
    j = run(s, i, end, DIGIT)
    k = j
    while k + 1 < end and s[k] == 46 and (CLASS[s[k + 1]] & DIGIT) != 0:
        k = run(s, k + 1, end, DIGIT)
    if j - i >= 3 or k > j:
        return k
    b = i
    while b > begin and i - b < 9 and (CLASS[s[b - 1]] & LETTER) != 0:
        b -= 1
    return j if contains(NOUNS, pack(s, b, i)) else NONE
