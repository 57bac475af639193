"""Rows that workers staged as Parquet become part of a Delta table as they lie: judged by their rules, moved, committed.

A worker counts, for each file it staged, the rows that break each rule of the contract. A job lies in one file, and
every key of these tables begins with the job, so that the sums over the files are what one pass over all rows would
count. Nothing is written a second time.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from jobs.core import lake as plain_lake
from jobs.core.errors import ContractError
from jobs.core.rules import Rule, rules_of
from schemas import tables
from schemas.contract import discrepancies

MEMORY = "512MB"


@contextmanager
def counter(scratch: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """What counts a task's files, one after the other, in bounded memory."""
    settings = {"memory_limit": MEMORY, "threads": 1, "preserve_insertion_order": False, "temp_directory": scratch}
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


@dataclass(frozen=True)
class Counted:
    """Rows of a staged file, those that break each rule of the table's contract, and the first and last of its jobs."""

    n_rows: int
    broken: tuple[int, ...]
    jobs: tuple[str, str]


def count_broken(connection: duckdb.DuckDBPyConnection, file: Path, name: str) -> Counted:
    """Count a staged file's rows."""
    table = tables()[name]
    wanted = ["min(job_id)", "max(job_id)", "count(*)", *(breaks(rule, table.key) for rule in rules_of(table))]
    query = f"SELECT {', '.join(wanted)} FROM read_parquet(?)"  # noqa: S608 - the contract's own rules and names
    first, last, n_rows, *broken = connection.execute(query, [str(file)]).fetchone() or ("", "", 0)
    return Counted(n_rows, tuple(broken), (first, last))


def breaks(rule: Rule, key: tuple[str, ...]) -> str:
    """Rows that break a rule, as DuckDB counts them; the rule without a condition is that of the key."""
    if rule.broken:
        return f"count(*) FILTER (WHERE {rule.broken.replace('`', chr(34))})"
    columns = ", ".join(f'"{column}"' for column in key)
    return f"count(*) - count(DISTINCT hash({columns}))"


def note_counts(counted: Counted, final: Path) -> None:
    """Put a file's counts beside the place that it is going to have."""
    _counts_of(final).write_text(json.dumps({"counts": [counted.n_rows, *counted.broken], "jobs": counted.jobs}))


def _counts_of(file: Path) -> Path:
    """Spark passes over files whose names begin with an underscore."""
    return file.with_name(f"_{file.stem}.json")


def holds_any(lake: str, name: str, jobs: Sequence[str]) -> bool:
    """Whether a table has rows of any of these jobs: such rows must be replaced, not added to."""
    return plain_lake.rows(lake, name, columns=["job_id"], filters=[("job_id", "in", list(jobs))]).num_rows > 0


def adopt(lake: str, name: str, staged: Path) -> None:
    """Add all staged files of a table in one transaction.

    Raises ContractError when a file does not fit the contract, CheckError when a critical rule is broken.
    """
    from jobs.core.quality import judge, judged

    table = tables()[name]
    files = sorted(staged.glob("*.parquet"))
    wrong = [problem for file in files for problem in discrepancies(table, pq.read_schema(file))]
    if wrong:
        raise ContractError("; ".join(sorted(set(wrong))))
    rules = rules_of(table)
    notes = [json.loads(_counts_of(file).read_text()) for file in files]
    counts = [sum(values) for values in zip(*(note["counts"] for note in notes), strict=True)]
    judged(lake, name, judge(name, rules, counts or [0] * (len(rules) + 1)))
    folder = Path(plain_lake.table_path(lake, name))
    actions = [_moved(file, folder, note) for file, note in zip(files, notes, strict=True)]
    if actions:
        DeltaTable(str(folder)).create_write_transaction(actions, "append", plain_lake.arrow_schema(name))


def _moved(file: Path, folder: Path, note: dict[str, Any]) -> AddAction:
    """Move a staged file into its table; what the table's log says of it. Until the commit nothing reads it there."""
    place = folder / f"part-{file.stem}-{uuid.uuid4()}.parquet"
    size = file.stat().st_size
    os.replace(file, place)
    first, last = note["jobs"]
    stats = {
        "numRecords": note["counts"][0], "minValues": {"job_id": first}, "maxValues": {"job_id": last}, "nullCount": {"job_id": 0},
    }  # fmt: skip
    return AddAction(place.name, size, {}, round(time.time() * 1000), True, json.dumps(stats))
