"""The lake without Spark: where each table lies, its rows as Arrow, its version, and how empty tables are made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.core.errors import FleetdiffError
from jobs.core.query import Filters, aggregate, ask, literal, select
from schemas import tables

UNREADABLE = re.compile(r"[\[\]]|%[0-9A-Fa-f]{2}")
"""What delta-rs takes for part of a URL."""


def table_path(lake: str | Path, name: str) -> str:
    """Where a table lies; raises KeyError for a table without a contract."""
    return f"{lake}/{tables()[name].layer}/{name}"


def open_table(lake: str | Path, name: str) -> DeltaTable:
    """A table of the lake; raises FleetdiffError with the path and the mend when there is none."""
    check_name(lake)
    path = table_path(lake, name)
    if not Path(path).is_dir() or not DeltaTable.is_deltatable(path):
        raise FleetdiffError(f"{path}: no such table; is {lake} a lake? `fleetdiff run ARCHIVE --lake {lake}` makes one")
    return DeltaTable(path)


def check_name(lake: str | Path) -> None:
    """Raise FleetdiffError when the reader of Delta tables would break on the folder's name."""
    wrong = UNREADABLE.search(str(lake))
    if wrong:
        raise FleetdiffError(
            f"{lake}: a lake's path cannot hold {wrong.group()!r}: Delta tables there cannot be opened; rename the folder"
        )


def rows(lake: str | Path, name: str, columns: Sequence[str] | None = None, filters: Filters | None = None) -> pa.Table:
    """Rows of a table that satisfy every filter, e.g. `[("job_id", "=", "job-1")]`, as Arrow."""
    return select(open_table(lake, name), arrow_schema(name), columns, filters)


def aggregates(
    lake: str | Path, name: str, by: Sequence[str], values: Mapping[str, str], filters: Filters | None = None
) -> pa.Table:
    """One row a group, summed up where the rows are read: `aggregates(lake, "job_templates", ["job_id"], {"n_events": "sum"})`."""
    return aggregate(open_table(lake, name), arrow_schema(name), by, values, filters)


def answer(lake: str | Path, name: str, query: str) -> pa.Table:
    """What a query in DataFusion's SQL finds in a table of the lake, there called `lookup`."""
    return ask(open_table(lake, name), query)


def write_rows(lake: str | Path, name: str, rows: pa.Table, jobs: Sequence[str] | None = None) -> None:
    """Replace the rows of these jobs, or without `jobs` all rows of the table, in one transaction."""
    replaced = tables()[name].replaced_by if jobs is not None else None
    condition = f"{replaced} IN ({', '.join(map(literal, jobs))})" if replaced and jobs else None
    mode: Literal["append", "overwrite"] = "append" if replaced and not jobs else "overwrite"
    write_deltalake(table_path(lake, name), rows.cast(arrow_schema(name)), mode=mode, predicate=condition)


def version(lake: str | Path, name: str) -> int:
    """The table's current Delta version."""
    return int(open_table(lake, name).version())


def arrow_schema(name: str) -> pa.Schema:
    """The contract as an Arrow schema, nullable throughout: nullability is checked with the other rules."""
    return pa.schema([pa.field(c.name, c.type) for c in tables()[name].columns])


def create_missing(lake: str | Path) -> None:
    """Create every table that the lake lacks, empty: two writers never race to create one."""
    check_name(lake)
    for name in tables():
        path = table_path(lake, name)
        if not DeltaTable.is_deltatable(path):
            Path(path).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(path, arrow_schema(name), mode="ignore")
