"""Which jobs of an archive have to be read: new ones, changed ones, and none that is still being written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters import job_record
from jobs.adapters.archive import JobFiles, read_bytes
from jobs.adapters.job_results import listing_hash
from jobs.adapters.stamps import to_us

SETTLE_S = 5.0
"""A job whose end no record tells is left for later while a file changed in the last seconds (setting `settle_s`)."""
TARGET_BYTES = 128 << 20
MIN_TASKS = 8


@dataclass(frozen=True)
class Known:
    """What the lake has of a job: its listing, its content, and the ingest that read it."""

    listing_hash: str | None
    job_hash: str
    ingest_batch: int


@dataclass(frozen=True)
class Plan:
    """Jobs to read and jobs left for later, each with its reason."""

    to_read: tuple[JobFiles, ...]
    unsettled: tuple[tuple[str, str], ...]


def known_jobs(jobs: pa.Table, ledger: pa.Table) -> dict[str, Known]:
    """Jobs that were read to the end: those with ledger rows (the last thing written) of the same ingest.

    `jobs` has job_id, listing_hash, job_hash, ingest_batch; `ledger` has job_id, ingest_batch.
    """
    done = ledger.group_by("job_id").aggregate([("ingest_batch", "max")])
    finished = dict(zip(done["job_id"].to_pylist(), done["ingest_batch_max"].to_pylist()))
    known = {}
    for row in jobs.to_pylist():
        if finished.get(row["job_id"], row["ingest_batch"]) == row["ingest_batch"] and (
            row["job_id"] in finished or _has_no_files(row)
        ):
            known[row["job_id"]] = Known(row["listing_hash"], row["job_hash"], row["ingest_batch"])
    return known


def _has_no_files(row: Mapping[str, object]) -> bool:
    """A job that only a scheduler export knows has no ledger rows of its own."""
    return row["job_hash"] == EMPTY_HASH


EMPTY_HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of nothing: the content hash of a job without files."""


Exports = Mapping[str, set[tuple[str, int, int | None]]]
"""Accounting exports that were read: paths, sizes and times (microseconds) by the name under which the ledger has them."""


def known_exports(ledger: pa.Table) -> Exports:
    """Exports in the ledger's rows of job_id, path, size_bytes, modified_at: they are no jobs and only the ledger knows them."""
    found: dict[str, set[tuple[str, int, int | None]]] = {}
    for row in ledger.to_pylist():
        at = row["modified_at"]
        found.setdefault(row["job_id"], set()).add((row["path"], row["size_bytes"], to_us(at) if at else None))
    return found


def plan(
    jobs: Sequence[JobFiles],
    known: Mapping[str, Known],
    settle_s: float = SETTLE_S,
    is_refresh: bool = False,
    exports: Exports = MappingProxyType({}),
) -> Plan:
    """Compare an archive's jobs with what the lake knows."""
    to_read: list[JobFiles] = []
    unsettled: list[tuple[str, str]] = []
    for job in jobs:
        have = known.get(job.job_id)
        if have is not None and have.listing_hash == listing_hash(job) and not is_refresh:
            continue
        listed = {(file.path, file.size, file.modified_ns // 1000) for file in job.files}
        if job.is_export and exports.get(job.job_id) == listed and not is_refresh:
            continue
        why = unsettled_because(job, settle_s)
        if why:
            unsettled.append((job.job_id, why))
        else:
            to_read.append(job)
    return Plan(tuple(to_read), tuple(unsettled))


def unsettled_because(job: JobFiles, settle_s: float) -> str | None:
    """Why a job must wait; None when it has ended.

    A terminal state ends it. A record that says it is running makes it wait. Without a word on its state, its files
    must have been left alone for a while.
    """
    row = job.scheduler.get("row")
    if row is not None:
        return None if row.record().is_settled else "the scheduler says that it is running"
    if job.record is not None:
        place = next(file.place for file in job.files if file.path == job.record)
        record = job_record.parse(job.record.rpartition("/")[2], read_bytes(place, job_record.MAX_BYTES))
        if not record.is_settled:
            return "its record says that it is running"
        if record.state != "UNKNOWN":
            return None
    newest = max((file.modified_ns for file in job.files), default=0)
    return "a file changed seconds ago and nothing says that the job has ended" if time.time() - newest / 1e9 < settle_s else None


def bins(jobs: Sequence[JobFiles], n_cores: int) -> list[list[JobFiles]]:
    """Jobs in bins of about equal bytes, the largest jobs first, so that no core waits for a straggler."""
    total = sum(file.size for job in jobs for file in job.files)
    n = max(1, min(len(jobs), max(n_cores * 2, MIN_TASKS, total // TARGET_BYTES)))
    filled: list[tuple[int, list[JobFiles]]] = [(0, []) for _ in range(n)]
    for job in sorted(jobs, key=lambda j: (-sum(f.size for f in j.files), j.job_id)):
        at = min(range(n), key=lambda i: (filled[i][0], i))
        filled[at][1].append(job)
        filled[at] = (filled[at][0] + sum(f.size for f in job.files) + 65536, filled[at][1])
    return [jobs for _, jobs in filled if jobs]


def next_batch(jobs: pa.Table) -> int:
    """The number of this ingest: one more than the largest so far."""
    return int(pc.max(jobs["ingest_batch"]).as_py() or 0) + 1
