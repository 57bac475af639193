"""`fleetdiff inspect PATH`: what is in an archive and which adapter reads what, in seconds, without writing anything."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from jobs.adapters.archive import JobFiles
    from jobs.adapters.job_reader import FileReport, JobRead

BUDGET_S = 45.0
"""Files beyond this time are only recognised, not counted: a user must see within a minute whether the archive works."""
SOURCES = ("log_records", "stack_samples", "operations", "collectives", "metric_samples", "machine_metrics", "node_events")
WORDS = {
    "log_records": "log events",
    "stack_samples": "stacks",
    "operations": "operations",
    "collectives": "collectives",
    "metric_samples": "metric samples",
    "machine_metrics": "metric series",
    "node_events": "node events",
    "iterations": "iterations",
}


@dataclass
class FileView:
    """One file as it is shown; `rows` is null when only its head was read."""

    path: str
    adapter: str | None
    confidence: float | None
    state: str
    rows: dict[str, int] | None
    n_records: int | None
    n_understood: int | None
    n_quarantined: int | None
    first_at: str | None
    last_at: str | None
    encoding: str | None
    flags: list[str]
    redactions: dict[str, int]
    problems: list[dict[str, Any]]


@dataclass
class JobView:
    """One job as it is shown."""

    job_id: str
    path: str
    state: str | None = None
    nodes: list[str] = field(default_factory=list)
    n_ranks: int = 0
    sources: dict[str, list[int]] = field(default_factory=dict)
    first_at: str | None = None
    last_at: str | None = None
    files: list[FileView] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_export: bool = False


@click.command("inspect", short_help="What an archive holds and what reads it; no writes.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--budget", default=BUDGET_S, show_default=True, help="Seconds after which files are only recognised, not read.")
def command(path: Path, as_json: bool, budget: float) -> None:
    """Show what an archive, a job's folder or one file holds, and what would be read of it."""
    import sys

    from jobs.adapters.archive import shown

    views, totals = inspect(path, budget, lambda text: click.echo(text, err=True) if sys.stderr.isatty() else None)
    report = {"path": shown(str(path)), "jobs": [asdict(view) for view in views], "totals": totals}
    if as_json:
        import orjson

        sys.stdout.buffer.write(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
        return
    for line in lines(views, totals):
        click.echo(line)


def inspect(path: Path, budget_s: float, say: Any = None) -> tuple[list[JobView], dict[str, Any]]:
    """Views of the jobs below a path, and totals. Raises NotFoundError when there is nothing at the path."""
    from jobs.core.errors import NotFoundError

    if not path.exists():
        raise NotFoundError(f"{path}: no such file or folder; give an archive, a job's folder or a file")
    deadline = time.monotonic() + budget_s
    views: list[JobView] = []
    for job in _jobs(path):
        if say and len(views) % 50 == 49:
            say(f"{len(views)} jobs so far")
        views.append(_view(job, deadline))
    return views, _totals(views)


def _jobs(path: Path) -> list[JobFiles]:
    from jobs.adapters.archive import JobFiles, find_jobs, shown, single_file

    if path.is_dir():
        return find_jobs(path)
    return [JobFiles(shown(path.stem), "", (single_file(path),), None, {}, ("no_record",))]


def _view(job: JobFiles, deadline: float) -> JobView:
    from jobs.adapters.job_facts import gather
    from jobs.adapters.job_reader import read_files

    if time.monotonic() > deadline:
        return _recognised(job)
    with read_files(job, hashes={file.path: None for file in job.files}) as done:
        facts = gather(done, {})
        view = JobView(job.job_id, job.root, facts.state, facts.nodes, len(facts.ranks) or facts.world_size or 0)
        view.sources = {source: sorted(ranks) for source, (ranks, _) in facts.seen.items() if ranks}
        view.first_at, view.last_at = _text(facts.started_at), _text(facts.ended_at)
        view.notes = facts.notes
        if job.is_export:
            view.is_export, view.notes = True, ["an accounting export: its rows are jobs, it is none"]
        view.files = [_file(report) for report in done.reports]
        _note_metrics(view, done)
    return view


def _note_metrics(view: JobView, done: JobRead) -> None:
    n_nodes = len({node for report in done.reports for node in [report.path] if report.n_rows["metric_samples"]})
    if n_nodes and not view.sources.get("metrics"):
        view.notes.append(f"metrics in {n_nodes} files")


def _file(report: FileReport) -> FileView:
    tally = report.tally
    rows = {name: n for name, n in sorted(report.n_rows.items()) if n}
    problems = [
        {"reason": p.reason, "offset": p.offset, "n_records": p.n_records, "detail": _safe(p.detail)} for p in report.problems[:20]
    ]
    return FileView(
        report.path, report.adapter, report.confidence, report.state, rows, report.n_read, tally.n_understood, report.n_quarantined,
        _text(tally.first_at), _text(tally.last_at), tally.encoding, sorted(report.flags), dict(report.redactions), problems,
    )  # fmt: skip


def _safe(text: str) -> str:
    from jobs.adapters.job_reader import sample_text

    return sample_text(text.encode())


def _recognised(job: JobFiles) -> JobView:
    """A job of which only the heads of files were looked at, since time ran out."""
    from jobs.adapters import registry
    from jobs.adapters.archive import open_file
    from jobs.adapters.streams import Decompressed, peek

    view = JobView(job.job_id, job.root, notes=["only recognised, not read: time was up (--budget)"])
    for file in job.files:
        name, confidence, state = None, None, "quarantined"
        if file.refusal is None and file.path != job.record:
            try:
                with open_file(file.place) as raw:
                    head, _ = peek(Decompressed(raw, file.size))
                adapter, confidence = registry.choose(file.path, head)
                name, state = (adapter.name, "recognised") if adapter else (None, "unknown" if head else "empty")
            except OSError:
                state = "quarantined"
        elif file.path == job.record:
            name, confidence, state = "job_record", 1.0, "recognised"
        view.files.append(FileView(file.path, name, confidence, state, None, None, None, None, None, None, None, [], {}, []))
    return view


def _text(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at else None


def _totals(views: list[JobView]) -> dict[str, Any]:
    files = [file for view in views for file in view.files]
    rows: Counter[str] = Counter()
    for file in files:
        rows.update(file.rows or {})
    n_records = sum(f.n_records or 0 for f in files)
    n_kept = n_records - sum(f.n_quarantined or 0 for f in files)
    return {
        "n_jobs": sum(not view.is_export for view in views),
        "n_files": len(files),
        "n_records": n_records,
        "n_quarantined": n_records - n_kept,
        "n_understood": sum(f.n_understood or 0 for f in files),
        "understood_share": sum(f.n_understood or 0 for f in files) / n_kept if n_kept else None,
        "rows": dict(rows),
        "adapters": dict(Counter(f.adapter or f.state for f in files)),
        "n_not_read": sum(f.rows is None for f in files),
    }


def lines(views: list[JobView], totals: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    for view in views:
        span = f"{view.first_at or '?'} to {view.last_at or '?'}"
        yield (
            f"{printable(view.job_id)}  {view.state or '?'}  {view.n_ranks or '?'} ranks on {len(view.nodes) or '?'} nodes  {span}"
        )
        for source, ranks in view.sources.items():
            yield f"    {source:<12} ranks {ranges(ranks)}"
        for note in view.notes:
            yield f"    note: {printable(note)}"
        for (adapter, state), group in sorted(_grouped(view.files).items()):
            yield f"    {adapter:<20} {state:<12} {len(group):>5} files  {_rows(group)}"
        for file in view.files:
            for problem in file.problems[:3]:
                yield f"    ! {printable(file.path)}: {problem['reason']} at {problem['offset']}: {printable(problem['detail'])}"
    share = totals["understood_share"]
    yield (
        f"{totals['n_jobs']} jobs, {totals['n_files']} files, {totals['n_records']:,} records"
        f"{f', {share:.1%} of them understood' if share is not None else ''}, {totals['n_quarantined']:,} to quarantine"
    )


def _grouped(files: list[FileView]) -> dict[tuple[str, str], list[FileView]]:
    groups: dict[tuple[str, str], list[FileView]] = {}
    for file in files:
        groups.setdefault((file.adapter or "no adapter", file.state), []).append(file)
    return groups


def _rows(files: list[FileView]) -> str:
    rows: Counter[str] = Counter()
    for file in files:
        rows.update(file.rows or {})
    sure = min((file.confidence for file in files if file.confidence is not None), default=None)
    counted = ", ".join(f"{n:,} {WORDS[name]}" for name, n in sorted(rows.items()) if name in WORDS)
    return f"{f'sure {sure:.2f}  ' if sure is not None else ''}{counted}"


def ranges(ranks: list[int]) -> str:
    """Ranks as ranges.

    >>> ranges([0, 1, 2, 5])
    '0-2,5'
    """
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def printable(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
