"""What a table promises: its columns, its key, its checks, in words that every reader can hold it to.

A contract is data. `jobs.core.tables` turns it into a Spark schema and a Delta table, `jobs.core.quality`
turns its checks into a Great Expectations suite, `docs/tables.md` is generated from its prose, and readers
without Spark use the Arrow schema as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.string())
INTEGERS = pa.list_(pa.int32())
STRING_MAP = pa.map_(pa.string(), pa.string())


class Layer(StrEnum):
    """How far a table stands from what was read."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


class Severity(StrEnum):
    """What a broken check does: `critical` stops the stage (ingest sets the job aside instead), the others are reported."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Column:
    """One column: name (with its unit), Arrow type, meaning, and what its values must obey.

    `one_of`, `minimum`, `maximum` and `pattern` apply to values that are not null.
    """

    name: str
    type: pa.DataType
    doc: str
    nullable: bool = True
    one_of: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    severity: Severity = Severity.CRITICAL


@dataclass(frozen=True)
class Check:
    """A rule over a whole row: a SQL condition that must hold, e.g. `n_read = n_kept + n_quarantined`."""

    name: str
    condition: str
    severity: Severity = Severity.CRITICAL


@dataclass(frozen=True)
class Table:
    """One table: a row in words, its columns, its key, and the column by which it is replaced.

    `replaced_by` names the column whose values a re-run replaces (`job_id` for what belongs to one job);
    `None` says that the stage that writes the table rewrites it whole.
    """

    name: str
    layer: Layer
    row: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    replaced_by: str | None = None
    checks: tuple[Check, ...] = ()
    cluster_by: tuple[str, ...] = field(default=())

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, with nullability and each column's meaning as metadata."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable, metadata={"doc": c.doc}) for c in self.columns])

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]


def discrepancies(table: Table, actual: pa.Schema) -> list[str]:
    """Every way in which a schema departs from the contract, all at once; empty when it fits.

    >>> discrepancies(TABLE, pa.schema([]))  # doctest: +SKIP
    ["ranks: column rank is missing", …]
    """
    found = [f"{table.name}: column {c.name} is missing" for c in table.columns if c.name not in actual.names]
    found += [f"{table.name}: column {name} is not in the contract" for name in actual.names if name not in table.names]
    found += [
        f"{table.name}: column {c.name} is {actual.field(c.name).type}, the contract says {c.type}"
        for c in table.columns
        if c.name in actual.names and not _same_type(c.type, actual.field(c.name).type)
    ]
    return found


def _same_type(promised: pa.DataType, actual: pa.DataType) -> bool:
    """Arrow types that store the same values: nullability and names of inner fields do not count."""
    if pa.types.is_timestamp(promised) and pa.types.is_timestamp(actual):
        return True
    if pa.types.is_list(promised) and (pa.types.is_list(actual) or pa.types.is_large_list(actual)):
        return _same_type(promised.value_type, actual.value_type)
    if pa.types.is_map(promised) and pa.types.is_map(actual):
        return _same_type(promised.key_type, actual.key_type) and _same_type(promised.item_type, actual.item_type)
    if pa.types.is_struct(promised) and pa.types.is_struct(actual):
        names = [f.name for f in promised]
        return names == [f.name for f in actual] and all(
            _same_type(promised.field(name).type, actual.field(name).type) for name in names
        )
    if pa.types.is_large_string(actual):
        actual = pa.string()
    if pa.types.is_large_binary(actual):
        actual = pa.binary()
    return bool(promised == actual)
