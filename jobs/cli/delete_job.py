"""`fleetdiff delete-job JOB --lake LAKE`: forget a job, in every table."""

from __future__ import annotations

import json

import click


@click.command("delete-job", short_help="Delete a job from every table.")
@click.argument("job")
@click.option("--lake", required=True, help="Folder of the Delta tables.")
@click.option("--vacuum", "is_vacuumed", is_flag=True, help="Also remove the old files in which its rows were.")
@click.option("--no-refresh", is_flag=True, help="Leave the tables about the whole fleet to the next night.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(job: str, lake: str, is_vacuumed: bool, no_refresh: bool, as_json: bool) -> None:
    """Delete JOB from every table of the lake, counts included, and make the tables about the whole fleet anew.

    Take its folder out of the archive first: what lies there is read again by the next night. Its pages stay: remove
    jobs/JOB.html, .json and .md from the report's folder.
    """
    from jobs.core import java
    from jobs.core.lake import rows
    from jobs.core.unknown_job import unknown_job
    from jobs.templates.deletion import forget, vacuum

    if not rows(lake, "training_jobs", ["job_id"], [("job_id", "=", job)]).num_rows:
        raise unknown_job(lake, job)
    if not no_refresh:
        java.require()  # before anything is deleted
    deleted = forget(lake, job)
    if not no_refresh:
        refresh(lake)
    if is_vacuumed:
        vacuum(lake)
    if as_json:
        click.echo(json.dumps({"job_id": job, "deleted": deleted}))
        return
    for name, n in sorted(deleted.items()):
        click.echo(f"{n:>10,} {name}")


def refresh(lake: str) -> None:
    """Run the stages that write a table about the whole fleet."""
    from jobs.core import session
    from jobs.core.runner import Given, run_stages
    from jobs.core.stages import STAGES
    from jobs.core.tables import Lake
    from schemas import tables

    mine = ("templates", "ingest")
    fleet = [s for s in STAGES if s.name not in mine and any(n in tables() and not tables()[n].replaced_by for n in s.writes)]
    spark = session.start("fleetdiff-delete")
    try:
        run_stages(fleet, Lake(spark, lake), Given())
    finally:
        spark.stop()
