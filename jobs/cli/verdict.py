"""`fleetdiff verdict`: leave what a person found out about a failure, for the next one who sees it."""

from __future__ import annotations

import click

MAX_TEXT = 4000


@click.command("verdict", short_help="Write down what a failure was, for later look-ups.")
@click.argument("job")
@click.option("--lake", "root", required=True, help="Folder of the Delta tables.")
@click.option("--cause", required=True, help="What it was.")
@click.option("--note", help="Anything else worth knowing.")
@click.option("--author", envvar="USER", help="Who says so (default: the user).")
@click.option("--guess", is_flag=True, help="Not confirmed: shown, but it does not outrank.")
@click.option("--at", "at", help="When it was found out (ISO 8601, UTC); default: now.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(
    job: str, root: str, cause: str, note: str | None, author: str | None, guess: bool, at: str | None, as_json: bool
) -> None:
    """Write a verdict on JOB: look-ups of failures like it show it first. The newest verdict of a job counts."""
    from datetime import UTC, datetime

    from jobs.core.errors import UsageError
    from jobs.similarity import lookup

    if not cause.strip():
        raise UsageError("verdict: --cause is empty; say what it was in a few words")
    try:
        moment = datetime.fromisoformat(at) if at else datetime.now(UTC)
    except ValueError:
        raise UsageError(f"verdict: --at {at}: not an ISO 8601 time") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    row = {
        "job_id": job, "cause": cause.strip()[:MAX_TEXT], "note": note[:MAX_TEXT] if note else None,
        "is_verified": not guess, "author": author, "written_at": moment,
    }  # fmt: skip
    lookup.write_verdict(root, row)
    if as_json:
        import orjson

        click.echo(orjson.dumps({**row, "written_at": moment.isoformat().replace("+00:00", "Z")}).decode())
    else:
        click.echo(f"{job}: {'guess' if guess else 'verified cause'} written: {cause.strip()[:200]}", err=True)
