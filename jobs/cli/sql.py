"""`fleetdiff sql`: ask the lake in SQL, with every table and the documented views at hand, through DuckDB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

    from schemas.contract import Table


_VIEW = re.compile(r"CREATE OR REPLACE TEMPORARY VIEW (\w+)")


@click.command("sql", short_help="Ask the lake in SQL; lists tables without a query.")
@click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines and nothing else.")
@click.argument("query", required=False)
def command(lake: str, as_json: bool, query: str | None) -> None:
    """Answer QUERY, e.g. "SELECT symptom, count(*) FROM v_jobs GROUP BY symptom"; without one, list tables and views."""
    import duckdb

    from jobs.core.errors import UsageError
    from jobs.core.lake import open_table
    from schemas import tables

    if not query:
        open_table(lake, "training_jobs")  # says so when there is no lake
        rows: list[tuple[Any, ...]] = [*listing(tables())]
        click.echo(json_lines(["name", "row"], rows) if as_json else text_table(["name", "row"], rows))
        return
    session = connect(lake, query)
    try:
        answer = session.execute(query)
        names, rows = [column[0] for column in answer.description or ()], answer.fetchall()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"query: {first}; `fleetdiff sql --lake {lake}` lists tables and views") from error
    click.echo(json_lines(names, rows) if as_json else text_table(names, rows), nl=bool(rows) or not as_json)


def connect(lake: str, query: str | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB session in memory with the tables that the query names (all without one), and the views over them.

    Rows are read only as far as a query needs them. Raises FleetdiffError when `lake` is no lake, or one of another version.
    """
    import duckdb

    from jobs.core import lake as reader
    from jobs.core.errors import FleetdiffError
    from schemas import tables

    session = duckdb.connect()
    made = views()
    wanted = needed(query, made) if query else {*tables(), *made}
    for name in sorted(set(tables()) & wanted):
        rows = reader.open_table(lake, name).to_pyarrow_dataset()
        session.register(f"delta_{name}", rows)
        session.execute(f"CREATE TEMPORARY VIEW {name} AS SELECT {columns(rows.schema)} FROM delta_{name}")  # noqa: S608 - names of contracts
    for name, statement in made.items():
        if name not in wanted:
            continue
        try:
            session.execute(statement)
        except duckdb.Error as error:
            raise FleetdiffError(f"{lake}: made by another version ({name} does not fit); run the stages again") from error
    return session


def needed(query: str, made: dict[str, str]) -> set[str]:
    """Tables and views that a query names, and what these views stand on."""
    words = set(re.findall(r"\w+", query.lower()))
    while True:
        more = {word for name in words & set(made) for word in re.findall(r"\w+", made[name])} - words
        if not more:
            return words
        words |= more


def columns(shape: pa.Schema) -> str:
    """The columns of a table, times as plain time stamps in UTC: zones need an extension that DuckDB fetches from the network."""
    is_time = {name: pa.types.is_timestamp(kind) for name, kind in zip(shape.names, shape.types)}
    return ", ".join(f'make_timestamp(epoch_us("{n}")) AS "{n}"' if timed else f'"{n}"' for n, timed in is_time.items())


def views() -> dict[str, str]:
    """The documented views by name, each as the statement that makes it, in an order in which they can be made."""
    text = files("jobs.reports").joinpath("views.sql").read_text("utf-8")
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    statements = [statement.strip() for statement in bare.split(";") if statement.strip()]
    return {found[1]: statement for statement in statements if (found := _VIEW.match(statement))}


def listing(contracts: Mapping[str, Table]) -> list[tuple[str, str]]:
    """Views and tables by name, with what a row is."""
    text = files("jobs.reports").joinpath("views.sql").read_text("utf-8")
    told = re.findall(r"-- one row (.*)\n(?:--.*\n)*CREATE OR REPLACE TEMPORARY VIEW (\w+)", text)
    return [(name, said) for said, name in told] + [(name, table.row) for name, table in contracts.items()]


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
