"""`fleetdiff similar`: past failures that failed alike, with what they share."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from jobs.similarity.lookup import LookAlike, Similar

KIND_NAMES = {"alert": "alert", "event": "node event", "cause": "cause class", "spatial": "spatial signal"}


@click.command("similar", short_help="Past failures that look like a job's.")
@click.argument("job")
@click.option("--lake", "root", required=True, help="Folder of the Delta tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(job: str, root: str, as_json: bool) -> None:
    """Past failed jobs that failed like JOB: what they share, how often, where, when, and what people found out."""
    from jobs.similarity import lookup

    found = lookup.of_job(root, job)
    if as_json:
        import orjson

        click.echo(orjson.dumps(document(job, found), option=orjson.OPT_INDENT_2).decode())
    else:
        _print_text(job, found)


def document(job: str, found: Similar) -> dict[str, Any]:
    """The look-up as JSON."""
    seen = found.seen
    return {
        "job_id": job,
        "similar": [_entry(each) for each in found.alike],
        "seen": None if seen is None else {**vars(seen), "first_at": _time(seen.first_at), "last_at": _time(seen.last_at)},
        "family": _plain(found.family),
        "verdict": _plain(found.verdict),
        "refused": found.refused,
    }


def _entry(each: LookAlike) -> dict[str, Any]:
    known = each.details
    return {
        "job_id": each.job_id,
        "score": each.score,
        "shared": each.shared,
        "verdict": _plain(each.verdict),
        "symptom": known["symptom"],
        "state": known["state"],
        "ended_at": _time(known["ended_at"]),
        "nodes": known["nodes"],
        "versions": known["versions"],
    }


def _print_text(job: str, found: Similar) -> None:
    click.echo(f"Failures like {job}")
    if found.verdict:
        click.echo(f"  its own verdict: {_verdict(found.verdict)}")
    if found.refused:
        click.echo(f"  none: {found.refused}")
    if found.seen:
        seen = found.seen
        where = f", on {_some(seen.nodes)}" if seen.nodes else ""
        when = f", from {_time(seen.first_at)} to {_time(seen.last_at)}" if seen.first_at else ""
        click.echo(f"  seen in {_counted(seen.n_jobs, 'other job')} of {_counted(seen.n_lineages, 'task')}{where}{when}")
        if seen.versions:
            click.echo(f"  versions: {_some(seen.versions)}")
    if found.family:
        new = ", new since last night" if found.family["is_new"] else ""
        click.echo(f"  family {found.family['family_id']}: {found.family['label']}, {_counted(found.family['n_jobs'], 'job')}{new}")
    for place, each in enumerate(found.alike, 1):
        ended = _time(each.details["ended_at"]) or "unknown"
        click.echo(f"{place}. {each.job_id}  score {each.score:.2f}  {each.details['symptom']}  ended {ended}")
        if each.verdict:
            click.echo(f"   {_verdict(each.verdict)}")
        for kind, values in each.shared.items():
            click.echo(f"   both: {KIND_NAMES.get(kind, kind)} {_some(values, 3)}")


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _verdict(verdict: dict[str, Any]) -> str:
    how = "verified" if verdict["is_verified"] else "unverified"
    note = f" ({_line(verdict['note'])})" if verdict["note"] else ""
    return f"{how} cause: {_line(verdict['cause'])}{note}"


def _some(values: list[str], n: int = 5) -> str:
    shown = ", ".join(_line(value) for value in values[:n])
    return shown if len(values) <= n else f"{shown} and {len(values) - n} more"


def _line(text: str) -> str:
    """Text for a terminal: one line, bounded, without control characters."""
    flat = "".join(character if character.isprintable() else " " for character in text[:400])
    return flat if len(flat) <= 120 else flat[:119] + "…"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A row with its times as text."""
    if row is None:
        return None
    return {key: _time(value) if isinstance(value, datetime) else value for key, value in row.items()}
