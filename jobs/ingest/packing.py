"""Jobs' files as JSON between the driver and its workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jobs.adapters.archive import FoundFile, JobFiles
from jobs.adapters.base import Problem
from jobs.adapters.sacct import SchedulerJob


def packed(jobs: Sequence[JobFiles]) -> str:
    """Jobs as JSON; names of files that are no text keep their bytes (as lone surrogates, which JSON escapes)."""
    return json.dumps([_told(job) for job in jobs])


def unpacked(text: str) -> list[JobFiles]:
    """The jobs that were packed."""
    return [_job(told) for told in json.loads(text)]


def _told(job: JobFiles) -> dict[str, Any]:
    row = job.scheduler.get("row")
    files = [
        (file.path, file.place, file.size, file.modified_ns, file.refusal and (file.refusal.reason, file.refusal.detail))
        for file in job.files
    ]
    return {
        "job_id": job.job_id, "root": job.root, "files": files, "record": job.record, "row": row and asdict(row),
        "flags": job.flags, "is_export": job.is_export,
    }  # fmt: skip


def _job(told: dict[str, Any]) -> JobFiles:
    files = tuple(
        FoundFile(path, place, size, modified_ns, refusal and Problem(refusal[0], 0, 0, refusal[1]))
        for path, place, size, modified_ns, refusal in told["files"]
    )
    row = told["row"]
    return JobFiles(
        told["job_id"], told["root"], files, told["record"], {"row": SchedulerJob(**row)} if row else {}, tuple(told["flags"]),
        told["is_export"],
    )  # fmt: skip
