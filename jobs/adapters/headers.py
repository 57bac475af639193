"""What stands before a log line's message: rank labels, stamps, levels, loggers, in any order that tools print them.

A header is peeled token by token. The sequence of tokens of a line is remembered as one joint pattern, which reads
the following lines in one go: logs are regular. Every pattern is bounded, so that a hostile line costs linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from jobs.adapters.stamps import GLOG, ISO, MONTHS, SYSLOG, Clock, from_epoch

LEVELS = {
    "T": "DEBUG", "TRACE": "DEBUG", "V": "DEBUG", "D": "DEBUG", "DEBUG": "DEBUG", "I": "INFO", "INFO": "INFO", "NOTICE": "INFO",
    "W": "WARNING", "WARN": "WARNING", "WARNING": "WARNING", "E": "ERROR", "ERR": "ERROR", "ERROR": "ERROR", "EXCEPTION": "ERROR",
    "F": "CRITICAL", "C": "CRITICAL", "FATAL": "CRITICAL", "CRITICAL": "CRITICAL", "ALERT": "CRITICAL", "PANIC": "CRITICAL",
}  # fmt: skip
_LEVEL = (
    r"(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERR|EXCEPTION|FATAL|CRITICAL|Debug|Info|Warning|Error|Fatal"
    r"|debug|info|warning|error|fatal)"
)
_LOGGER = r" {1,4}[\w.<>]{1,80}:\d{1,6}(?: \||\]|:| -)(?: |$)|:[A-Za-z_][\w.]{0,80}:"
"""What makes a level the beginning of a longer token."""
_SOURCE = r"[\w./+<>-]{1,160}:\d{1,6}"

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

# name, first characters, pattern. Groups are read by name of the token in `_READERS`.
TOKENS: tuple[tuple[str, str, str], ...] = (
    ("nemo", "[", rf"\[NeMo ([DIWEC]) {ISO} [\w./<>-]{{1,120}}:\d{{1,6}}\](?: |$)"),
    ("hyperpod", "[", r"\[rank(\d{1,6})-[\w-]{1,64}\]: ?"),
    ("rank", "[", r"\[[Rr](?:ank|ANK)[ =:]?(\d{1,6})\](:?) ?"),
    ("local", "[", r"\[([A-Za-z_]{3,24}?)(\d{1,4})\]: ?"),
    ("mpi", "[", r"\[\d{1,4},(\d{1,6})\](?:<std\w{2,4}>)?(:)"),
    ("ray", "(", r"\([A-Za-z_][\w.<>-]{0,80} pid=(\d{1,8})(?:, ip=([\w.:-]{1,45}))?\) ?"),
    ("glog", "[", rf"\[{GLOG}(?: \d{{1,8}})? {_SOURCE}\](?: |$)"),
    ("glog", "IWEFDC", rf"{GLOG} {{1,8}}(?:\d{{1,8}} )?{_SOURCE}\](?: |$)"),
    ("stamp", "[", rf"\[{ISO}\](?: - | |:|$)?"),
    ("hf", "[", rf"\[{_LEVEL}\|{_SOURCE}\] {ISO} >> ?"),
    ("level", "[", rf"\[{_LEVEL}\](?: - |:? |$)?"),
    ("epoch", "[", r"\[(1\d{9}(?:\.\d{1,9})?)\](?: |$)"),
    ("source", "[", r"\[[\w./+<>-]{1,120}\.\w{1,5}:\d{1,6}(?::[\w.<>]{1,80})?\](?: |$)"),
    ("name", "[", r"\[[A-Za-z][\w.]{1,32}\] ?(?=\[| ?\d{4}-\d\d-\d\d)"),
    ("kineto", "DIWEUSTV", rf"(USDT|TRACE|DEBUG|INFO|WARNING|ERROR|STAGE):{ISO} \d{{1,8}}:\d{{1,8}} {_SOURCE}\] ?"),
    ("stamp", "0123456789", rf"{ISO}(?: - |:? {{0,4}}|$)"),
    ("stamp", "D", rf"DLL {ISO} - "),
    ("syslog", "JFMASOND", rf"{SYSLOG} "),
    ("syslog", "[", rf"\[{SYSLOG}\](?: |$)"),
    ("logger_level", "_-" + _LETTERS, rf"(?:- )?[A-Za-z_][\w.]{{0,80}}(?: - | ){_LEVEL}(?: - | ?: | ?\| ?)"),
    ("level_logger", "DIWEFCTN", rf"{_LEVEL} {{1,4}}[\w.<>]{{1,80}}:\d{{1,6}}(?: \||\]|:| -)(?: |$)"),
    ("python", "DIWEFC", rf"{_LEVEL}:[A-Za-z_][\w.]{{0,80}}:"),
    ("level", "-DIWEFCTNdiwef", rf"(?:- )?{_LEVEL}(?!{_LOGGER})(?:: ?| - | \| |(?<=[A-Z]) {{1,8}}(?=\S))"),
    ("nccl", _LETTERS, r"([A-Za-z][\w.-]{0,62}):(\d{1,8}):\d{1,8} \[(\d{1,3})\] (?=NCCL (INFO|WARN|TRACE|ERROR)?)"),
    ("host", "abcdefghijklmnopqrstuvwxyz", r"([a-z][\w-]{0,62}\d[\w.-]{0,62}): (?=\[\d{4}-|\[rank|iteration)"),
    ("hosts", _LETTERS, r"([A-Za-z][\w-]{0,62}\d[\w.-]{0,62}): ?"),
)  # fmt: skip
_LABEL = r" {0,6}(\d{1,6}): ?"
AFTER_STAMP_ONLY = frozenset({"logger_level"})
_DIGITS = re.compile(r"\d+")


class Header(NamedTuple):
    """What a header said, null where it does not; `start` is where the message begins, `given_us` a transport's time."""

    start: int
    at_us: int | None = None
    precision_s: float | None = None
    level: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    role: str | None = None
    node: str | None = None
    label: int | None = None
    is_prefixed: bool = False
    pid: int | None = None
    given_us: int | None = None


