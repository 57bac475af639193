"""The tables of one job from what its files gave: completed times and iterations, the job itself, its ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters import clocks
from jobs.adapters.archive import JobFiles
from jobs.adapters.completion import Completion
from jobs.adapters.job_facts import JobFacts, coverage_of, gather
from jobs.adapters.job_reader import FileReport, JobRead, sample_text, with_message_keys
from jobs.adapters.redaction import redact_column
from jobs.adapters.shared_events import shared_events
from schemas import tables

EVENT_TABLES = ("log_records", "iterations", "stack_samples", "operations", "collectives", "node_events")
TIME_COLUMNS = {
    "log_records": ("occurred_at",),
    "iterations": ("occurred_at",),
    "stack_samples": ("sampled_at",),
    "node_events": ("occurred_at",),
    "collectives": ("created_at", "started_at", "completed_at"),
    "operations": ("started_us",),
}
Result = tuple[str, pa.Schema, Iterator[pa.RecordBatch]]


def schema_of(name: str) -> pa.Schema:
    """Columns of a table as ingest stages them: the contract's, without the ingest's number."""
    return pa.schema([pa.field(c.name, c.type) for c in tables()[name].columns if c.name != "ingest_batch"])


def results(done: JobRead) -> Iterator[Result]:
    """Every table of a job: name, columns, batches. `ingested_files` comes last and `training_jobs` just before it."""
    found = clocks.offsets_of(*shared_events(done))
    shifts = clocks.corrections(found)
    facts = gather(done, shifts)
    completion = Completion(
        facts, {report.path: report.tally.last_at for report in done.reports}, {r.path: r.modified_at for r in done.reports}
    )
    for name in EVENT_TABLES:
        yield name, schema_of(name), _event_batches(done, name, completion, shifts)
    yield "machine_metrics", schema_of("machine_metrics"), iter(_metrics(done, facts, shifts))
    yield (
        "clock_offsets",
        schema_of("clock_offsets"),
        iter(
            _one(
                "clock_offsets",
                [
                    {
                        "job_id": done.job.job_id,
                        "node": o.node,
                        "offset_s": o.offset_s,
                        "spread_s": o.spread_s,
                        "n_shared_events": o.n_shared,
                    }
                    for o in found
                ],
            )
        ),
    )
    yield "ranks", schema_of("ranks"), iter(_redacted("ranks", facts.ranks))
    yield "quarantine", schema_of("quarantine"), iter(_one("quarantine", list(_quarantine(done))))
    if not done.job.is_export:
        yield "training_jobs", schema_of("training_jobs"), iter(_redacted("training_jobs", [_job_row(done, facts)]))
    yield (
        "ingested_files",
        schema_of("ingested_files"),
        iter(_one("ingested_files", [_ledger(done.job.job_id, r) for r in done.reports])),
    )


def _one(name: str, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    return pa.Table.from_pylist(rows, schema=schema_of(name)).to_batches() if rows else []


def _redacted(name: str, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    from collections import Counter

    counts: Counter[str] = Counter()
    return [
        pa.RecordBatch.from_arrays([redact_column(column, counts) for column in batch.columns], schema=batch.schema)
        for batch in _one(name, rows)
    ]


def _event_batches(done: JobRead, name: str, completion: Completion, shifts: dict[str, int]) -> Iterator[pa.RecordBatch]:
    schema = schema_of(name)
    for batch in done.rows.batches(name):
        batch = _shifted(batch, TIME_COLUMNS[name], shifts) if shifts else batch
        if name == "log_records":
            batch = with_message_keys(completion.completed(batch))
        elif "node" in batch.schema.names and "rank" in batch.schema.names:
            batch = completion.placed(batch)
        yield batch.select(schema.names) if batch.schema.names != schema.names else batch


def _shifted(batch: pa.RecordBatch, columns: tuple[str, ...], shifts: dict[str, int]) -> pa.RecordBatch:
    """Stamps of nodes with a clock that is off, put right."""
    nodes = batch["node"].to_pylist()
    if not any(node in shifts for node in nodes):
        return batch
    amount = pa.array([shifts.get(node, 0) for node in nodes], pa.int64())
    for name in columns:
        at = batch.schema.get_field_index(name)
        kind = batch.schema.field(at).type
        batch = batch.set_column(at, batch.schema.field(at), pc.subtract(batch.column(at).cast(pa.int64()), amount).cast(kind))
    return batch


def _metrics(done: JobRead, facts: JobFacts, shifts: dict[str, int]) -> list[pa.RecordBatch]:
    """Samples on the job's grid, and rows that came gridded."""
    given = list(done.rows.batches("machine_metrics"))
    samples = _capped(done.rows.table("metric_samples"), facts)
    gridded: list[pa.RecordBatch] = []
    if len(samples):
        from ml.machines.grid import to_grid

        if shifts:
            at = samples.schema.get_field_index("at_us")
            amount = pa.array([shifts.get(node, 0) for node in samples["node"].to_pylist()], pa.int64())
            samples = samples.set_column(at, "at_us", pc.subtract(samples["at_us"], amount))
        grid = to_grid(samples)
        columns = {name: grid[name] for name in grid.column_names}
        columns["job_id"] = pa.repeat(pa.scalar(done.job.job_id), len(grid))
        columns["file"] = pa.nulls(len(grid), pa.string())
        schema = schema_of("machine_metrics")
        gridded = pa.table([columns[name] for name in schema.names], schema=schema).to_batches()
    return [batch.select(schema_of("machine_metrics").names) for batch in given] + gridded


