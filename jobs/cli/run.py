"""`fleetdiff run ARCHIVE --lake LAKE`: the whole night in one Spark session, without a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.cli.stages import parse_time, run_in_session
from jobs.core.errors import FleetdiffError
from jobs.core.stages import STAGES


@click.command(name="run")
@click.argument("archive", type=click.Path())
@click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables.")
@click.option("--report", type=click.Path(), help="Folder for the pages (default: LAKE/report).")
@click.option("--as-of", "as_of", help="Time that stands for now; default: the newest job's end.")
@click.option("--refresh", is_flag=True, help="Recompute every job, not only new and changed ones.")
def command(archive: str, lake: str, report: str | None, as_of: str | None, refresh: bool) -> None:
    """Run every stage in order on ARCHIVE; only what is new or changed is read."""
    if not Path(archive).is_dir():
        raise FleetdiffError(f"{archive}: no such folder; name the folder that holds the jobs")
    pages = report or f"{lake}/report"
    ran = run_in_session(list(STAGES), lake, archive=archive, report=pages, as_of=parse_time(as_of), refresh=refresh)
    from jobs.core.summary import closing_table

    click.echo(closing_table(lake, pages, {each.stage: each.seconds for each in ran}))
