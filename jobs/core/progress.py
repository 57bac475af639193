"""How far each stage has come, kept in the lake and read without Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from jobs.core.lake import arrow_schema, rows, table_path


@dataclass(frozen=True)
class Progress:
    """What a completed run of a stage covered: ingests up to `ingest_batch`, these table versions, this code."""

    ingest_batch: int
    inputs: dict[str, int]
    definition: str


def last(lake: str, stage: str) -> Progress | None:
    """The newest completed run of a stage, or None."""
    runs = rows(lake, "stage_progress", filters=[("stage", "=", stage)])
    if not len(runs):
        return None
    newest = max(runs.to_pylist(), key=lambda row: row["sequence"])
    return Progress(newest["ingest_batch"], dict(newest["inputs"]), newest["definition"])


def record(lake: str, stage: str, progress: Progress) -> None:
    """Append the completed run: the last thing that a stage does."""
    earlier = rows(lake, "stage_progress", ["sequence"], [("stage", "=", stage)])
    row = {
        "stage": stage,
        "sequence": (pc.max(earlier["sequence"]).as_py() or 0) + 1,
        "ingest_batch": progress.ingest_batch,
        "inputs": list(progress.inputs.items()),
        "definition": progress.definition,
    }
    completed = pa.Table.from_pylist([row], schema=arrow_schema("stage_progress"))
    write_deltalake(table_path(lake, "stage_progress"), completed, mode="append")


def pending_jobs(lake: str, after_batch: int) -> tuple[int, tuple[str, ...]]:
    """The newest ingest's number, and the jobs that were ingested after `after_batch`, in order of their id."""
    jobs = rows(lake, "training_jobs", ["job_id", "ingest_batch"])
    newest = pc.max(jobs["ingest_batch"]).as_py() or 0
    late = jobs.filter(pc.greater(jobs["ingest_batch"], after_batch))
    return newest, tuple(sorted(late["job_id"].to_pylist()))
