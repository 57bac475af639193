"""`fleetdiff baseline`: the successful jobs whose configuration matches, and what differs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from jobs.core.errors import UsageError

if TYPE_CHECKING:
    from ml.configs.match import Baseline, Match

N_SHOWN = 12


@click.command("baseline", short_help="Which run of the same thing went well, and what differs.")
@click.argument("job", required=False)
@click.option("--lake", "root", required=True, help="Folder of the Delta tables.")
@click.option("--config", "config", help="A new incident's configuration: job.json, YAML, or a log with an argument block.")
@click.option("--settings", envvar="FLEETDIFF_SETTINGS", help="A site's settings, YAML; the ones that the lake was made with.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(job: str | None, root: str, config: str | None, settings: str | None, as_json: bool) -> None:
    """The best matching successful jobs, with every setting that differs.

    JOB is a job of the lake; with --config it is looked up for a configuration that is not in the lake.
    """
    from jobs.baselines import lookup
    from jobs.cli.stages import read_settings
    from jobs.core.key_classes import classes_from

    if (job is None) == (config is None):
        raise UsageError("baseline: give either a job or --config FILE")
    classes = classes_from(read_settings(settings))
    if config is not None:
        parsed = lookup.read_config(config)
        job, found = parsed.job_id, lookup.of_config(root, parsed, classes)
    else:
        found = lookup.of_job(root, str(job), classes)
    if as_json:
        _print_json(job, found)
    else:
        _print_text(job or str(config), found)


def _print_json(job: str | None, found: Match) -> None:
    import orjson

    document = {
        "job_id": job,
        "baselines": [
            {
                "job_id": each.job_id,
                "score": each.score,
                "n_ranks": each.n_ranks,
                "ended_at": _time(each),
                "differing": [{"key": d.key, "this": d.this, "baseline": d.baseline} for d in each.differing],
                "sentence": each.sentence,
            }
            for each in found.baselines
        ],
        "refused": found.refused,
    }
    click.echo(orjson.dumps(_clean(document), option=orjson.OPT_INDENT_2).decode())


def _print_text(job: str, found: Match) -> None:
    click.echo(f"Baselines of {job}")
    if found.refused:
        click.echo(f"  none: {found.refused}")
    for place, each in enumerate(found.baselines, 1):
        ranks = f"{each.n_ranks} ranks" if each.n_ranks else "ranks unknown"
        click.echo(f"{place}. {each.job_id}  score {each.score:.2f}  {ranks}  ended {_time(each) or 'unknown'}")
        click.echo(f"   {each.sentence}")
        for difference in each.differing[:N_SHOWN]:
            there, here = (_shown(text) for text in (difference.baseline, difference.this))
            click.echo(f"     {_shown(difference.key)}: {there} → {here}")
        if len(each.differing) > N_SHOWN:
            click.echo(f"     and {len(each.differing) - N_SHOWN} more; --json lists all")


def _shown(text: str | None) -> str:
    """A setting for a terminal: one line, bounded, without control characters."""
    if text is None:
        return "(not set)"
    flat = "".join(character if character.isprintable() else " " for character in text[:200])
    return flat if len(text) <= 100 else flat[:99] + "…"


def _time(each: Baseline) -> str | None:
    if not each.ended_us:
        return None
    return datetime.fromtimestamp(each.ended_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _clean(value: Any) -> Any:
    """The same without lone surrogates, which JSON cannot carry."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _clean(part) for key, part in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list) else value
