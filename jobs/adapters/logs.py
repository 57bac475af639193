"""Text logs: torchrun trees, `rankN.log`, Slurm output, Megatron, DeepSpeed, DeepTrace and MLPerf lines, or any text.

One parser reads them all, since they mix: headers tell the writers apart, messages tell what is said. The names only
say how surely a file is such a log. What no pattern knows stays as raw text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.fast_limits import MIN_LINE, WARM_LINES, min_bytes
from jobs.adapters.lines import LineReader, is_binary
from jobs.adapters.log_parser import LogParser, has_labels
from jobs.adapters.paths import bare_name
from jobs.adapters.streams import peek

if TYPE_CHECKING:
    from jobs.adapters.fast_lane import FastLane

_TORCHRUN = re.compile(r"(?:^|/)attempt_\d{1,4}/\d{1,4}/(?:stdout|stderr)\.log$|(?:^|/)agent\.log$")
_RANK_LOG = re.compile(r"(?i)(?:^|[/_.-])rank[_-]?\d{1,6}[^/]*\.(?:log|txt|out|err)$|workerlog\.\d{1,4}$")
_SLURM_NAME = re.compile(r"(?:^|/)(?:slurm-\d+(?:_\d+)?|[^/]*[-_]\d{5,})\.(?:out|err|log)$|\.(?:out|err)$")
_SLURM_TEXT = re.compile(rb"slurmstepd:|srun: |SLURM_|slurm_job")
_LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
_OTHERS = (
    ".json",
    ".parquet",
    ".yaml",
    ".yml",
    ".pkl",
    ".pickle",
    ".pt",
    ".tar",
    ".zip",
    ".tgz",
    ".npz",
    ".npy",
    ".html",
    ".svg",
    ".png",
    ".prom",
)


@dataclass(frozen=True)
class LogAdapter:
    """A text log under one of the names by which such logs go."""

    name: str
    likeness: Callable[[str, bytes], float]
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """How surely it is such a log; zero for what is no text."""
        return 0.0 if is_binary(head) else self.likeness(path, head)

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """Events, iterations, and what the log says of its job."""
        head, stream = peek(stream)
        if is_binary(head):
            yield Problem("binary_content", 0, 1, "no text: kept in the archive only", head[:64])
            yield Tally(1, 0)
            return
        reader = LineReader(stream)
        parser = LogParser(context, labels=has_labels(head.decode("utf-8", "replace")))
        n_refused = 0
        for block in _blocks(reader, parser):
            n_refused += block.n_refused
            yield from block.problems
            yield from block.rows
        yield from parser.close()
        first, last = parser.span()
        flags = tuple(sorted(parser.flags | reader.encoding.flags))
        n_understood = min(parser.n_understood - n_refused, parser.n_read - n_refused)
        yield Tally(parser.n_read, max(n_understood, 0), first, last, reader.encoding.name, flags)


@dataclass
class _Parsed:
    """What one stretch of a log gave."""

    problems: list[Problem]
    n_refused: int
    rows: list[Rows]


def _blocks(reader: LineReader, parser: LogParser) -> Iterator[_Parsed]:
    """A log stretch by stretch: line by line at first, and by the fast lane once a layout is known that it can read."""
    lane: FastLane | None = None
    number = 1
    for offset, data, problems in reader.raw_blocks():
        for start, part in _warmed(data, number == 1):
            n_lines = part.count(b"\n") + (not part.endswith(b"\n"))
            if lane is None and len(part) >= min_bytes():
                from jobs.adapters.fast_lane import FastLane

                lane = FastLane(parser)
            if lane is not None and len(part) >= max(min_bytes(), MIN_LINE * n_lines) and lane.ready():
                found, n_refused, rows = lane.take(reader, part, n_lines, offset + start, number)
                yield _Parsed([*problems, *found], n_refused, rows)
            else:
                block = reader.decoded(part, offset + start, number)
                parser.feed(block.lines, block.offsets, number)
                yield _Parsed([*problems, *block.problems], len(block.refused), list(parser.rows()))
            number, problems = number + n_lines, []


def _warmed(data: bytes, is_first: bool) -> list[tuple[int, bytes]]:
    """The first lines of a large file apart, so that its layout is known for the rest."""
    cut = 0
    if is_first and len(data) > min_bytes():
        for _ in range(WARM_LINES):
            cut = data.find(b"\n", cut) + 1
            if not cut:
                break
    return [(0, data[:cut]), (cut, data[cut:])] if 0 < cut < len(data) else [(0, data)]


def _torchrun(path: str, head: bytes) -> float:
    return 0.95 if _TORCHRUN.search(path) else 0.0


def _rank_log(path: str, head: bytes) -> float:
    if b"][RANK " in head[:4096] and path.endswith(_LOG_SUFFIXES):
        return 0.9
    return 0.85 if _RANK_LOG.search(path) else 0.0


def _slurm(path: str, head: bytes) -> float:
    if _SLURM_NAME.search(bare_name(path)):
        return 0.8
    is_labelled = has_labels(head[:32768].decode("utf-8", "replace"))
    return 0.75 if is_labelled or (_SLURM_TEXT.search(head) and path.endswith(_LOG_SUFFIXES)) else 0.0


def _mlperf(path: str, head: bytes) -> float:
    return 0.7 if b":::MLLOG {" in head else 0.0


def _text(path: str, head: bytes) -> float:
    name = bare_name(path).lower()
    if name.endswith(_LOG_SUFFIXES):
        return 0.4
    if name.endswith((".csv", ".tsv")):
        return 0.06
    if name.endswith(_OTHERS) or not head.strip():
        return 0.02
    return 0.1 if b"\n" in head or len(head) < 4096 else 0.05


ADAPTERS = (
    LogAdapter("torchrun_log", _torchrun),
    LogAdapter("rank_log", _rank_log),
    LogAdapter("slurm_log", _slurm),
    LogAdapter("mlperf_log", _mlperf),
    LogAdapter("text_log", _text),
)