NOTHING = Header(0)


@dataclass
class Found:
    """A header being read."""

    at_us: int | None = None
    precision_s: float | None = None
    level: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    role: str | None = None
    node: str | None = None
    label: int | None = None
    is_prefixed: bool = False
    pid: int | None = None

    def stamp(self, clock: Clock, groups: tuple[str | None, ...]) -> None:
        """Take a stamp, unless the line has one already: the first one is the writer's own."""
        if self.at_us is None and groups[0]:
            self.at_us = clock.iso(groups[0], *groups[1:])
            self.precision_s = 3600.0 if clock.is_ambiguous else _precision(groups[1])


def _precision(fraction: str | None) -> float:
    return 1.0 if not fraction else (0.001 if len(fraction) <= 3 else 1e-6)


def _read_nemo(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.level = found.level or LEVELS[str(groups[0])]
    found.stamp(clock, groups[1:])


def _read_glog(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.level = found.level or LEVELS[str(groups[0])]
    if found.at_us is None:
        day = str(groups[1])
        found.at_us = clock.yearless(int(day[:2]), int(day[2:]), str(groups[2]), groups[3])
        found.precision_s = _precision(groups[3])


def _read_syslog(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    if found.at_us is None:
        month, day, time, year = MONTHS[str(groups[0])], int(str(groups[1])), str(groups[2]), groups[3]
        found.at_us = clock.iso(f"{year}-{month:02d}-{day:02d} {time}") if year else clock.yearless(month, day, time)
        found.precision_s = 1.0


def _read_level(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.level = found.level or LEVELS.get(str(groups[0]).upper())


def _read_hf(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    _read_level(found, clock, groups)
    found.stamp(clock, groups[1:])


def _read_rank(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.rank = int(str(groups[0])) if found.rank is None else found.rank
    found.is_prefixed = found.is_prefixed or bool(len(groups) > 1 and groups[1])


def _read_local(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    if found.local_rank is None:
        found.local_rank = int(str(groups[1]))
        found.role = None if groups[0] == "default" else groups[0]
    found.is_prefixed = True


def _read_epoch(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    if found.at_us is None:
        found.at_us, found.precision_s = from_epoch(float(str(groups[0]))), _precision(str(groups[0]).partition(".")[2])


def _read_host(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.node = groups[0]


def _read_ray(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.pid, found.node, found.is_prefixed = int(str(groups[0])), groups[1] or found.node, True


def _read_nccl(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.node, found.pid = groups[0], int(str(groups[1]))
    if groups[3]:
        _read_level(found, clock, groups[3:])


def _read_nothing(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    """Source locations and logger names say nothing that a table keeps."""


def _read_label(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.label = int(str(groups[0]))


def _read_stamp(found: Found, clock: Clock, groups: tuple[str | None, ...]) -> None:
    found.stamp(clock, groups)


_READERS = {
    "nemo": _read_nemo, "hyperpod": _read_rank, "rank": _read_rank, "local": _read_local, "glog": _read_glog, "stamp": _read_stamp,
    "hf": _read_hf, "level": _read_level, "epoch": _read_epoch, "source": _read_nothing, "name": _read_nothing, "kineto": _read_hf,
    "syslog": _read_syslog, "logger_level": _read_level, "level_logger": _read_level, "python": _read_level, "host": _read_host,
    "label": _read_label, "nccl": _read_nccl, "mpi": _read_rank, "ray": _read_ray, "hosts": _read_host,
}  # fmt: skip
_COMPILED = [re.compile(pattern) for _, _, pattern in TOKENS]
_N_GROUPS = [pattern.groups for pattern in _COMPILED]
_LABEL_RE = re.compile(_LABEL)
LABEL_TOKEN = len(TOKENS)
MAX_TOKENS = 8


@cache
def _by_first() -> dict[str, tuple[int, ...]]:
    firsts = {c for _, chars, _ in TOKENS for c in chars}
    return {c: tuple(i for i, (_, chars, _) in enumerate(TOKENS) if c in chars) for c in firsts}


class HeaderReader:
    """Reads the headers of one file's lines."""

    def __init__(self, clock: Clock, has_labels: bool = False) -> None:
        self._clock = clock
        self._has_labels = has_labels
        self._layouts: list[tuple[re.Pattern[str], tuple[int, ...]]] = []
        self._seen: set[tuple[int, ...]] = set()
        self._n_uses: Counter[tuple[int, ...]] = Counter()
        self._host_shapes: set[str] = set()

    def read(self, line: str) -> Header:
        """The header of one line."""
        for i, (pattern, tokens) in enumerate(self._layouts):
            found = pattern.match(line)
            if found and not self._continues(line, found.end(), tokens):
                self._n_uses[tokens] += 1
                if i > 2:
                    self._layouts.insert(0, self._layouts.pop(i))
                return self._header(found.end(), tokens, found.groups())
        return self._peel(line)

    def layouts(self) -> list[tuple[int, ...]]:
        """Token sequences that lines have had so far, the most frequent first."""
        return sorted((tokens for _, tokens in self._layouts), key=lambda tokens: -self._n_uses[tokens])

    def _continues(self, line: str, at: int, tokens: tuple[int, ...]) -> bool:
        """Whether a further token follows, so that the line has a longer header than the layout."""
        return self._next(line, at, tokens) is not None

    def _next(self, line: str, at: int, tokens: tuple[int, ...]) -> tuple[int, re.Match[str]] | None:
        if at >= len(line) or len(tokens) >= MAX_TOKENS:
            return None
        for token in _by_first().get(line[at], ()):
            name = TOKENS[token][0]
            if name in AFTER_STAMP_ONLY and not any(t < LABEL_TOKEN and TOKENS[t][0] in _TIMED for t in tokens):
                continue
            found = _COMPILED[token].match(line, at)
            if found and name == "hosts" and (tokens or _shape(found[1]) not in self._host_shapes):
                continue
            if found and found.end() > at:
                return token, found
        return None

    def _peel(self, line: str) -> Header:
        at: int = 0
        tokens: tuple[int, ...] = ()
        groups: tuple[str | None, ...] = ()
        if line.startswith(" ["):
            at = 1
        if self._has_labels and (label := _LABEL_RE.match(line)):
            at, tokens, groups = label.end(), (LABEL_TOKEN,), label.groups()
        while step := self._next(line, at, tokens):
            token, found = step
            if TOKENS[token][0] == "host":
                self._host_shapes.add(_shape(found[1]))
            at, tokens, groups = found.end(), (*tokens, token), (*groups, *found.groups())
        if not tokens:
            return NOTHING
        if tokens[0] < LABEL_TOKEN and TOKENS[tokens[0]][0] == "hosts":
            return self._header(at, tokens, groups)
        if not line.startswith(" ") and tokens not in self._seen and len(self._layouts) < 8:
            self._seen.add(tokens)
            joint = "".join(_LABEL if t == LABEL_TOKEN else TOKENS[t][2] for t in tokens)
            self._layouts.append((re.compile(joint), tokens))
        return self._header(at, tokens, groups)

    def _header(self, start: int, tokens: tuple[int, ...], groups: tuple[str | None, ...]) -> Header:
        found, at = Found(), 0
        for token in tokens:
            if token == LABEL_TOKEN:
                found.label, at = int(str(groups[0])), at + 1
                continue
            n = _N_GROUPS[token]
            _READERS[TOKENS[token][0]](found, self._clock, groups[at : at + n])
            at += n
        return Header(
            start, found.at_us, found.precision_s, found.level, found.rank, found.local_rank, found.role, found.node, found.label,
            found.is_prefixed, found.pid,
        )  # fmt: skip


def _shape(host: str) -> str:
    """A host's name without its numbers: pdsh prints a host before every line, once one was sure the others are as well."""
    return _DIGITS.sub("0", host)


_TIMED = frozenset({"stamp", "nemo", "glog", "syslog", "epoch", "hf", "kineto"})
