"""`fleetdiff reliability`: the fleet's reliability figures, read from the lake without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import pyarrow as pa

FULL, WIDE = 150, 190
"""Columns of text from which all of the table is shown, and the width where there is no terminal."""

COLUMNS = ("figure", "of", "basis", "value", "95 % interval", "events", "exposure", "source rows")


@click.command("reliability", short_help="Failure rates, MTTF, ETTR, lost work, unusual machines.")
@click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--figure", "wanted", multiple=True, help="Only these figures, e.g. mttf_h.")
def command(lake: str, as_json: bool, wanted: tuple[str, ...]) -> None:
    """Failure rates, time to failure, productive time, lost work, machines that stand out: with intervals and exposure."""
    from jobs.core import lake as reader
    from jobs.core.errors import NotFoundError

    figures = ordered(reader.rows(lake, "reliability_figures"), ("figure", "scope_kind", "scope", "basis"))
    if wanted:
        unknown = sorted(set(wanted) - {row["figure"] for row in figures})
        if unknown:
            raise NotFoundError(
                f"{lake}: no figure {', '.join(unknown)}; there are {', '.join(sorted({row['figure'] for row in figures}))}"
            )
        figures = [row for row in figures if row["figure"] in wanted]
    if not as_json:
        show(figures, lake)
        return
    told = {
        "figures": figures,
        "lemons": ordered(reader.rows(lake, "reliability_nodes", filters=[("is_lemon", "=", True)]), ("node",)),
        "lineages": ordered(reader.rows(lake, "reliability_lineages"), ("lineage_id",)),
        "attributions": ordered(reader.rows(lake, "reliability_attributions"), ("job_id", "is_primary", "occurred_at", "node")),
    }
    click.echo(json.dumps(told, default=_plain, ensure_ascii=False))


def ordered(rows: pa.Table, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows as dictionaries in a fixed order; maps become objects."""
    from jobs.core.query import listed

    found = [{k: dict(v) if k == "features" and v is not None else v for k, v in row.items()} for row in listed(rows)]
    return sorted(found, key=lambda row: [_in_order(str(row[key])) for key in keys])


def _in_order(text: str) -> str:
    """Text by which whole numbers come in the order of their size."""
    return text.zfill(12) if text.isdigit() else text


def _plain(value: Any) -> str:
    return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else str(value)


def show(figures: list[dict[str, Any]], lake: str) -> None:
    """Print the figures as a table; small numbers say so."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    if not figures:
        console.print(f"No figures yet: `fleetdiff run ARCHIVE --lake {lake}` computes them.", markup=False)
        return
    from jobs.reports.words import clean

    table = Table(box=None, header_style="bold", pad_edge=False)
    shown = COLUMNS if console.width >= FULL else COLUMNS[:6]
    for heading in shown:
        is_number = heading in ("value", "95 % interval", "events", "exposure", "source rows")
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    before = None
    for row in figures:
        label = Text("" if row["figure"] == before else row["figure"], style="bold")
        before = row["figure"]
        value = Text(
            f"{figure(row['value'])} {row['unit']}{' *' if row['is_small'] else '  '}", style="yellow" if row["is_small"] else ""
        )
        scope = "the fleet" if row["scope_kind"] == "fleet" else f"{row['scope_kind'].replace('_', ' ')} {row['scope']}"
        cells = [label, Text(clean(scope, 80)), Text(row["basis"]), value, Text(interval(row)), Text(f"{row['n_events']:,}")]
        cells += [
            Text(f"{figure(row['exposure'])} {row['exposure_unit'] or ''}"),
            Text(f"{row['n_source_rows']:,} {row['source_table']}"),
        ]
        table.add_row(*cells[: len(shown)])
    console.print(table)
    if len(shown) < len(COLUMNS):
        console.print("A wider terminal also shows exposure and source rows; --json shows everything.")
    if any(row["is_small"] for row in figures):
        console.print(Text("* stands on fewer than ten events: read the interval.", style="yellow"))


def figure(value: float | None) -> str:
    """About four significant digits, with thousands separators."""
    if value is None:
        return "–"
    if float(value).is_integer():
        return f"{value:,.0f}"
    digits = 2 if abs(value) >= 10 else 4
    return f"{value:,.{digits}f}" if abs(value) >= 1e-3 else f"{value:.3g}"


def interval(row: dict[str, Any]) -> str:
    """`0.004 to 0.009`, open above where nothing bounds it."""
    if row["low"] is None and row["high"] is None:
        return "–"
    return f"{figure(row['low'])} to {'∞' if row['high'] is None else figure(row['high'])}"
