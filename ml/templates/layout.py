"""Where the message begins in the lines of an unknown log: learned from the lines themselves, for each file anew.

Headers are columns: stamps, levels, process ids, components stand at the same place in (nearly) every line. A column
that holds a stamp or a level ends the header; separators, padded columns, `[thread]` and `component[pid]:` behind it
belong to it where nearly all lines have them. No list of systems is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NEARLY_ALL = 0.9
MOST = 0.6
MAX_COLUMNS = 12
SAMPLE = 5_000

_STAMP = re.compile(
    r"[\[(]?(?:"
    r"\d{1,4}[-/.]\d{1,2}(?:[-/.]\d{1,4})?(?:[T_-]\d{1,2}[:.]\d{2}[\d:.,+Z-]*)?"  # 2015-07-29, 17/06/09, 03-17, 10.30
    r"|\d{1,2}:\d{2}(?::\d{2})?(?:[.,:]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"  # 17:41:44,747
    r"|\d{8}(?:[-_T]\d{1,2}:\d{1,2}:\d{1,2}\S*|[-_T]?\d{6}\S*)"  # 20171223-22:15:29:606
    r"|(?:1\d{9}|1\d{12})(?:\.\d{1,9})?"  # seconds and milliseconds since 1970
    r")[\])]?[,:]?"
)
_CLOCK = re.compile(r"[\[(]?\d{1,2}:\d{2}:\d{2}")
_YEAR = re.compile(r"(?:19|20)\d\d[\])]?[,:]?")
_COMPACT = re.compile(r"\d{6}")
_LEVEL = re.compile(
    r"[\[(<|]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|SEVERE|FATAL|FAILURE|CRITICAL|CRIT|ALERT|EMERG|"
    r"[Tt]race|[Dd]ebug|[Ii]nfo|[Nn]otice|[Ww]arn|[Ww]arning|[Ee]rror|[Ff]atal|[Cc]ritical|crit|emerg|alert|"
    r"[VDIWEF])[\])>|]?[,:]?"
)
_COLUMN_BEHIND = re.compile(r"\d{1,8}|[-|:]")
_COMPONENT = (
    r"(?:[\w.$/@()+-]{1,120}(?: [\w.()+-]{1,40}){0,3}\[[\w./-]{1,64}\](?: \([\w.\[\]/-]{1,120}\))?"
    r"|[\w.$/@()+-]{1,120}(?: \d[\w.-]{0,15})?):(?: +|$)"
)
_BAR_FIELD = re.compile(r"[\w.$/:-]{1,64}")


@dataclass(frozen=True)
class Layout:
    """How the lines of one file are made: `message(line)` is what stands behind the header.

    `n_bars` leading fields end with `|`; otherwise `n_columns` words make the header, the last of which `is_end`
    recognises, and `peels` are patterns that may follow.
    """

    n_bars: int = 0
    n_columns: int = 0
    is_end: Callable[[str], bool] | None = None
    peels: tuple[re.Pattern[str], ...] = ()

    def message(self, line: str) -> str:
        """The line without its header; the whole line when it has none."""
        if self.n_bars:
            fields = line.split("|", self.n_bars)
            return fields[-1].strip() if len(fields) > self.n_bars else line.strip()
        rest = line
        if self.n_columns:
            words = line.split(None, self.n_columns)
            if len(words) < self.n_columns or (self.is_end is not None and not self.is_end(words[self.n_columns - 1])):
                return line.strip()
            rest = words[self.n_columns] if len(words) > self.n_columns else ""
        for peel in self.peels:
            rest = _peeled(peel, rest)
        return rest.strip()


def _peeled(peel: re.Pattern[str], rest: str) -> str:
    found = peel.match(rest)
    return rest[found.end() :] if found else rest


def learned(lines: Sequence[str]) -> Layout:
    """The layout of a file's lines (a sample is enough).

    >>> learned(["2024-01-01 10:00:00 INFO [main] a.B: up", "2024-01-01 10:00:01 WARN [x] a.C: slow"] * 9).message(
    ...     "2024-01-01 10:00:03 INFO [main] a.B: down")
    'down'
    """
    sample = [line for line in lines[:SAMPLE] if line.strip()]
    if not sample:
        return Layout()
    n_bars = _bars(sample)
    if n_bars:
        return Layout(n_bars=n_bars)
    rows = [line.split(None, MAX_COLUMNS) for line in sample]
    n_columns, is_end = _header(rows)
    if not n_columns:
        return Layout()
    rests = [Layout(n_columns=n_columns, is_end=is_end).message(line) for line in sample]
    return Layout(0, n_columns, is_end, _peels(sample, rests))


def _share(rows: Sequence[object], test: Callable[[object], bool]) -> float:
    return sum(map(test, rows)) / len(rows)


def _bars(sample: Sequence[str]) -> int:
    """Leading fields that end with a bar, when the first of them is a stamp."""
    split = [line.split("|") for line in sample]
    n_fields = 0
    while _share(split, lambda f, n=n_fields: len(f) > n + 1 and _BAR_FIELD.fullmatch(f[n]) is not None) >= 0.98:  # type: ignore[misc, arg-type, index]
        n_fields += 1
    starts = _share(split, lambda f: _STAMP.fullmatch(f[0]) is not None)  # type: ignore[index]
    return n_fields if n_fields >= 2 and starts >= NEARLY_ALL else 0


def _header(rows: list[list[str]]) -> tuple[int, Callable[[str], bool] | None]:
    """Number of words up to the last column of stamps or levels, and what that column holds."""
    found: tuple[int, Callable[[str], bool] | None] = (0, None)
    is_levelled = False
    for column in range(MAX_COLUMNS):
        words = [row[column] for row in rows if len(row) > column]
        if len(words) < NEARLY_ALL * len(rows):
            break
        test, is_level = _kind(words, column, found[0], is_levelled)
        is_levelled = is_levelled or is_level
        if test is not None:
            found = (column + 1, test)
    return found


def _kind(words: list[str], column: int, n_before: int, is_levelled: bool) -> tuple[Callable[[str], bool] | None, bool]:
    """What nearly all words of a column are, when that is part of a header; and whether it is the level.

    Behind the level only what adjoins it still belongs to the header.
    """

    def is_stamp(word: str) -> bool:
        return _STAMP.fullmatch(word) is not None or _CLOCK.match(word) is not None

    def is_level(word: str) -> bool:
        return _LEVEL.fullmatch(word) is not None

    def is_year(word: str) -> bool:
        return _YEAR.fullmatch(word) is not None

    def is_compact(word: str) -> bool:
        return _COMPACT.fullmatch(word) is not None

    def is_behind(word: str) -> bool:
        return _COLUMN_BEHIND.fullmatch(word) is not None

    tests = [is_stamp, is_level] if not is_levelled else []
    if n_before == column:
        tests += [is_year, is_behind] if column else [is_compact]
    if n_before == column and column == 1:
        tests.append(is_compact)
    for test in tests:
        needed = 0.98 if test in (is_behind, is_compact) else NEARLY_ALL
        if sum(map(test, words)) >= needed * len(words):
            return test, test is is_level
    return None, False


_PADDED = re.compile(r"[A-Za-z][\w.-]{0,31} {2,}")
_DASHED_BRACKET = re.compile(r"\[.{0,200}?\] - ")
_BRACKET = re.compile(r"\[[^\[\]]{0,200}\]:? +")
_NAME_BRACKET = re.compile(r"[\w.$-]{1,120} \[[^\[\]]{0,200}\] ")
_HOST_COMPONENT = re.compile(r"\S{1,120} (?=" + _COMPONENT + r")" + _COMPONENT)
_ONE_COMPONENT = re.compile(_COMPONENT)
_DASHED = re.compile(r"[^\s-][^\n]{0,60}? - ")


def _peels(sample: Sequence[str], rests: list[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns that nearly all lines have behind the columns, in order."""
    peels: list[re.Pattern[str]] = []

    def peel(pattern: re.Pattern[str], share: float) -> bool:
        nonlocal rests
        if _share(rests, lambda rest: pattern.match(str(rest)) is not None) < share:
            return False
        peels.append(pattern)
        rests = [_peeled(pattern, rest) for rest in rests]
        return True

    if not (peel(_DASHED_BRACKET, NEARLY_ALL) or peel(_BRACKET, NEARLY_ALL) or peel(_NAME_BRACKET, NEARLY_ALL)):
        peel(_PADDED, NEARLY_ALL)
    starts = {rest.split(" ", 1)[0] for rest in rests}
    if not (peel(_HOST_COMPONENT, MOST) or peel(_ONE_COMPONENT, NEARLY_ALL)) and len(starts) <= max(8, len(rests) // 20):
        peel(_DASHED, 0.95)
    return tuple(peels)
