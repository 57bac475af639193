"""Rows of a Delta table with columns and filters pushed down, without pandas and without threads that outlive the read.

delta-rs prunes files by their statistics, DataFusion prunes row groups; what comes back is Arrow. `pyarrow.dataset`
would do the same, but importing it loads pandas, which alone takes a look-up's whole second, and its threads call
back into Python while the process ends.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

Filters = Sequence[tuple[str, str, Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGGREGATES = {"sum": "sum", "max": "max", "min": "min"}
_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">=", "in", "not in"})


def select(table: DeltaTable, schema: pa.Schema, columns: Sequence[str] | None, filters: Filters | None) -> pa.Table:
    """Rows that satisfy every filter, as columns of `schema` (all of them without `columns`).

    Raises KeyError for a column that the schema lacks, ValueError for an unknown operator.
    """
    names = list(columns) if columns else list(schema.names)
    listed = ", ".join(_name(name) for name in names)
    return _asked(table, schema, f"SELECT {listed} FROM lookup{_where(schema, filters)}", names)  # noqa: S608 - contract's names


def aggregate(
    table: DeltaTable, schema: pa.Schema, by: Sequence[str], values: Mapping[str, str], filters: Filters | None
) -> pa.Table:
    """One row a group of `by`, e.g. with `values` `{"n_events": "sum", "last_iteration": "max"}`, under the columns' own names.

    Raises KeyError for a column that the schema lacks or another aggregate, ValueError for an unknown operator.
    """
    keys = ", ".join(_name(name) for name in by)
    made = [f"{_AGGREGATES[how]}({_name(name)}) AS {_name(name)}" for name, how in values.items()]
    query = f"SELECT {', '.join([keys, *made])} FROM lookup{_where(schema, filters)} GROUP BY {keys}"  # noqa: S608 - contract's names
    return _asked(table, schema, query, [*by, *values])


def _where(schema: pa.Schema, filters: Filters | None) -> str:
    conditions = [_condition(schema, column, operator, value) for column, operator, value in filters or ()]
    return " WHERE " + " AND ".join(conditions) if conditions else ""


def ask(table: DeltaTable, query: str) -> pa.Table:
    """What a query in DataFusion's SQL finds; the table is called `lookup`."""
    rows = _answer(table, query)
    return _as(rows, pa.schema([pa.field(field.name, _plain(field.type)) for field in rows.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Texts instead of views, which little can read yet."""
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return pa.string() if pa.types.is_string_view(kind) else kind


def _asked(table: DeltaTable, schema: pa.Schema, query: str, names: Sequence[str]) -> pa.Table:
    wanted = pa.schema([schema.field(name) for name in names])
    return _as(_answer(table, query), wanted)


def _answer(table: DeltaTable, query: str) -> pa.Table:
    stream = QueryBuilder().register("lookup", table).execute(query)
    return pa.RecordBatchReader._import_from_c_capsule(stream.__arrow_c_stream__()).read_all()


def listed(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as dictionaries, times as `datetime` in UTC; `to_pylist` would import pandas for a single time stamp."""
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    columns = {name: [_moment(value) for value in rows[name].cast(pa.int64()).to_pylist()] for name in times}
    rest = rows.drop_columns(times).to_pylist() if len(times) < rows.num_columns else [{} for _ in range(rows.num_rows)]
    return [{**row, **{name: columns[name][place] for name in times}} for place, row in enumerate(rest)]


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows with the contract's types: views become strings, times get their zone."""
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _condition(schema: pa.Schema, column: str, operator: str, value: Any) -> str:
    if operator not in _OPERATORS:
        raise ValueError(f"{operator}: not one of {', '.join(sorted(_OPERATORS))}")
    schema.field(column)
    if operator in ("in", "not in"):
        listed = ", ".join(literal(each) for each in value)
        empty = "FALSE" if operator == "in" else "TRUE"
        return f"{_name(column)} {operator.upper()} ({listed})" if listed else empty
    return f"{_name(column)} {operator} {literal(value)}"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A value as SQL; texts with their quotes doubled, so that no text can end early."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC).isoformat()}'"
    return "'" + str(value).replace("'", "''") + "'"


class _NoPandas:
    """A finder that has no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave all else to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError("a look-up does without pandas", name=name)


def without_pandas() -> None:
    """Let this process do without pandas: pyarrow imports it for its first scalar, which takes a look-up's whole second.

    For processes that only look something up: afterwards `import pandas` fails. Nothing happens when it is loaded already.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
