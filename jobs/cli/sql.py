"""`fleetdiff sql`: ask the lake in SQL, with every table and the documented views at hand, through DuckDB."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

    from schemas.contract import Table


LISTING = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND NOT starts_with(view_name, 'delta_') ORDER BY view_name"


@click.command("sql")
@click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines and nothing else.")
@click.argument("query", required=False)
def command(lake: str, as_json: bool, query: str | None) -> None:
    """Answer QUERY, e.g. "SELECT symptom, count(*) FROM v_jobs GROUP BY symptom"; without one, list tables and views."""
    import duckdb

    from jobs.core.errors import UsageError

    session = connect(lake)
    try:
        answer = session.execute(query or LISTING)
        names, rows = [column[0] for column in answer.description], answer.fetchall()
    except duckdb.Error as error:
        raise UsageError(f"query: {str(error).splitlines()[0]}; `fleetdiff sql --lake {lake}` lists tables and views") from error
    click.echo(json_lines(names, rows) if as_json else text_table(names, rows), nl=bool(rows) or not as_json)


def connect(lake: str) -> duckdb.DuckDBPyConnection:
    """A DuckDB session in memory whose tables are the lake's, read only as far as a query needs, and the views over them.

    Raises FleetdiffError when `lake` is no lake.
    """
    import duckdb

    from jobs.core import lake as reader
    from schemas import tables

    session = duckdb.connect()
    for name, table in tables().items():
        session.register(f"delta_{name}", reader.open_table(lake, name).to_pyarrow_dataset())
        session.execute(f"CREATE TEMPORARY VIEW {name} AS SELECT {columns(table)} FROM delta_{name}")  # noqa: S608 - names of contracts
    for statement in views():
        session.execute(statement)
    return session


def columns(table: Table) -> str:
    """The columns of a table, times as plain time stamps in UTC: zones need an extension that DuckDB fetches from the network."""
    is_time = {c.name: pa.types.is_timestamp(c.type) for c in table.columns}
    return ", ".join(f'make_timestamp(epoch_us("{n}")) AS "{n}"' if timed else f'"{n}"' for n, timed in is_time.items())


def views() -> list[str]:
    """The statements that make the documented views."""
    text = files("jobs.reports").joinpath("views.sql").read_text("utf-8")
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


def json_lines(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    """A JSON object a row."""
    import json

    return "\n".join(json.dumps(dict(zip(names, row)), default=plain, ensure_ascii=False) for row in rows)


def plain(value: Any) -> str:
    """Times as text in UTC."""
    return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else str(value)


def text_table(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Columns in line, a head and a rule above: `|` between, as Markdown takes it."""
    from jobs.reports.words import clean

    cells = [[cell(value, clean) for value in row] for row in rows]
    wide = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
    lines = [" | ".join(name.ljust(w) for name, w in zip(names, wide)), "-|-".join("-" * w for w in wide)]
    lines += [" | ".join(text.ljust(w) for text, w in zip(row, wide)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def cell(value: Any, clean: Any) -> str:
    """One value as short text on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 100 else f"{value:,.1f}"
    return " ".join(clean(plain(value), 200).split())
