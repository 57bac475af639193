"""`fleetdiff STAGE …` and `fleetdiff stages STAGE… …`: stages in one Spark session, as Airflow runs them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from jobs.core.errors import UsageError
from jobs.core.stages import STAGES, Stage, stage


def parse_time(text: str | None) -> datetime | None:
    """An ISO-8601 time in UTC (a bare date is its midnight); raises UsageError when it is none."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--as-of {text}: not an ISO-8601 time, e.g. 2026-05-17T02:00:00Z") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def run_in_session(stages: list[Stage], lake: str, **given: Any) -> list[Any]:
    """Run stages in order in one Spark session; the session ends with them."""
    from jobs.core import session
    from jobs.core.runner import run_stages
    from jobs.core.tables import Lake

    Path(lake).mkdir(parents=True, exist_ok=True)
    spark = session.start()
    try:
        return run_stages(stages, Lake(spark, str(Path(lake).resolve())), **given)
    finally:
        spark.stop()


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that every stage takes."""
    for option in (
        click.option("--refresh", is_flag=True, help="Recompute every job, not only new and changed ones."),
        click.option("--as-of", "as_of", help="Time that stands for now; default: the newest job's end."),
        click.option("--report", type=click.Path(), help="Folder for the pages (default: LAKE/report)."),
        click.option("--archive", type=click.Path(), help="Folder of the finished jobs; `ingest` needs it."),
        click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables."),
    ):
        function = option(function)
    return function


def _run(chosen: list[Stage], lake: str, archive: str | None, report: str | None, as_of: str | None, refresh: bool) -> None:
    missing = [each.name for each in chosen if each.needs_archive and archive is None]
    if missing:
        raise UsageError(f"{', '.join(missing)}: give the folder of the finished jobs with --archive")
    run_in_session(chosen, lake, archive=archive, report=report or f"{lake}/report", as_of=parse_time(as_of), refresh=refresh)


def stage_command(name: str) -> click.Command:
    """The command of one stage."""
    declared = stage(name)

    @click.command(name=name.replace("_", "-"), help=f"Stage: {declared.summary}.")
    @_options
    def one(lake: str, archive: str | None, report: str | None, as_of: str | None, refresh: bool) -> None:
        _run([declared], lake, archive, report, as_of, refresh)

    return one


@click.command(name="stages")
@click.argument("names", nargs=-1, required=True, type=click.Choice([each.name for each in STAGES]))
@_options
def command(names: tuple[str, ...], lake: str, archive: str | None, report: str | None, as_of: str | None, refresh: bool) -> None:
    """Run several stages in one Spark session: what one task of the DAG does."""
    _run([stage(name) for name in names], lake, archive, report, as_of, refresh)
