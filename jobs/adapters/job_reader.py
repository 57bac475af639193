"""Reads the files of one job: each by the adapter that recognises it, every record accounted for."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from jobs.adapters import bundles, job_record, registry
from jobs.adapters.archive import FoundFile, JobFiles, open_file, read_bytes
from jobs.adapters.base import Adapter, FileContext, Problem, Rows, Tally
from jobs.adapters.job_record import JobRecord
from jobs.adapters.job_tables import JobTables, message_key_column, to_batch
from jobs.adapters.lines import is_binary
from jobs.adapters.paths import PathFacts, facts_of
from jobs.adapters.redaction import redact
from jobs.adapters.stamps import from_us
from jobs.adapters.streams import Decompressed, peek

Seen = dict[tuple[str, PathFacts], str]
MAX_PROBLEMS_PER_FILE = 200
RECORD_ADAPTER = "job_record"


@dataclass
class FileReport:
    """The ledger row of one file in the making."""

    path: str
    sha256: str | None
    size_bytes: int
    modified_at: datetime | None
    adapter: str | None = None
    adapter_version: int | None = None
    confidence: float | None = None
    alias_of: str | None = None
    tally: Tally = field(default_factory=lambda: Tally(0, 0))
    problems: list[Problem] = field(default_factory=list)
    n_quarantined: int = 0
    n_rows: Counter[str] = field(default_factory=Counter)
    redactions: Counter[str] = field(default_factory=Counter)
    flags: set[str] = field(default_factory=set)
    is_ignored: bool = False

    def problem(self, problem: Problem) -> None:
        """Book a problem; beyond a number of rows a file's problems are added up by reason."""
        self.n_quarantined += problem.n_records
        if len(self.problems) >= MAX_PROBLEMS_PER_FILE:
            for i, known in enumerate(self.problems):
                if known.reason == problem.reason:
                    self.problems[i] = Problem(
                        known.reason, known.offset, known.n_records + problem.n_records, known.detail, known.sample
                    )
                    return
        self.problems.append(problem)

    @property
    def n_read(self) -> int:
        """Records read; a file that could not be read at all counts the record it was refused for."""
        return max(self.tally.n_read, self.n_quarantined)

    @property
    def state(self) -> str:
        """What became of the file, in the ledger's words."""
        if self.alias_of is not None:
            return "alias"
        if self.is_ignored:
            return "ignored"
        if self.n_read == 0 and not self.problems:
            return "empty"
        if self.n_read == self.n_quarantined and (self.n_quarantined or self.problems):
            return "quarantined"
        return "partial" if self.n_quarantined or any(p.reason in _CUT for p in self.problems) else "read"


_CUT = ("truncated_gzip", "corrupt_compression", "unreadable", "vanished", "bomb", "adapter_failure", "corrupt_archive")


@dataclass
class JobRead:
    """One job's rows after its files were read: `complete` makes the job's own tables from them."""

    job: JobFiles
    record: JobRecord
    rows: JobTables
    reports: list[FileReport] = field(default_factory=list)

    def tables(self) -> dict[str, pa.Table]:
        """Every table of the job, in memory."""
        from jobs.adapters.job_results import results

        return {name: pa.Table.from_batches(list(batches), schema) for name, schema, batches in results(self)}


@contextmanager
def read_files(
    job: JobFiles, scratch: str | Path | None = None, hashes: Mapping[str, str | None] | None = None
) -> Iterator[JobRead]:
    """Read a job's files. `hashes` are contents' SHA-256 by path where they are known already."""
    done = JobRead(job, _record(job), JobTables(scratch))
    try:
        seen: Seen = {}
        for file in job.files:
            digest = hashes[file.path] if hashes and file.path in hashes else sha256_of(file)
            _read_file(done, file, digest, seen)
        yield done
    finally:
        done.rows.close()


def sha256_of(file: FoundFile) -> str | None:
    """Hash of a file's bytes; None when it cannot be read."""
    if file.refusal is not None:
        return None
    try:
        with open_file(file.place) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _record(job: JobFiles) -> JobRecord:
    from jobs.adapters.orphans import record_of

    if job.record is None:
        return record_of(job)
    place = next(file.place for file in job.files if file.path == job.record)
    return job_record.parse(job.record.rpartition("/")[2], read_bytes(place, job_record.MAX_BYTES))


