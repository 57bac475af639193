"""Rows of one job while its files are read: redacted, typed, and moved to disk when they grow."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.base import Rows
from jobs.adapters.redaction import redact, redact_column
from schemas import tables
from schemas.contract import TIMESTAMP

SPILL_BYTES = 192 << 20
"""Rows of a job beyond this go to disk, so that memory stays bounded however large a job is."""

SMALL_ROWS = 8192
CLOSED_WORDS = frozenset(
    {"job_id", "time_source", "level", "phase", "stream", "role", "kind", "layer", "source", "severity", "is_first"}
)
"""Columns whose words this program chose: no secret can stand there."""

LINE_TEXTS = frozenset({"message", "values"})
FEW_VALUES = frozenset({"file", "node"})

WAITED = pa.field("waited_s", pa.float64())
EXTRA = {"log_records": (WAITED,)}
INTERNAL: dict[str, pa.Schema] = {
    "metric_samples": pa.schema([
        ("node", pa.string()), ("device", pa.string()), ("metric", pa.string()), ("unit", pa.string()), ("is_counter", pa.bool_()),
        ("at_us", pa.int64()), ("value", pa.float64()),
    ]),
    "config_entries": pa.schema([("key", pa.string()), ("value", pa.string())]),
    "job_marks": pa.schema([("key", pa.string()), ("value", pa.string())]),
    "placements": pa.schema([("rank", pa.int32()), ("node", pa.string()), ("local_rank", pa.int32())]),
    "rank_failures": pa.schema([
        ("rank", pa.int32()), ("local_rank", pa.int32()), ("node", pa.string()), ("exit_code", pa.int32()), ("pid", pa.int64()),
        ("at_us", pa.int64()), ("error", pa.string()), ("is_first", pa.bool_()),
    ]),
    "scheduler_records": pa.schema([("job_id", pa.string()), ("state", pa.string())]),
}  # fmt: skip
"""Rows that adapters give and that become part of other tables: they are never written as they are."""


def staging_schema(name: str) -> pa.Schema:
    """Columns that a table has while a job is read: its contract's, without the ingest's number, and helpers."""
    if name in INTERNAL:
        return INTERNAL[name]
    table = tables()[name]
    fields = [pa.field(c.name, c.type) for c in table.columns if c.name != "ingest_batch"]
    return pa.schema([*fields, *EXTRA.get(name, ())])


def to_batch(rows: Rows, constants: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows as one Arrow batch of the staging schema; `constants` fill columns that the rows lack.

    Raises pa.ArrowException when a value does not fit its column.
    """
    schema, n = staging_schema(rows.table), len(rows)
    arrays = []
    for field in schema:
        given = rows.columns.get(field.name)
        if given is None:
            value = constants.get(field.name)
            arrays.append(pa.nulls(n, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), n))
        elif isinstance(given, pa.Array | pa.ChunkedArray):
            arrays.append(given.combine_chunks().cast(field.type) if isinstance(given, pa.ChunkedArray) else given.cast(field.type))
        else:
            arrays.append(_array(given, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == TIMESTAMP:
        return pa.array([_us(v) for v in values] if any(not isinstance(v, int) for v in values) else values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _us(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    from jobs.adapters.stamps import to_us

    return to_us(value)


class JobTables:
    """Batches by table; those beyond `SPILL_BYTES` lie in temporary Arrow files until `close`."""

    def __init__(self, scratch: str | Path | None = None) -> None:
        self._batches: dict[str, list[pa.RecordBatch]] = {}
        self._size = 0
        self._scratch = scratch
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._spilled: dict[str, tuple[Path, pa.ipc.RecordBatchFileWriter]] = {}
        self._are_joined: set[str] = set()

    def add(self, batch: pa.RecordBatch, table: str, redactions: Counter[str], is_clean: bool = False) -> None:
        """Take a batch in, secrets removed; `is_clean`: the texts of its lines hold none."""
        arrays = [
            column
            if name in CLOSED_WORDS or (is_clean and name in LINE_TEXTS) or (name in FEW_VALUES and _are_harmless(column))
            else redact_column(column, redactions)
            for name, column in zip(batch.schema.names, batch.columns)
        ]
        clean = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        self._batches.setdefault(table, []).append(clean)
        self._are_joined.discard(table)
        self._size += clean.nbytes
        if self._size > SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rows-", dir=self._scratch)
        for table, batches in self._batches.items():
            if table not in self._spilled:
                path = Path(self._folder.name) / f"{table}.arrow"
                self._spilled[table] = (path, pa.ipc.new_file(str(path), staging_schema(table)))
            for batch in batches:
                self._spilled[table][1].write_batch(batch)
        self._batches, self._size = {}, 0

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """All rows of a table, those of small batches put together; call after the last `add`."""
        if table in self._spilled:
            yield from self._joined_batches(table)
            return
        if table not in self._are_joined:
            self._batches[table] = list(self._joined_batches(table))
            self._are_joined.add(table)
        yield from self._batches[table]

    def _joined_batches(self, table: str) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        n_held = 0
        for batch in self._as_they_came(table):
            if batch.num_rows >= SMALL_ROWS:
                yield batch
                continue
            held.append(batch)
            n_held += batch.num_rows
            if n_held >= SMALL_ROWS:
                yield _joined(held)
                held, n_held = [], 0
        if held:
            yield _joined(held)

    def _as_they_came(self, table: str) -> Iterator[pa.RecordBatch]:
        if table in self._spilled:
            path, writer = self._spilled[table]
            writer.close()
            with pa.ipc.open_file(pa.OSFile(str(path))) as reader:
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)
        yield from self._batches.get(table, ())

    def table(self, name: str) -> pa.Table:
        """A whole table: only for what is small."""
        return pa.Table.from_batches(list(self.batches(name)), staging_schema(name))

    def n_rows(self, name: str) -> int:
        """Rows of a table."""
        return sum(batch.num_rows for batch in self.batches(name))

    def close(self) -> None:
        """Remove the temporary files."""
        for _, writer in self._spilled.values():
            writer.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._batches, self._spilled, self._folder = {}, {}, None


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _are_harmless(texts: pa.Array) -> bool:
    """Whether the few distinct values of a column need no redaction."""
    values = pc.unique(texts)
    return len(values) <= 64 and all(text is None or redact(text) == text for text in values.to_pylist())


def message_key_column(messages: pa.Array) -> pa.Array:
    """64-bit keys of masked messages."""
    from ml.templates.masking import message_keys

    return pa.array(message_keys(pc.fill_null(messages, "")), pa.int64())
