"""`fleetdiff summary --lake LAKE`: what the last night found, in ten lines."""

from __future__ import annotations

import click

from jobs.core.summary import closing_table


@click.command(name="summary", short_help="Jobs with a symptom, and where the pages lie.")
@click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables.")
@click.option("--report", type=click.Path(), help="Folder of the pages (default: LAKE/report).")
def command(lake: str, report: str | None) -> None:
    """Print what the lake holds, the jobs with a symptom, and where the report lies."""
    click.echo(closing_table(lake, report or f"{lake}/report", {}))
