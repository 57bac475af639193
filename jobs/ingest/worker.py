"""What a Python worker does with the jobs of one task: read them from their files, write their rows to staging.

Only one small row a job goes back through Spark. Staged files are moved to their final names when the task's work is
complete, so that a task that died and ran again leaves no row twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pyarrow as pa

from jobs.adapters.archive import JobFiles
from jobs.adapters.job_reader import JobRead, read_files, sample_text, sha256_of
from jobs.adapters.job_results import content_hash, results
from jobs.adapters.redaction import use_key
from jobs.ingest.packing import unpacked
from jobs.ingest.staging import Staging
from jobs.ingest.unfit import BOOKS, Unfit

SUMMARY = pa.schema([
    ("job_id", pa.string()), ("outcome", pa.string()), ("detail", pa.string()), ("n_files", pa.int64()), ("n_read", pa.int64()),
    ("n_kept", pa.int64()), ("n_quarantined", pa.int64()), ("tables", pa.string()),
])  # fmt: skip
SUMMARY_DDL = (
    "job_id string, outcome string, detail string, n_files bigint, n_read bigint, n_kept bigint,"
    " n_quarantined bigint, tables string"
)


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
                yield _read_task(Staging(staging, row["task"], ingest_batch), unpacked(row["jobs"]), known_hashes)

    return read


def _read_task(staging: Staging, jobs: list[JobFiles], known_hashes: dict[str, str]) -> pa.RecordBatch:
    unfit: dict[str, Unfit] = {}
    try:
        summaries = [_read_or_refuse(job, staging, known_hashes.get(job.job_id), unfit) for job in jobs]
        set_aside = staging.finish(jobs, unfit)
    except BaseException:
        staging.abandon()
        raise
    for summary in summaries:
        if summary["job_id"] in set_aside:
            written = {*str(summary["tables"]).split(","), *BOOKS} - {""}
            summary |= {"outcome": "read", "detail": set_aside[str(summary["job_id"])].detail, "tables": ",".join(sorted(written))}
    return pa.RecordBatch.from_pylist(summaries, schema=SUMMARY)


def _read_or_refuse(job: JobFiles, staging: Staging, known_hash: str | None, unfit: dict[str, Unfit]) -> dict[str, object]:
    """Read a job; one that cannot be read for its contents is refused, so that it stops no other one.

    What is not the job's fault (memory, disk) is raised.
    """
    try:
        return _read_job(job, staging, staging.folder, known_hash)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        unfit[job.job_id] = Unfit("adapter_failure", f"{type(error).__name__}: {sample_text(str(error).encode())}")
        return _summary(job, "read", None, None, [])


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
