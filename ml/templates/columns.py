"""When tokens at one position are different words, and when they are values of one variable.

The rules speak of kinds of text and of small counts, never of one system's vocabulary:

- a few plain words are words (`send`/`receive`, `built`/`building`), many are a variable (user names);
- numbers at the end of one stem are a variable; two different stems with numbers are words;
- under one key, `tag="<*>"` makes every other `tag=` a value too, and an empty value is a value;
- different keys are different;
- behind a word such as `user` or `host` stands a name, which is a value;
- a unit belongs to the number before it.
"""

from __future__ import annotations

from collections import defaultdict

from ml.templates.tokens import (
    ANY,
    EDGES,
    KEY_ENDS,
    WILDCARD,
    Kind,
    common_ends,
    has_letters,
    is_glued,
    is_null,
    key_of,
    kind_of,
    without_numbers,
)

MAX_WORDS = 5
MAX_STEMS = 2
CAPITALS_FACTOR = 3
"""Words in capitals are a program's own constants (states, kinds of operation): three times as many stay words."""
NAME_NOUNS = frozenset(("user", "username", "users", "account", "host", "hostname", "node", "machine"))


UNITS = frozenset(
    ("b", "kb", "mb", "gb", "tb", "pb", "kib", "mib", "gib", "tib", "bytes", "kbytes", "mbytes", "k", "m", "g", "t", "ns",
     "us", "µs", "ms", "msec", "msecs", "s", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes", "h",
     "hr", "hrs", "hour", "hours", "day", "days")
)  # fmt: skip
"""Units change with the size of the number before them: with it they are one value."""


def are_units(values: set[str], previous: str | None) -> bool:
    """Whether all values are units, glued to a masked number or behind one."""
    bare = {value.strip(".,;:()[]") for value in values}
    if all(text.startswith(WILDCARD) for text in bare):
        return all(text[len(WILDCARD) :].lower() in UNITS for text in bare)
    return previous is not None and previous.endswith(WILDCARD) and all(text.lower() in UNITS for text in bare)


def is_name_position(previous: str | None) -> bool:
    """Whether the token before announces a name."""
    return previous is not None and previous.strip(EDGES).lower() in NAME_NOUNS


def parts_of(values: set[str], previous: str | None, max_words: int = MAX_WORDS) -> list[set[str]]:
    """The values of one position in groups: each group is one token of a template. In order, never empty.

    >>> parts_of({"sent", "received"}, None)
    [{'received'}, {'sent'}]
    >>> parts_of({"blk_<*>", "job.a.b"}, None) == [{"blk_<*>", "job.a.b"}]
    True
    """
    if len(values) < 2 or is_name_position(previous) or are_units(values, previous):
        return [values]
    by_key: dict[str, set[str]] = defaultdict(set)
    for value in values:
        by_key[key_of(value)].add(value)
    groups = [group for key in sorted(by_key) for group in _parts_of_one_key(by_key[key], max_words)]
    return sorted(groups, key=lambda group: sorted(group))


def _parts_of_one_key(values: set[str], max_words: int) -> list[set[str]]:
    if len(values) < 2 or any(ANY in value for value in values):
        return [values]
    head, tail = common_ends(values)
    middles = {value: value[len(head) : len(value) - len(tail)] for value in values}
    is_keyed = head.endswith(KEY_ENDS)
    words, numbered, rest = _sorted_by_kind(middles, is_keyed)
    real = {value for value in rest if not is_null(middles[value])}
    if is_keyed and real:
        return [values]
    if real:
        masked = {value for value in words if WILDCARD in middles[value]}
        words, rest = words - masked, rest | masked
    stems: dict[str, set[str]] = defaultdict(set)
    for value in numbered:
        stems[without_numbers(middles[value])].add(value)
    if len(stems) <= MAX_STEMS and not rest:
        groups = [{word} for word in words] + list(stems.values())
    else:
        groups = [{word} for word in words]
        rest = rest | numbered
    is_capital = not real and all(middles[value].isupper() for word in groups for value in word)
    if len(groups) > max_words * (CAPITALS_FACTOR if is_capital else 1):
        return [values]
    parts = _with_rest(groups, rest, is_keyed and not real)
    return [part for whole in parts for part in (_parts_of_one_key(whole, max_words) if whole != values else [whole])]


def _with_rest(groups: list[set[str]], rest: set[str], is_only_null: bool) -> list[set[str]]:
    """Values join as one more group; an empty value joins the only other one."""
    if not rest:
        return groups
    if is_only_null and len(groups) <= 1:
        return [set().union(*groups, rest)]
    return [*groups, rest]


def _sorted_by_kind(middles: dict[str, str], is_keyed: bool) -> tuple[set[str], set[str], set[str]]:
    """Values whose differing part is words, words with a number, or something else."""
    words: set[str] = set()
    numbered: set[str] = set()
    rest: set[str] = set()
    for value, middle in middles.items():
        bare = middle.strip(".,;:!?()[]{}\"'`-=|#")
        kind = kind_of(middle)
        if is_null(middle):
            (rest if is_keyed or not has_letters(middle) else words).add(value)
        elif WILDCARD in middle and is_glued(bare):
            numbered.add(value)
        elif kind is Kind.WORD and len(bare) >= 2:
            words.add(value)
        elif kind is Kind.NUMBERED:
            numbered.add(value)
        else:
            rest.add(value)
    return words, numbered, rest


def fits(template: tuple[str, ...], row: tuple[str, ...]) -> bool:
    """Whether a row (as long as the template) is an instance: only values, never plain words, meet a wildcard."""
    return all(mine == its or _token_fits(mine, its) for mine, its in zip(template, row))


def _token_fits(mine: str, its: str) -> bool:
    if WILDCARD not in mine:
        return False
    is_any, mine, its = ANY in mine, mine.replace(ANY, ""), its.replace(ANY, "")
    head, tail = mine[: mine.index(WILDCARD)], mine[mine.rindex(WILDCARD) + len(WILDCARD) :]
    if not (its.startswith(head) and its.endswith(tail) and len(its) >= len(head) + len(tail)):
        return False
    if is_any or head.endswith(KEY_ENDS):
        return True
    middle = its[len(head) : len(its) - len(tail)]
    return not key_of(middle) and (WILDCARD in middle or kind_of(middle) is not Kind.WORD)
