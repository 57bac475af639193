"""Metrics as CSV, long or wide: a column a metric, a column a machine, or a row a sample."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from jobs.adapters.base import Adapter, FileContext, Parsed
from jobs.adapters.metrics_samples import SKIP, SampleBook, parse_number, parse_time, samples_of

TIME = {
    "timestamp", "time", "ts", "time_ms", "time_s", "timestamp_ms", "datetime", "date", "unix_seconds",
    "unix_milliseconds", "epoch",
}  # fmt: skip
NODE = {"node", "host", "hostname", "machine", "instance", "nodename", "server"}
DEVICE = {"device", "gpu", "gpu_index", "gpu_id", "gpu_uuid", "uuid"}
METRIC = {"metric", "name", "__name__", "metric_name", "field"}
VALUE = {"value", "val"}
UNIT = {"unit", "units"}
SAMPLE_ROWS = 20
ADDRESS = re.compile(r"^\d{1,3}(\.\d{1,3}){3}(:\d+)?$")


@dataclass(frozen=True)
class Header:
    """Which column holds what; `others` are (index, name) of the columns with values."""

    time: int
    node: int | None
    device: int | None
    metric: int | None
    value: int | None
    unit: int | None
    others: tuple[tuple[int, str], ...]
    delimiter: str
    are_machines: bool

    @property
    def is_long(self) -> bool:
        """True when each row is one sample that names its metric."""
        return self.metric is not None and self.value is not None


def _cells(line: str, delimiter: str) -> list[str]:
    """The line's cells; none when it is no line of a table, e.g. for a stray carriage return."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def read_header(line: str, nodes: frozenset[str] = frozenset()) -> Header | None:
    """The header's columns, or None when the line is no header of metrics: no time, or nothing to read beside it."""
    delimiter = max(",;\t", key=line.count)
    cells = [cell.strip() for cell in _cells(line, delimiter)]
    return header_of(cells, nodes, delimiter)


def header_of(cells: list[str], nodes: frozenset[str] = frozenset(), delimiter: str = ",") -> Header | None:
    """What each column holds, from the columns' names; None when they are no columns of metrics."""
    words = [cell.lower().lstrip("\ufeff") for cell in cells]

    def find(names: set[str]) -> int | None:
        return next((i for i, word in enumerate(words) if word in names), None)

    time, node, device, metric, value, unit = (find(names) for names in (TIME, NODE, DEVICE, METRIC, VALUE, UNIT))
    if time is None or len(cells) < 2:
        return None
    if metric is None or value is None:
        metric = value = unit = None
    taken = {time, node, device, metric, value, unit}
    others = tuple((i, cell) for i, cell in enumerate(cells) if i not in taken and cell)
    if not others and metric is None:
        return None
    machines = node is None and bool(others) and all(name in nodes or ADDRESS.match(name) for _, name in others)
    return Header(time, node, device, metric, value, unit, others, delimiter, machines)


class MetricsCsv:
    """CSV of metrics. The machine comes from a column, from the columns' names, or from the file's place."""

    name = "metrics_csv"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """High for a header with a time column and a second line that bears it out."""
        first, _, rest = head.partition(b"\n")
        header = _header_in(first.decode("utf-8", "replace"), frozenset())
        if header is None:
            return 0.0
        rows = [_cells(line[:65536], header.delimiter) for line in rest.decode("utf-8", "replace").split("\n")[:SAMPLE_ROWS]]
        second, cells = rest.partition(b"\n")[0], rows[0]
        if _is_mostly_text(header, rows):
            return 0.0
        has_time = len(cells) > header.time and parse_time(cells[header.time]) is not None
        in_folder = "metrics" in PurePosixPath(path).parts
        if second and not has_time:
            return 0.1
        return 0.95 if in_folder else 0.7 if path.lower().endswith((".csv", ".tsv", ".csv.gz")) and has_time else 0.3

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`metric_samples` rows, problems for lines that are no samples, one tally; `n_read` counts lines after the header."""
        book, header = SampleBook(), _HeaderOnce(frozenset(p.node for p in context.placements if p.node))
        node = context.node or file_stem(context.path)

        def add(text: str, offset: int, raw: bytes) -> str | None:
            if not text.strip() or text.startswith("#") or header.is_taken(text):
                return SKIP
            return "missing_column" if header.found is None else _add_row(book, header.found, text, node, context)

        yield from samples_of(book, stream, add)


class _HeaderOnce:
    """The header of a file: its first line that is neither empty nor a remark."""

    def __init__(self, nodes: frozenset[str]) -> None:
        self._nodes = nodes
        self._is_first = True
        self.found: Header | None = None

    def is_taken(self, text: str) -> bool:
        """Whether this line is the header, and a good one."""
        if not self._is_first:
            return False
        self._is_first = False
        self.found = _header_in(text, self._nodes)
        return self.found is not None


def _is_mostly_text(header: Header, rows: list[list[str]]) -> bool:
    """Whether the columns that would be metrics hold words: a table of log lines has a time column too."""
    if header.is_long:
        return False
    cells = [row[index] for row in rows for index, _ in header.others if index < len(row)]
    return 2 * sum(_is_text(cell) for cell in cells) > len(cells)


def _is_text(cell: str) -> bool:
    try:
        parse_number(cell)
    except ValueError:
        return True
    return False


def _header_in(line: str, nodes: frozenset[str]) -> Header | None:
    try:
        return read_header(line, nodes)
    except csv.Error:
        return None


def file_stem(path: str) -> str:
    """The file's name without its endings: in `metrics/NODE.csv.gz` the machine."""
    return PurePosixPath(path).name.removesuffix(".gz").removesuffix(".zst").rsplit(".", 1)[0]


def _add_row(book: SampleBook, header: Header, text: str, node: str, context: FileContext) -> str | None:
    """Put a line's samples into the book; the reason when it cannot be used."""
    cells = _cells(text, header.delimiter)
    needed = max(header.time, *(i for i, _ in header.others), header.value or 0)
    if len(cells) <= needed:
        return "bad_value"
    at_us = parse_time(cells[header.time], context.zone)
    if at_us is None:
        return "bad_value"
    where = _cell(cells, header.node) or node
    device = _cell(cells, header.device)
    if header.is_long:
        return _add_long(book, header, cells, where, device, at_us)
    n_bad = n_odd = 0
    for index, name in header.others:
        try:
            value = parse_number(cells[index])
        except ValueError:
            n_bad += 1
            continue
        if value is not None:
            given = (name, node) if header.are_machines else (where, name)
            n_odd += book.add(*given, at_us, value, device) is not None
    if n_bad:
        book.flags.add("text_columns")
    return "bad_type" if n_bad == len(header.others) else "implausible" if n_odd + n_bad == len(header.others) else None


def _add_long(book: SampleBook, header: Header, cells: list[str], node: str, device: str | None, at_us: int) -> str | None:
    name = _cell(cells, header.metric)
    try:
        value = parse_number(cells[header.value or 0])
    except ValueError:
        return "bad_type"
    if not name:
        return "bad_value"
    return None if value is None else book.add(node, name, at_us, value, device, unit=_cell(cells, header.unit))


def _cell(cells: list[str], index: int | None) -> str | None:
    return (cells[index].strip() or None) if index is not None and index < len(cells) else None


ADAPTERS: tuple[Adapter, ...] = (MetricsCsv(),)
