"""What a Python worker does with the jobs of one task: read them from their files, write their rows to staging.

Only one small row a job goes back through Spark. Staged files are moved to their final names when the task's work is
complete, so that a task that died and ran again leaves no row twice.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.adapters.archive import JobFiles
from jobs.adapters.job_reader import JobRead, read_files, sha256_of
from jobs.adapters.job_results import results
from jobs.adapters.redaction import use_key
from jobs.core.lake import arrow_schema
from jobs.ingest.adoption import counter, note_counts

SUMMARY = pa.schema([
    ("job_id", pa.string()), ("outcome", pa.string()), ("detail", pa.string()), ("n_files", pa.int64()), ("n_read", pa.int64()),
    ("n_kept", pa.int64()), ("n_quarantined", pa.int64()), ("tables", pa.string()),
])  # fmt: skip
SUMMARY_DDL = (
    "job_id string, outcome string, detail string, n_files bigint, n_read bigint, n_kept bigint,"
    " n_quarantined bigint, tables string"
)
ROW_GROUP = 1 << 17
HELD_BYTES = 64 << 20


class Staging:
    """Parquet files of one task, one a table: rows are gathered and written in row groups of bounded size."""

    def __init__(self, folder: str, task: str, batch: int = 0) -> None:
        self._folder, self._task, self._batch = Path(folder), task, batch
        self._writers: dict[str, tuple[Path, Path, pq.ParquetWriter]] = {}
        self._held: dict[str, tuple[int, int, list[pa.RecordBatch]]] = {}

    @property
    def folder(self) -> str:
        """Where the files go."""
        return str(self._folder)

    def add(self, table: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        """Take one batch of a table."""
        n, size, batches = self._held.get(table, (0, 0, []))
        batches.append(batch)
        self._held[table] = (n + batch.num_rows, size + batch.nbytes, batches)
        if n + batch.num_rows >= ROW_GROUP or size + batch.nbytes >= HELD_BYTES:
            self._flush(table, schema)

    def _flush(self, table: str, schema: pa.Schema) -> None:
        _, _, batches = self._held.pop(table, (0, 0, []))
        if not batches:
            return
        if table not in self._writers:
            final = self._folder / table / f"{self._task}.parquet"
            final.parent.mkdir(parents=True, exist_ok=True)
            draft = final.with_name(f".{self._task}.{os.getpid()}.draft")
            self._writers[table] = (draft, final, pq.ParquetWriter(draft, arrow_schema(table), **_storage(table)))
        self._writers[table][2].write_table(self._complete(table, batches, schema), row_group_size=ROW_GROUP)

    def _complete(self, table: str, batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        """The rows with the number of this ingest, where the contract has a place for it."""
        rows, wanted = pa.Table.from_batches(batches, schema), arrow_schema(table)
        if "ingest_batch" not in wanted.names:
            return rows
        number = pa.repeat(pa.scalar(self._batch, pa.int64()), rows.num_rows)
        return rows.add_column(wanted.get_field_index("ingest_batch"), wanted.field("ingest_batch"), number)

    def finish(self) -> None:
        """Write what is held and give the files their final names."""
        for table, (_, _, batches) in list(self._held.items()):
            self._flush(table, batches[0].schema)
        with counter(self.folder) as connection:
            for table, (draft, final, writer) in self._writers.items():
                writer.close()
                note_counts(connection, draft, final, table)
                os.replace(draft, final)

    def abandon(self) -> None:
        """Remove the drafts."""
        for draft, _, writer in self._writers.values():
            writer.close()
            draft.unlink(missing_ok=True)


def _storage(table: str) -> dict[str, Any]:
    """How a table is stored: strong compression, dictionaries but for columns whose values hardly repeat."""
    stored: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "write_statistics": ["job_id"]}
    if table != "log_records":
        return stored | {"use_dictionary": True}
    rising = dict.fromkeys(("line", "byte_offset", "occurred_at"), "DELTA_BINARY_PACKED")
    plain = {"message", *rising}
    return stored | {"column_encoding": rising, "use_dictionary": [n for n in arrow_schema(table).names if n not in plain]}


def reader(
    staging: str, known_hashes: dict[str, str], ingest_batch: int, key: bytes
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: batches of (task, jobs) in, one summary row a job out.

    `known_hashes` are the contents that the lake has already, by job: a job whose content is the same is not staged.
    `key` is the lake's, for what stands for secrets.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        use_key(key)
        for batch in batches:
            for row in batch.to_pylist():
                yield _read_task(Staging(staging, row["task"], ingest_batch), pickle.loads(row["jobs"]), known_hashes)  # noqa: S301 - our own driver's bytes

    return read


def _read_task(staging: Staging, jobs: list[JobFiles], known_hashes: dict[str, str]) -> pa.RecordBatch:
    try:
        summaries = [_read_job(job, staging, staging.folder, known_hashes.get(job.job_id)) for job in jobs]
        staging.finish()
    except BaseException:
        staging.abandon()
        raise
    return pa.RecordBatch.from_pylist(summaries, schema=SUMMARY)


def _read_job(job: JobFiles, staging: Staging, scratch: str, known_hash: str | None) -> dict[str, object]:
    hashes = {file.path: sha256_of(file) for file in job.files}
    if known_hash is not None and known_hash == content_hash(job, hashes) and not job.scheduler:
        return _summary(job, "unchanged", "the same contents", None, [])
    with read_files(job, scratch, hashes) as done:
        changed = _changed_meanwhile(job)
        if changed:
            return _summary(job, "unsettled", f"{changed} changed while it was read", None, [])
        written = set()
        for table, schema, batches in results(done):
            for batch in batches:
                if batch.num_rows:
                    staging.add(table, schema, batch)
                    written.add(table)
        return _summary(job, "read", None, done, sorted(written))


def content_hash(job: JobFiles, hashes: dict[str, str | None]) -> str:
    """Hash of a job's files by their contents, as `training_jobs.job_hash` has it."""
    from jobs.adapters.job_reader import FileReport
    from jobs.adapters.job_results import job_hash

    return job_hash([FileReport(file.path, hashes[file.path], file.size, None) for file in job.files])


def _changed_meanwhile(job: JobFiles) -> str | None:
    """The first file that is not as it was when the archive was listed; one that vanished is not meant."""
    for file in job.files:
        if file.refusal is not None:
            continue
        try:
            status = os.stat(file.place)
        except OSError:
            continue
        if status.st_size != file.size or status.st_mtime_ns != file.modified_ns:
            return file.path
    return None


def _summary(job: JobFiles, outcome: str, detail: str | None, done: JobRead | None, written: list[str]) -> dict[str, object]:
    reports = done.reports if done else []
    n_read, n_quarantined = sum(r.n_read for r in reports), sum(r.n_quarantined for r in reports)
    return {
        "job_id": job.job_id, "outcome": outcome, "detail": detail, "n_files": len(job.files), "n_read": n_read,
        "n_kept": n_read - n_quarantined, "n_quarantined": n_quarantined, "tables": ",".join(written),
    }  # fmt: skip
