"""A masked message as tokens, and what kind of thing a token's text is.

Two principles are here. A list of values has no length: a run of equal masked tokens is one token. And what a program
chose to print as plain words is a word, while dotted names, paths, and letters mixed with digits are values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

WILDCARD = "<*>"
ANY = "\x01"
"""Behind a wildcard: plain words were seen here too, so many that any word is a value."""
ANY_SHOWN = "<+>"
MAX_TOKENS = 120
EDGES = ".,;:!?()[]{}<>\"'`*-=|#"
DELIMITERS = frozenset("=:,;()[]{}\"'|<>@/_#-.")
KEY_ENDS = ("=", ":", '="', "='", "=(", "=[")
NULLS = frozenset(("null", "none", "nil", "None", "NULL", "(null)", "", '""', "()", "[]", "{}"))

_PARTS = re.compile(r"[=:,;()\[\]{}\"'|<>*!?`]+")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_'+-]*\.*")
_NUMBERED = re.compile(r"[A-Za-z_-]+[0-9]{1,2}")
_GLUED = re.compile(r"[A-Za-z_-]+(?:<\*>|[0-9]{1,2})")
_NUMBERS = re.compile(r"<\*>|[0-9]+")
_LETTER = re.compile(r"[A-Za-z]")
_KEY = re.compile(r"[(\[{\"']*[A-Za-z_][\w.\-]*=")
_ERROR_LINE = re.compile(r"(?:\[[^\]\n]{1,40}\]: ?)?(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Iteration|Fault)\b.*)")
TRACEBACK = "Traceback (most recent call last):"


class Kind(StrEnum):
    """What a token's text is."""

    WILD = "wild"  # nothing but a masked part
    WORD = "word"  # plain words, one or several with punctuation between them
    NUMBERED = "numbered"  # words with a small number: eth0, L3
    VALUE = "value"  # anything else


@lru_cache(maxsize=65536)
def kind_of(text: str) -> Kind:
    """Kind of a token or of a part of one; masked parts inside do not count."""
    literal = text.replace(WILDCARD, "")
    if not _LETTER.search(literal):
        return Kind.WILD if WILDCARD in text or not literal.strip(EDGES) else Kind.VALUE
    parts = [part for part in _PARTS.split(literal) if part]
    if all(_PLAIN.fullmatch(part) or not re.search(r"[A-Za-z0-9]", part) for part in parts):
        return Kind.WORD
    if all(_PLAIN.fullmatch(part) or _NUMBERED.fullmatch(part) for part in parts):
        return Kind.NUMBERED
    return Kind.VALUE


def is_null(text: str) -> bool:
    """An empty value: null, None, (), an empty string."""
    return text.strip(",;") in NULLS or text.strip(EDGES) in NULLS


def has_letters(text: str) -> bool:
    """Whether any letter is in the text."""
    return _LETTER.search(text) is not None


def is_glued(text: str) -> bool:
    """Letters with a number at their end, masked or small: `an12`, `cn<*>`."""
    return _GLUED.fullmatch(text) is not None


def without_numbers(text: str) -> str:
    """The text with every number and masked part as `#`: what tokens of one series share."""
    return _NUMBERS.sub("#", text)


def key_of(token: str) -> str:
    """`name=` at the start of `name=value`, or nothing: tokens with different keys say different things."""
    found = _KEY.match(token)
    return found[0] if found else ""


def tokens_of(masked: str) -> tuple[str, ...]:
    """Tokens of a masked message, lists folded: `delete blk_<*> blk_<*> blk_<*>` has two."""
    words = essence(masked).split()[:MAX_TOKENS]
    found: list[str] = []
    at = 0
    while at < len(words):
        first = words[at].rstrip(",")
        shape = _series(first)
        stop = at + 1
        while stop < len(words) and _series(words[stop].rstrip(",")) == shape:
            stop += 1
        if stop - at >= 2 and WILDCARD in first:
            found.append(first)
        elif stop - at >= 3 and is_glued(first):
            found.append(shape.replace("#", WILDCARD))
        else:
            found += words[at:stop]
        at = stop
    return tuple(found)


def _series(token: str) -> str:
    return without_numbers(token) if is_glued(token) else token


def essence(masked: str) -> str:
    """A traceback is known by the exceptions that end it and those in its chain; other messages by all their text.

    >>> essence('Traceback (most recent call last):\\n  File "<*>", line <*>, in f\\n    g()\\nKeyError: x')
    'Traceback (most recent call last): <*> KeyError: x'
    """
    head, mark, tail = masked.partition(TRACEBACK)
    if not mark:
        return masked
    lines = (line.strip() for line in tail.split("\n"))
    errors = dict.fromkeys(line for line in lines if _ERROR_LINE.fullmatch(line))
    return f" {WILDCARD} ".join((head + TRACEBACK, *errors)) if errors else masked


def _shared_start(first: str, last: str) -> str:
    """What two texts begin with; of sorted texts the first and the last suffice."""
    for at, (one, other) in enumerate(zip(first, last)):
        if one != other:
            return first[:at]
    return first[: len(last)]


def common_ends(values: Iterable[str]) -> tuple[str, str]:
    """What all values begin and end with, cut back to delimiters: `('rhost=', '')` of `rhost=a1, rhost=b2`."""
    ordered = sorted(values)
    shortest = min(map(len, ordered))
    head = _shared_start(ordered[0], ordered[-1])
    while head and head[-1] not in DELIMITERS:
        head = head[:-1]
    if head.endswith(("<", "<*")):
        head = head[: head.rindex("<")]
    backwards = sorted(value[::-1] for value in ordered)
    tail = _shared_start(backwards[0], backwards[-1])[::-1]
    if tail.startswith((">", "*>")):
        tail = tail[tail.index(">") + 1 :]
    if len(head) + len(tail) > shortest:
        tail = tail[len(head) + len(tail) - shortest :]
    while tail and tail[0] not in DELIMITERS:
        tail = tail[1:]
    return head, tail


def joined(values: Iterable[str]) -> str:
    """One token that stands for all values: what they share, and a wildcard; `ANY` when plain words are among them."""
    distinct = set(values)
    if len(distinct) == 1:
        return next(iter(distinct))
    is_any = any(ANY in value for value in distinct)
    plain = {value.replace(ANY, "") for value in distinct}
    if len(plain) == 1:
        return max(distinct)
    head, tail = common_ends(plain)
    token = f"{head}{WILDCARD}{tail}"
    while WILDCARD * 2 in token:
        token = token.replace(WILDCARD * 2, WILDCARD)
    middles = (value[len(head) : len(value) - len(tail)] for value in plain)
    if is_any or any(WILDCARD not in middle and kind_of(middle) is Kind.WORD for middle in middles):
        token = token.replace(WILDCARD, WILDCARD + ANY, 1)
    return token


def pattern_of(row: Iterable[str]) -> str:
    """A template's tokens as one line: lists folded, `<+>` where plain words vary."""
    return " ".join(row).replace(WILDCARD + ANY, ANY_SHOWN)


def row_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a `pattern_of`."""
    return tuple(pattern.replace(ANY_SHOWN, WILDCARD + ANY).split(" "))
