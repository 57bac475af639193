"""`fleetdiff run ARCHIVE --lake LAKE`: the whole night in one Spark session, without a scheduler."""

from __future__ import annotations

from typing import Any

import click

from jobs.cli.stages import run_in_session, run_options
from jobs.core.stages import STAGES


@click.command(name="run", short_help="Every stage on an archive: the night, no scheduler.")
@click.argument("archive", type=click.Path())
@run_options
def command(archive: str, **options: Any) -> None:
    """Run every stage in order on ARCHIVE; only what is new or changed is read."""
    ran = run_in_session(STAGES, archive=archive, **options)
    from jobs.core.summary import closing_table

    report = options["report"] or f"{options['lake']}/report"
    click.echo(closing_table(options["lake"], report, {each.stage: each.seconds for each in ran}))
