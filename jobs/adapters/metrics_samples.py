"""What all metric formats share: times in every usual notation, batches of samples, and the books of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

from jobs.adapters.base import Parsed, Problem, Rows, Tally
from jobs.adapters.metrics_names import canonical, device_in_name
from jobs.adapters.metrics_units import converted, is_implausible

BATCH_ROWS = 50_000
MAX_LINE_BYTES = 4 << 20
MAX_PROBLEMS = 100
"""Problems reported one by one; further ones are counted together, so a wholly broken file stays one row or so."""
MAX_SERIES = 200_000
SKIP = "skip"
EARLIEST_US = 946_684_800_000_000
"""2000-01-01: stamps before it, and after LATEST_US, come from clocks that were never set."""
LATEST_US = 4_102_444_800_000_000


def parse_time(text: str, zone: str = "UTC") -> int | None:
    """Microseconds since 1970 of an ISO stamp or of an epoch in s, ms, µs or ns (told by magnitude); None if neither.

    >>> parse_time("1700000000") == parse_time("2023-11-14T22:13:20Z") == parse_time("1700000000000")
    True
    """
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        return _parse_iso(text, zone)
    return epoch_us(number, text)


def epoch_us(number: float, text: str = "") -> int | None:
    """Microseconds of an epoch number, its unit told by magnitude."""
    if not math.isfinite(number):
        return None
    for limit, factor in ((1e11, 1_000_000), (1e14, 1000), (1e17, 1)):
        if abs(number) < limit:
            exact = int(text) * factor if text.isdigit() else round(number * factor)
            return exact if EARLIEST_US <= exact < LATEST_US else None
    exact = int(text) // 1000 if text.isdigit() else round(number / 1000)
    return exact if EARLIEST_US <= exact < LATEST_US else None


def _parse_iso(text: str, zone: str) -> int | None:
    try:
        at = datetime.fromisoformat(text.replace("/", "-", 2))
        if at.tzinfo is None:
            at = at.replace(tzinfo=ZoneInfo(zone))
        whole = at.astimezone(UTC)
    except (ValueError, OverflowError, KeyError, OSError):
        return None
    exact = int((whole - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6 + 0.5)
    return exact if EARLIEST_US <= exact < LATEST_US else None


def parse_number(text: str) -> float | None:
    """The number in a cell; None for an empty one. Raises ValueError for anything else."""
    text = text.strip()
    if not text or text.lower() in ("null", "none", "n/a", "na", "-"):
        return None
    return float(text)


@dataclass
class SampleBook:
    """Collects samples and problems of one file and hands them on in batches.

    `add` takes raw names and looks up what they mean; `batch` gives what has gathered; `closing` ends the books.
    """

    n_read: int = 0
    n_understood: int = 0
    n_problems: int = 0
    first_us: int | None = None
    last_us: int | None = None
    flags: set[str] = field(default_factory=set)
    _columns: dict[str, list[Any]] = field(default_factory=dict)
    _more: dict[str, tuple[int, int]] = field(default_factory=dict)
    _last_code: dict[tuple[str | None, str | None], float] = field(default_factory=dict)
    _series: set[tuple[str | None, str | None, str]] = field(default_factory=set)
    _dropped: set[int] = field(default_factory=set)
    _n_dropped: int = 0
    _implausible: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        names = ("node", "device", "metric", "unit", "is_counter", "at_us", "value")
        self._columns = {name: [] for name in names}

    def add(
        self, node: str | None, raw: str, at_us: int, value: float, device: str | None = None,
        unit: str | None = None, is_counter: bool | None = None,
    ) -> str | None:  # fmt: skip
        """One sample under its exporter's name; the reason when it cannot be used."""
        raw, inner = device_in_name(raw)
        name = canonical(raw, is_counter)
        device = device or inner
        scaled, unit = converted(value * name.scale, unit, name.unit)
        if is_implausible(scaled, unit):
            self._implausible[name.name] = self._implausible.get(name.name, 0) + 1
            return "implausible"
        if not self._admits((node, device, name.name)):
            return None
        if name.has_edges_only and self._last_code.get((node, device)) == value:
            scaled = 0.0
        elif name.has_edges_only:
            self._last_code[(node, device)] = value
        columns = self._columns
        columns["node"].append(node)
        columns["device"].append(device)
        columns["metric"].append(name.name)
        columns["unit"].append(unit)
        columns["is_counter"].append(name.is_counter)
        columns["at_us"].append(at_us)
        columns["value"].append(scaled)
        self.first_us = at_us if self.first_us is None else min(self.first_us, at_us)
        self.last_us = at_us if self.last_us is None else max(self.last_us, at_us)
        return None

    def _admits(self, series: tuple[str | None, str | None, str]) -> bool:
        """False for a series beyond the cap: a file with a million label sets must not fill the memory."""
        if series in self._series:
            return True
        if len(self._series) >= MAX_SERIES:
            self.flags.add("series_dropped")
            self._n_dropped += 1
            if len(self._dropped) < MAX_SERIES:
                self._dropped.add(hash(series))
            return False
        self._series.add(series)
        return True

    def problem(self, reason: str, offset: int, detail: str = "", sample: bytes = b"", n_records: int = 1) -> Iterator[Problem]:
        """One unusable record: yielded singly at first, then gathered per reason."""
        self.n_problems += 1
        if self.n_problems <= MAX_PROBLEMS:
            yield Problem(reason, offset, n_records, detail, sample[:200])
            return
        first, count = self._more.get(reason, (offset, 0))
        self._more[reason] = (first, count + n_records)

    def batch(self, *, full_only: bool = True) -> Iterator[Rows]:
        """The samples so far, once there are enough of them."""
        n_rows = len(self._columns["value"])
        if n_rows >= BATCH_ROWS or (n_rows and not full_only):
            yield Rows("metric_samples", self._columns)
            self._clear()

    def closing(self) -> Iterator[Rows | Problem | Tally]:
        """The rest of the samples, the gathered problems, and the tally."""
        yield from self.batch(full_only=False)
        for reason, (offset, count) in sorted(self._more.items()):
            yield Problem(reason, offset, count, f"{count} further records")
        if self._n_dropped:
            least = "at least " if len(self._dropped) >= MAX_SERIES else ""
            told = f"{least}{len(self._dropped)} series beyond {MAX_SERIES} were dropped, {self._n_dropped} samples"
            yield Problem("series_cap", 0, 0, told)
        if self._implausible:
            listed = ", ".join(f"{name}: {n}" for name, n in sorted(self._implausible.items())[:20])
            yield Problem("implausible", 0, 0, f"values that the metric's unit rules out, not used: {listed}")
        yield Tally(
            self.n_read, self.n_understood, _moment(self.first_us), _moment(self.last_us),
            encoding="utf-8", flags=tuple(sorted(self.flags)),
        )  # fmt: skip