def _read_file(done: JobRead, file: FoundFile, digest: str | None, seen: Seen) -> None:
    modified = from_us(file.modified_ns // 1000) if file.modified_ns else None
    report = FileReport(file.path, digest, file.size, modified)
    done.reports.append(report)
    if file.refusal is not None:
        report.problem(file.refusal)
        return
    if file.path == done.job.record:
        _book_record(done, report)
        return
    if digest is not None and file.size:
        # Ranks that fail alike write files alike: only what also stands for the same place is a copy.
        content = (digest, facts_of(file.path, done.record.nodes))
        if content in seen:
            report.alias_of = seen[content]
            return
        seen[content] = file.path
    try:
        with open_file(file.place) as raw:
            _read_opened(done, report, raw, file)
    except OSError as error:
        reason = "vanished" if isinstance(error, FileNotFoundError) else "unreadable"
        report.problem(Problem(reason, 0, 0, f"{type(error).__name__}: give read permission, or copy it again"))
        report.sha256 = None


def _book_record(done: JobRead, report: FileReport) -> None:
    report.adapter, report.adapter_version, report.confidence = RECORD_ADAPTER, 1, 1.0
    for problem in done.record.problems:
        report.problem(problem)
    report.tally = Tally(1, 1 if done.record.has_record else 0)


def _read_opened(done: JobRead, report: FileReport, raw: BinaryIO, file: FoundFile) -> None:
    source = Decompressed(raw, file.size)
    head, stream = peek(source)
    kind = bundles.kind_of(head)
    if kind is not None:
        report.adapter, report.adapter_version, report.confidence = f"{kind}_bundle", 1, 1.0
        for member in bundles.members(kind, stream, raw if source.kind is None else None):
            if isinstance(member, Problem):
                report.problem(member)
            else:
                _read_member(done, report, member)
    else:
        _parse(done, report, report.path, head, stream, _parquet_columns(file.place) if head.startswith(b"PAR1") else ())
    for problem in source.problems:
        report.problem(problem)
        report.flags.add("truncated" if problem.reason == "truncated_gzip" else problem.reason)


def _read_member(done: JobRead, bundle: FileReport, member: bundles.Member) -> None:
    """One member of a bundle: a file of its own in the ledger."""
    report = FileReport(f"{bundle.path}!{member.name}", None, member.size, member.modified_at or bundle.modified_at)
    done.reports.append(report)
    source = Decompressed(member.stream, member.size)
    head, stream = peek(source)
    if bundles.kind_of(head) is not None:
        report.problem(Problem("bomb", 0, 0, "an archive inside an archive is not opened"))
    elif member.name.rpartition("/")[2] in job_record.NAMES and not done.record.has_record:
        done.record = job_record.parse(member.name.rpartition("/")[2], stream.read(job_record.MAX_BYTES))
        _book_record(done, report)
    else:
        _parse(done, report, report.path, head, stream)
    for problem in source.problems:
        report.problem(problem)
    report.sha256 = member.digest()
    if member.problem is not None:
        report.problem(member.problem)


def _context(done: JobRead, report: FileReport) -> FileContext:
    record = done.record
    told = facts_of(report.path, record.nodes)
    rank, role = told.rank, told.role
    if rank is None and told.local_rank is not None:
        rank = next((p.rank for p in record.placements if p.node == told.node and p.local_rank == told.local_rank), None)
    return FileContext(
        done.job.job_id, report.path, told.node, rank, told.local_rank, role, told.attempt, told.stream, record.started_at,
        record.ended_at, report.modified_at, record.zone, record.placements,
    )  # fmt: skip


def _parquet_columns(place: str) -> tuple[str, ...]:
    """Columns of a Parquet file, by its end; none when it cannot be read."""
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(place).names)
    except (pa.ArrowException, OSError, ValueError):
        return ()


def _parse(done: JobRead, report: FileReport, path: str, head: bytes, stream: BinaryIO, columns: tuple[str, ...] = ()) -> None:
    if not head:
        report.flags.add("empty_file")
        return
    adapter, confidence = registry.choose(path.replace("!", "/"), head, columns)
    report.confidence = confidence
    if adapter is None:
        if is_binary(head):
            report.problem(Problem("binary_content", 0, 1, "no text, and of no format that is read here", head[:64]))
            return
        report.problem(Problem("unknown_format", 0, 1, "no adapter recognises it: it stays in the archive only", head[:64]))
        return
    report.adapter, report.adapter_version = adapter.name, adapter.version
    context = _context(done, report)
    try:
        _take_all(done, report, adapter, stream, context)
    except Exception as error:
        report.problem(
            Problem("adapter_failure", 0, 0 if report.n_rows else 1, f"{adapter.name}: {type(error).__name__}: {str(error)[:200]}")
        )
        report.flags.add("adapter_failure")


def _take_all(done: JobRead, report: FileReport, adapter: Adapter, stream: BinaryIO, context: FileContext) -> None:
    for item in adapter.parse(stream, context):
        if isinstance(item, Rows):
            _take_rows(done, report, item, context)
        elif isinstance(item, Problem):
            report.problem(item)
        else:
            report.tally = item
            report.flags |= set(item.flags)
            report.redactions.update(item.redactions)


def _take_rows(done: JobRead, report: FileReport, rows: Rows, context: FileContext) -> None:
    if not len(rows):
        return
    constants: dict[str, Any] = {"job_id": context.job_id, "file": report.path, "node": context.node}
    if rows.table == "log_records":
        constants |= {"attempt": context.attempt, "stream": context.stream}
    if rows.table in ("log_records", "stack_samples", "iterations", "operations", "collectives"):
        constants["rank"] = context.rank
    try:
        batch = to_batch(rows, constants)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        report.problem(Problem("bad_type", 0, 0, f"{len(rows)} rows of {rows.table} do not fit: {str(error)[:200]}"))
        return
    report.n_rows[rows.table] += len(rows)
    done.rows.add(batch, rows.table, report.redactions, rows.is_clean)


def with_message_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Log records with the key of their masked message."""
    at = batch.schema.get_field_index("message_key")
    return batch.set_column(at, batch.schema.field(at), message_key_column(batch.column("message")))


def sample_text(sample: bytes) -> str:
    """First bytes of what was refused: readable, bounded, redacted."""
    text = sample[:200].decode("utf-8", "replace")
    return redact("".join(c if c.isprintable() else "�" for c in text))
