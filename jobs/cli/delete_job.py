"""`fleetdiff delete-job JOB --lake LAKE`: forget a job, in every table and page."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("delete-job", short_help="Delete a job from every table, and its pages.")
@click.argument("job")
@click.option("--lake", required=True, help="Folder of the Delta tables.")
@click.option("--report", help="Folder of the pages (default: LAKE/report).")
@click.option("--settings", envvar="FLEETDIFF_SETTINGS", type=click.Path(), help="A site's settings, YAML.")
@click.option("--vacuum", "is_vacuumed", is_flag=True, help="Also remove the old files in which its rows were.")
@click.option("--no-refresh", is_flag=True, help="Leave the tables about the whole fleet to the next night.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(
    job: str, lake: str, report: str | None, settings: str | None, is_vacuumed: bool, no_refresh: bool, as_json: bool
) -> None:
    """Delete JOB from every table of the lake, counts included, with its pages, and make what is about the whole fleet anew.

    Take its folder out of the archive first: what lies there is read again by the next night.
    """
    from jobs.cli.stages import read_settings
    from jobs.core import java
    from jobs.core.unknown_job import require_job
    from jobs.templates.deletion import forget, vacuum

    site = read_settings(settings)
    require_job(lake, job)
    if not no_refresh:
        java.require()  # before anything is deleted
    deleted = forget(lake, job)
    n_pages = forget_pages(report or f"{lake}/report", job)
    if not no_refresh:
        refresh(lake, report, site)
    if is_vacuumed:
        vacuum(lake)
    if as_json:
        click.echo(json.dumps({"job_id": job, "deleted": deleted, "pages": n_pages}))
        return
    for name, n in sorted(deleted.items()):
        click.echo(f"{n:>10,} {name}")
    click.echo(f"{n_pages:>10,} pages")


def forget_pages(report: str, job: str) -> int:
    """Remove a job's page and its twins from a report's folder; returns how many there were."""
    from jobs.reports import folder
    from jobs.reports.page import file_name

    return folder.remove(folder.resolved(report), [f"jobs/{file_name(job)}.{kind}" for kind in ("html", "json", "md")])


def refresh(lake: str, report: str | None, settings: dict[str, Any]) -> None:
    """Run the stages that write a table about the whole fleet, and the pages about it where there are any."""
    from pathlib import Path

    from jobs.core import session
    from jobs.core.runner import Given, run_stages
    from jobs.core.stages import STAGES, stage
    from jobs.core.tables import Lake
    from schemas import tables

    mine = ("templates", "ingest")
    fleet = [s for s in STAGES if s.name not in mine and any(n in tables() and not tables()[n].replaced_by for n in s.writes)]
    pages = report or (f"{lake}/report" if Path(lake, "report").is_dir() else None)
    if pages:
        fleet.append(stage("reports"))
    spark = session.start("fleetdiff-delete")
    try:
        run_stages(fleet, Lake(spark, lake), Given(report=pages, settings=settings))
    finally:
        spark.stop()
