"""`fleetdiff diagnosis`: what is known of a job's failure, for people or as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

N_EVIDENCE = 5
N_TEMPLATES = 8
WIDTH = 120


@click.command("diagnosis", short_help="What differs in a job, where, and since when.")
@click.argument("job", required=False)
@click.option("--lake", "root", required=True, help="Folder of the Delta tables.")
@click.option("--all", "is_all", is_flag=True, help="Every diagnosed job, as JSON Lines (with --json).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(job: str | None, root: str, is_all: bool, as_json: bool) -> None:
    """The diagnosis of JOB: symptom, onset, ranked candidates with their evidence, templates, what is missing."""
    from jobs.core.errors import UsageError

    if (job is None) == (not is_all):
        raise UsageError("diagnosis: give either a job or --all")
    found = documents(root, job)
    if job is not None and not found:
        _missing(root, job)
    if as_json:
        import orjson

        for document in found:
            click.echo(orjson.dumps(document, option=0 if is_all else orjson.OPT_INDENT_2))
        return
    if is_all:
        _print_table(found)
    for document in found if not is_all else ():
        _print_text(document)


def _missing(root: str, job: str) -> None:
    """Raise, saying why a job has no diagnosis: the lake does not have it, or no night has come to it yet."""
    from jobs.core.errors import NotFoundError
    from jobs.core.unknown_job import require_job

    require_job(root, job)
    raise NotFoundError(f"{root}: job {job} has no diagnosis yet; `fleetdiff run ARCHIVE --lake {root}` makes one")


def documents(root: str, job: str | None = None) -> list[dict[str, Any]]:
    """Diagnoses of one job or of all, in order of their ids; one that a person has confirmed says so."""
    import orjson

    from jobs.core import lake
    from jobs.core.query import listed

    filters = [("job_id", "=", job)] if job is not None else None
    rows = lake.rows(root, "diagnoses", ["job_id", "document"], filters).to_pylist()
    said = listed(lake.rows(root, "verdicts", ["job_id", "is_verified", "written_at"], filters))
    newest = {row["job_id"]: row["is_verified"] for row in sorted(said, key=lambda row: row["written_at"])}
    found = []
    for row in sorted(rows, key=lambda row: row["job_id"]):
        document = orjson.loads(row["document"])
        document["verified"] = bool(newest.get(row["job_id"], False))
        found.append(document)
    return found


def _console() -> Console:
    """A console that honours NO_COLOR and never interprets text of a log as mark-up."""
    from rich.console import Console

    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else WIDTH)


def _plain(text: object) -> str:
    """Text of a log without control characters: a terminal must not obey it."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in str(text))


def _print_table(found: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("job", "state", "symptom", "cause class", "onset", "signal", "first candidate", "score"):
        table.add_column(name, overflow="fold")
    for d in found:
        best = d["candidates"][0] if d["candidates"] else None
        onset = d["onset"] or {}
        cells = (
            d["job_id"], d["state"], d["symptom"], d["cause_class"], _or_dash(onset.get("iteration")), d["spatial_signal"],
            _place(best) if best else "-", f"{best['score']:.2f}" if best else "-",
        )  # fmt: skip
        table.add_row(*(Text(_plain(c)) for c in cells))
    _console().print(table)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _place(candidate: dict[str, Any]) -> str:
    ranks = ", ".join(str(r) for r in candidate["ranks"][:8]) + (" …" if len(candidate["ranks"]) > 8 else "")
    nodes = ", ".join(candidate["nodes"]) or "node unknown"
    return f"{nodes} (rank {ranks})" if ranks else nodes


def _print_text(d: dict[str, Any]) -> None:
    from rich.text import Text

    console = _console()

    def line(text: str, style: str = "", indent: int = 0) -> None:
        console.print(Text(" " * indent + _plain(text), style=style), soft_wrap=False)

    line(f"{d['job_id']}: {d['symptom']} (state {d['state']})", "bold")
    sure = f", confidence {d['cause_confidence']:.2f}" if d["cause_class"] != "undetermined" else ""
    line(f"cause class {d['cause_class']}{sure}{', confirmed by a person' if d['verified'] else ''}")
    onset = d["onset"]
    if onset:
        where = ", ".join(f"{key} {onset[key]}" for key in ("iteration", "phase") if onset[key] is not None)
        line(f"began {onset['window_start_at'] or 'at an unknown time'}{' (' + where + ')' if where else ''}")
    line(f"spatial signal: {d['spatial_signal']}")
    _print_candidates(d, line)
    _print_rest(d, line)


def _print_candidates(d: dict[str, Any], line: Any) -> None:
    from ml.fusion.evaluate import ACCUSED

    if not d["candidates"]:
        line("no candidate: the evidence points at no place", "dim")
    for number, each in enumerate(d["candidates"], 1):
        line("")
        groups = "".join(f", {g['kind']} group of ranks {g['ranks']}" for g in each["groups"])
        line(f"{number}. {_place(each)}  score {each['score']:.2f}{groups}", "bold" if each["score"] >= ACCUSED else "dim")
        told = each["evidence"]
        shown = told if len(told) <= N_EVIDENCE else [*told[: N_EVIDENCE - 1], told[-1]]
        for evidence in shown:
            refs = "; ".join(f"{r['file']}:{r['line']}" if r["line"] else r["file"] for r in evidence["refs"][:2])
            line(f"{evidence['source']}: {evidence['statement']}{'  [' + refs + ']' if refs else ''}", indent=3)


def _summary(example: str) -> str:
    """The line of a message that says most: of a traceback its last one that names an error, else the first."""
    lines = [line for line in example.splitlines() if any(c.isalnum() for c in line)] or [""]
    if "Traceback" not in example and "File " not in example:
        return lines[0].strip()
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named or lines)[-1].strip()


def _print_rest(d: dict[str, Any], line: Any) -> None:
    if d["templates"]:
        line("")
        line("templates that tell most", "bold")
    for t in d["templates"][:N_TEMPLATES]:
        known = "known to the fleet" if t["in_library"] else "in baselines" if t["in_baselines"] else "new"
        told = _summary(t["example"] or t["template"])
        line(
            f"{t['score']:.2f} {t['alert'] or '-':<10} {t['n_events']}x {known}: {told[:200]}",
            indent=3,
        )
    if d["missing"]:
        line("")
        line("missing", "bold")
    for m in d["missing"][:N_TEMPLATES]:
        line(m["what"], indent=3)
    line("")
    names = ", ".join(f"{b['job_id']} ({b['score']:.2f})" for b in d["baselines"]) or "none"
    line(f"compared with: {names}", "dim")
    shares = ", ".join(f"{k} {v:.0%}" for k, v in d["coverage"].items() if k != "notes")
    line(f"coverage: {shares}", "dim")
    for note in d["coverage"]["notes"]:
        line(f"note: {note}", "dim")