MAX_SERIES = 200_000
"""Series (node, device, metric) of one job's metrics: a label that takes a new value each time must not fill the lake."""


def _capped(samples: pa.Table, facts: JobFacts) -> pa.Table:
    """Samples of at most `MAX_SERIES` series, the first in order of their names; what was dropped is counted in the notes."""
    names = ["node", "device", "metric"]
    series = samples.select(names).group_by(names).aggregate([([], "count_all")])
    if series.num_rows <= MAX_SERIES:
        return samples
    series = series.sort_by([(name, "ascending") for name in names])
    kept = series.slice(0, MAX_SERIES).select(names)
    facts.flags.add("series_dropped")
    n_samples = pc.sum(series["count_all"][MAX_SERIES:]).as_py()
    facts.notes.append(f"{series.num_rows - MAX_SERIES} series of metrics beyond {MAX_SERIES} were dropped, {n_samples} samples")
    keys = [pc.binary_join_element_wise(*(pc.fill_null(t[n], "") for n in names), "\0") for t in (samples, kept)]
    return samples.filter(pc.is_in(keys[0], keys[1].combine_chunks()))


def _quarantine(done: JobRead) -> Iterator[dict[str, Any]]:
    for report in done.reports:
        merged: dict[tuple[str, int], dict[str, Any]] = {}
        for problem in report.problems:
            key = (problem.reason, max(problem.offset, 0))
            if key in merged:
                merged[key]["n_records"] += problem.n_records
                continue
            merged[key] = {
                "job_id": done.job.job_id,
                "path": report.path,
                "reason": problem.reason,
                "offset": key[1],
                "n_records": problem.n_records,
                "detail": sample_text(problem.detail.encode()[:400])[:400] or None,
                "sample": sample_text(problem.sample) or None,
            }
        yield from merged.values()


def _ledger(job_id: str, report: FileReport) -> dict[str, Any]:
    tally = report.tally
    n_kept = report.n_read - report.n_quarantined
    return {
        "job_id": job_id,
        "path": report.path,
        "sha256": report.sha256,
        "size_bytes": report.size_bytes,
        "modified_at": report.modified_at,
        "adapter": report.adapter,
        "adapter_version": report.adapter_version,
        "confidence": report.confidence,
        "state": report.state,
        "alias_of": report.alias_of,
        "n_read": report.n_read,
        "n_kept": n_kept,
        "n_quarantined": report.n_quarantined,
        "n_understood": min(tally.n_understood, n_kept),
        "first_at": tally.first_at,
        "last_at": tally.last_at,
        "encoding": tally.encoding,
        "flags": sorted(report.flags),
        "redactions": sorted(report.redactions.items()),
    }


def listing_hash(job: JobFiles) -> str:
    """Hash of the paths, sizes and times of a job's files, and of what a scheduler export says of it.

    It begins with the hash of the code that reads files: rows of another version of it are read again.
    """
    digest = hashlib.sha256()
    for file in job.files:
        digest.update(f"{file.path}\0{file.size}\0{file.modified_ns}\n".encode())
    row = job.scheduler.get("row")
    digest.update(repr(sorted(row.fields.items()) if row is not None else "").encode())
    return f"{definition()}:{digest.hexdigest()}"


@cache
def definition() -> str:
    """Hash of the code that turns files into rows."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for folder in ("jobs/adapters", "ml/templates", "ml/machines"):
        for file in sorted((root / folder).glob("*.py")):
            if folder != "ml/machines" or file.stem in ("grid", "limits"):
                digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def job_hash(reports: list[FileReport]) -> str:
    """Hash of all files' paths and contents: the same files give the same hash, in whatever order they are listed."""
    digest = hashlib.sha256()
    for report in sorted(reports, key=lambda r: r.path):
        if "!" not in report.path:
            digest.update(f"{report.path}\0{report.sha256}\n".encode())
    return digest.hexdigest()


def content_hash(job: JobFiles, hashes: dict[str, str | None]) -> str:
    """Hash of a job's files by their contents, as `training_jobs.job_hash` has it."""
    return job_hash([FileReport(file.path, hashes[file.path], file.size, None) for file in job.files])


def _job_row(done: JobRead, facts: JobFacts) -> dict[str, Any]:
    record, job = done.record, done.job
    started: datetime | None = facts.started_at
    return {
        "job_id": job.job_id,
        "name": record.name,
        "user": record.user,
        "cluster": record.cluster,
        "partition": record.partition,
        "state": facts.state,
        "exit_code": record.exit_code,
        "node_exit_codes": list(record.node_exit_codes.items()),
        "submitted_at": record.submitted_at,
        "started_at": started,
        "ended_at": facts.ended_at,
        "nodes": facts.nodes,
        "n_nodes": len(facts.nodes) or None,
        "world_size": facts.world_size,
        "n_gpus": record.n_gpus,
        "lineage_id": record.lineage_id,
        "attempt": record.attempt,
        "config": list(facts.config.items()),
        "coverage": list(coverage_of(done, facts).items()),
        "flags": sorted(facts.flags),
        "notes": facts.notes,
        "archive_path": job.root or None,
        "job_hash": job_hash(done.reports),
        "listing_hash": listing_hash(job),
    }


def job_tables() -> tuple[str, ...]:
    """Every table that a job's files can give rows to, the ledger last."""
    return (*EVENT_TABLES, "machine_metrics", "clock_offsets", "ranks", "quarantine", "training_jobs", "ingested_files")