def samples_of(book: SampleBook, stream: BinaryIO, add: Callable[[str, int, bytes], str | None]) -> Iterator[Parsed]:
    """Samples of a text, line by line. `add` puts one into the book and says why where it cannot (`SKIP`: no sample)."""
    for offset, raw, is_cut in lines_of(stream):
        text = raw.decode("utf-8", "replace")
        if "\ufffd" in text:
            book.flags.add("decode_errors")
        wrong = "too_long" if is_cut else add(text, offset, raw)
        if wrong == SKIP:
            continue
        book.n_read += 1
        if wrong:
            yield from book.problem(wrong, offset, sample=raw)
        else:
            book.n_understood += 1
            yield from book.batch()
    yield from book.closing()


def _moment(at_us: int | None) -> datetime | None:
    return None if at_us is None else datetime.fromtimestamp(at_us // 1_000_000, UTC).replace(microsecond=at_us % 1_000_000)


def lines_of(stream: BinaryIO) -> Iterator[tuple[int, bytes, bool]]:
    """(offset, line without its end, was it cut) of each line; a line beyond the cap is cut and its rest skipped."""
    offset = 0
    while True:
        line = stream.readline(MAX_LINE_BYTES)
        if not line:
            return
        start, is_cut = offset, False
        offset += len(line)
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            is_cut = True
            while True:
                rest = stream.readline(MAX_LINE_BYTES)
                offset += len(rest)
                if not rest or rest.endswith(b"\n"):
                    break
        yield start, line.rstrip(b"\r\n"), is_cut
