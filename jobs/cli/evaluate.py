"""`fleetdiff evaluate`: the diagnoses of a lake against known truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

SCORES = {
    "symptom_right": "symptom", "node_top1": "node 1", "node_top3": "node 3", "rank_top1": "rank 1", "template_top5": "template 5",
    "onset_within_5": "onset",
}  # fmt: skip
WORST = {"false_accusation_rate", "onset_median_error"}
"""Figures of which less is better."""


@click.command("evaluate", short_help="How often the diagnoses are right, where truth is known.")
@click.option("--truth", "truth", required=True, type=click.Path(path_type=Path), help="Folder of JOB.json files.")
@click.option("--lake", "root", required=True, help="Folder of the Delta tables.")
@click.option(
    "--require", "bars", multiple=True, metavar="FIGURE=BAR", help="Fail when a figure is worse than this, e.g. node_top1=0.85."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(truth: Path, root: str, bars: tuple[str, ...], as_json: bool) -> None:
    """Figures over all jobs whose truth is known, each with its numerator and denominator, and a row a job."""
    from jobs.cli.diagnosis import documents
    from jobs.core.errors import CheckError
    from ml.fusion.evaluate import evaluate

    truths = read_truths(truth)
    figures = evaluate(truths, {d["job_id"]: d for d in documents(root)})
    if as_json:
        import orjson

        click.echo(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    else:
        _print(figures)
    missed = [problem for bar in bars if (problem := _below(bar, figures))]
    if missed:
        raise CheckError(f"evaluate: {'; '.join(missed)}")


def read_truths(folder: Path) -> list[dict[str, Any]]:
    """The truths of a folder; raises FleetdiffError that names the file when one is no truth."""
    import json

    from jobs.core.errors import FleetdiffError, NotFoundError

    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such folder; give a folder of JOB.json files")
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FleetdiffError(f"{folder}: no truth here; give a folder of JOB.json files")
    found = []
    for file in files:
        try:
            read = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise FleetdiffError(f"{file}: cannot be read as JSON ({error})") from error
        if not isinstance(read, dict) or "job_id" not in read:
            raise FleetdiffError(f"{file}: no truth: it needs a job_id")
        found.append(read)
    return found


def _below(bar: str, figures: dict[str, Any]) -> str | None:
    """What is wrong with a figure, or None."""
    from jobs.core.errors import UsageError

    name, _, text = bar.partition("=")
    try:
        wanted, value = float(text), figures[name]["value"]
    except (KeyError, ValueError, TypeError):
        raise UsageError(f"evaluate: --require {bar}: not FIGURE=NUMBER with one of the figures {', '.join(figures)}") from None
    if value is None:
        return f"{name} is not scored, {wanted} is required"
    is_worse = value > wanted if name in WORST else value < wanted
    return f"{name} is {value}, {wanted} is required" if is_worse else None


def _print(figures: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from jobs.cli.diagnosis import _console, _plain

    table = Table(box=None, pad_edge=False)
    for name in ("job", "said", "true", *SCORES.values(), "accused", "true nodes", "onset"):
        table.add_column(name, overflow="fold")
    for row in figures["jobs"]:
        marks = ["-" if row[key] is None else "yes" if row[key] else "NO" for key in SCORES]
        onset = f"{row['onset_iteration']} ({row['true_onset_iteration']})" if row["true_onset_iteration"] is not None else "-"
        accused = ", ".join(row["nodes"]) + (" FALSE" if row["is_falsely_accusing"] else "")
        cells = (
            row["job_id"],
            row["symptom"] or "no diagnosis",
            row["true_symptom"],
            *marks,
            accused,
            ", ".join(row["true_nodes"]),
            onset,
        )
        table.add_row(*(Text(_plain(c)) for c in cells))
    console = _console()
    console.print(table)
    for name, figure in figures.items():
        if name != "jobs":
            value = "not scored" if figure["value"] is None else figure["value"]
            console.print(Text(f"{name:<24} {value}  ({figure['numerator']} of {figure['denominator']})"))
