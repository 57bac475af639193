"""Metrics as Parquet: long (time, name, value) or wide, by the same rules as CSV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.adapters.base import Adapter, FileContext, Parsed
from jobs.adapters.metrics_csv import Header, file_stem, header_of
from jobs.adapters.metrics_labels import place_of
from jobs.adapters.metrics_samples import SampleBook, epoch_us, parse_time

BATCH = 8192
MAX_BYTES = 4 << 30
CHUNK = 1 << 20


class MetricsParquet:
    """Parquet files whose columns are those of a metrics table; a column `labels` (a map) is read as Prometheus labels."""

    name = "metrics_parquet"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """Parquet by its magic; sure only in a folder of metrics, since other tables come as Parquet, too."""
        if not head.startswith(b"PAR1"):
            return 0.0
        return 0.9 if "metrics" in path.replace("\\", "/").split("/") else 0.2

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`metric_samples` rows; `n_read` counts the file's rows. Parquet needs its end first, so it is spooled to disk."""
        book = SampleBook()
        with tempfile.TemporaryFile() as spool:
            copied = 0
            while (piece := stream.read(CHUNK)) and copied <= MAX_BYTES:
                copied += spool.write(piece)
            spool.seek(0)
            if copied > MAX_BYTES:
                book.n_read += 1
                yield from book.problem("too_long", MAX_BYTES, "larger than 4 GiB")
            else:
                yield from _read(book, spool, context)
        yield from book.closing()


def _read(book: SampleBook, spool: Any, context: FileContext) -> Iterator[Parsed]:
    try:
        file = pq.ParquetFile(spool)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError) as error:
        book.n_read += 1
        yield from book.problem("corrupt_parquet", 0, str(error)[:200])
        return
    header = header_of([name for name in names if name != "labels"], frozenset(p.node for p in context.placements if p.node))
    if header is None:
        book.n_read += file.metadata.num_rows
        yield from book.problem("missing_column", 0, "no time column beside values", n_records=max(file.metadata.num_rows, 1))
        return
    columns = [name for name in names if name != "labels"]
    try:
        for number, batch in enumerate(file.iter_batches(BATCH)):
            for index, row in enumerate(batch.to_pylist()):
                book.n_read += 1
                wrong = _add(book, header, columns, row, context)
                if wrong:
                    yield from book.problem(wrong, number * BATCH + index)
                else:
                    book.n_understood += 1
            yield from book.batch()
    except (pa.ArrowException, OSError, ValueError) as error:
        yield from book.problem("corrupt_parquet", book.n_read, str(error)[:200], n_records=0)


def _add(book: SampleBook, header: Header, columns: list[str], row: dict[str, Any], context: FileContext) -> str | None:
    at_us = _time_us(row[columns[header.time]], context.zone)
    if at_us is None:
        return "bad_value"
    node = _text(row, columns, header.node) or context.node or file_stem(context.path)
    device = _text(row, columns, header.device)
    if header.is_long:
        name = _text(row, columns, header.metric)
        value = _number(row[columns[header.value or 0]])
        if not name:
            return "bad_value"
        if value is not None and row.get("labels"):
            labels = {str(key): str(text) for key, text in dict(row["labels"]).items()}
            place = place_of(name, labels, node)
            unit = _text(row, columns, header.unit)
            return book.add(place.node, place.raw, at_us, value, device or place.device, unit=unit)
        return None if value is None else book.add(node, name, at_us, value, device, unit=_text(row, columns, header.unit))
    for index, name in header.others:
        value = _number(row[columns[index]])
        if value is not None:
            where, metric = (name, file_stem(context.path)) if header.are_machines else (node, name)
            book.add(where, metric, at_us, value, device)
    return None


def _time_us(value: Any, zone: str) -> int | None:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1e6)
    if isinstance(value, int | float):
        return epoch_us(float(value), str(value))
    return parse_time(value, zone) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(row: dict[str, Any], columns: list[str], index: int | None) -> str | None:
    value = None if index is None else row[columns[index]]
    return None if value is None else str(value)


ADAPTERS: tuple[Adapter, ...] = (MetricsParquet(),)
