"""How far each stage has come, kept in the lake and read without Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from jobs.core.tables import table_path
from schemas import tables


@dataclass(frozen=True)
class Progress:
    """What a completed run of a stage covered: ingests up to `ingest_batch`, these table versions, this code."""

    ingest_batch: int
    inputs: dict[str, int]
    definition: str


def last(lake: str, stage: str) -> Progress | None:
    """The newest completed run of a stage, or None."""
    rows = DeltaTable(table_path(lake, "stage_progress")).to_pyarrow_table(filters=[("stage", "=", stage)])
    if not len(rows):
        return None
    newest = max(rows.to_pylist(), key=lambda row: row["sequence"])
    return Progress(newest["ingest_batch"], dict(newest["inputs"]), newest["definition"])


def record(lake: str, stage: str, progress: Progress) -> None:
    """Append the completed run: the last thing that a stage does."""
    path = table_path(lake, "stage_progress")
    rows = DeltaTable(path).to_pyarrow_table(columns=["sequence"], filters=[("stage", "=", stage)])
    row = {
        "stage": stage,
        "sequence": (pc.max(rows["sequence"]).as_py() or 0) + 1,
        "ingest_batch": progress.ingest_batch,
        "inputs": list(progress.inputs.items()),
        "definition": progress.definition,
    }
    schema = pa.schema([pa.field(c.name, c.type) for c in tables()["stage_progress"].columns])
    write_deltalake(path, pa.Table.from_pylist([row], schema=schema), mode="append")


def pending_jobs(lake: str, after_batch: int) -> tuple[int, tuple[str, ...]]:
    """The newest ingest's number, and the jobs that were ingested after `after_batch`, in order of their id."""
    jobs = DeltaTable(table_path(lake, "training_jobs")).to_pyarrow_table(columns=["job_id", "ingest_batch"])
    newest = pc.max(jobs["ingest_batch"]).as_py() or 0
    late = jobs.filter(pc.greater(jobs["ingest_batch"], after_batch))
    return newest, tuple(sorted(late["job_id"].to_pylist()))
