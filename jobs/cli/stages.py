"""`fleetdiff STAGE …` and `fleetdiff stages STAGE… …`: stages in one Spark session, as Airflow runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.core.errors import FleetdiffError, NotFoundError, UsageError
from jobs.core.stages import STAGES, Stage, stage

if TYPE_CHECKING:
    from jobs.core.runner import Ran


def parse_time(text: str | None) -> datetime | None:
    """An ISO-8601 time in UTC (a bare date is its midnight); raises UsageError when it is none."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--as-of {text}: not an ISO-8601 time, e.g. 2026-05-17T02:00:00Z") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def read_settings(path: str | None) -> dict[str, Any]:
    """A site's settings (docs/settings.md); none without a file. Raises FleetdiffError with file and reason."""
    if path is None:
        return {}
    import yaml

    from jobs.core.settings import checked

    try:
        settings = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FleetdiffError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    if settings is not None and not isinstance(settings, dict):
        raise FleetdiffError(f"{path}: must hold a mapping of settings, see docs/settings.md")
    return checked(settings or {}, path)


def run_in_session(
    stages: Sequence[Stage],
    lake: str,
    archive: str | None,
    report: str | None,
    as_of: str | None,
    refresh: bool,
    settings: str | None,
) -> list[Ran]:
    """Run stages in order in one Spark session, which ends with them.

    Raises UsageError when a stage lacks its archive, NotFoundError or FleetdiffError when archive or lake are not there.
    """
    from jobs.core import java
    from jobs.core.lake import open_table

    missing = [each.name for each in stages if each.needs_archive and archive is None]
    if missing:
        raise UsageError(f"{', '.join(missing)}: give the folder of the finished jobs with --archive")
    if archive is not None and any(each.needs_archive for each in stages) and not Path(archive).is_dir():
        raise NotFoundError(f"{archive}: no such folder; name the folder that holds the jobs")
    if not any(each.needs_archive for each in stages):
        open_table(lake, "training_jobs")  # a mistyped lake is an error, not a new and empty one
    at, site = parse_time(as_of), read_settings(settings)
    java.require()

    from jobs.core import session
    from jobs.core.runner import Given, run_stages
    from jobs.core.tables import Lake

    Path(lake).mkdir(parents=True, exist_ok=True)
    spark = session.start()
    try:
        given = Given(archive, report or f"{lake}/report", at, refresh, site)
        return run_stages(stages, Lake(spark, str(Path(lake).resolve())), given)
    finally:
        spark.stop()


def run_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that every run takes, whether of one stage or of all."""
    for option in (
        click.option("--settings", envvar="FLEETDIFF_SETTINGS", type=click.Path(), help="A site's settings, YAML."),
        click.option("--refresh", is_flag=True, help="Recompute every job, not only new and changed ones."),
        click.option("--as-of", "as_of", help="Time that stands for now; default: the newest job's end."),
        click.option("--report", type=click.Path(), help="Folder for the pages (default: LAKE/report)."),
        click.option("--lake", required=True, type=click.Path(), help="Folder of the Delta tables."),
    ):
        function = option(function)
    return function


ARCHIVE_OPTION = click.option("--archive", type=click.Path(), help="Folder of the finished jobs; `ingest` needs it.")


def stage_command(name: str) -> click.Command:
    """The command of one stage."""
    declared = stage(name)

    @click.command(name=name.replace("_", "-"), help=f"Stage: {declared.summary}.")
    @ARCHIVE_OPTION
    @run_options
    def one(**options: Any) -> None:
        run_in_session([declared], **options)

    return one


def _known_stages(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of stages, written with `_` or with `-`; raises UsageError when one is none."""
    known = [each.name for each in STAGES]
    asked = tuple(name.replace("-", "_") for name in names)
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise UsageError(f"{', '.join(unknown)}: no such stage; there are {', '.join(known)}")
    return asked


@click.command(name="stages", short_help="Several stages in one Spark session, as the DAG does.")
@click.argument("names", metavar="STAGE...", nargs=-1, required=True, callback=_known_stages)
@ARCHIVE_OPTION
@run_options
def command(names: tuple[str, ...], **options: Any) -> None:
    """Run several stages in one Spark session: what one task of the DAG does.

    `fleetdiff plan` lists the stages, and what each of them reads and writes.
    """
    run_in_session([stage(name) for name in names], **options)
