"""Jobs that cannot go into the tables: their rows break a critical rule of a contract, or reading them failed.

Such a job is set aside whole and stays visible: it has its row in `training_jobs` with a note, and each of its files is
in the ledger with every record quarantined. The other jobs of the night go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.adapters.archive import JobFiles
from jobs.adapters.job_results import listing_hash
from jobs.adapters.stamps import from_us
from jobs.core.lake import arrow_schema
from jobs.core.rules import Rule, rules_of
from jobs.ingest.adoption import breaks
from schemas import tables
from schemas.contract import Severity

BOOKS = ("quarantine", "training_jobs", "ingested_files")
"""Tables that tell of a job that was set aside."""


@dataclass(frozen=True)
class Unfit:
    """A job that is set aside: the reason in quarantine's words, and what happened."""

    reason: str
    detail: str


def broken_jobs(connection: duckdb.DuckDBPyConnection, file: Path, name: str) -> dict[str, Unfit]:
    """Jobs of a staged file whose rows break a critical rule of its table."""
    table = tables()[name]
    rules = [rule for rule in rules_of(table) if rule.severity == Severity.CRITICAL]
    query = f"SELECT job_id, {', '.join(breaks(rule, table.key) for rule in rules)} FROM read_parquet(?) GROUP BY job_id"  # noqa: S608
    found = {}
    for job_id, *counts in connection.execute(query, [str(file)]).fetchall():
        broken = [f"{rule.name} ({n} rows)" for rule, n in zip(rules, counts, strict=True) if n]
        if broken:
            found[job_id] = Unfit("broken_rule", f"{name}: {'; '.join(broken)}")
    return found


def is_critical(rules: Sequence[Rule], broken: Sequence[int]) -> bool:
    """Whether a critical one is among the rules that so many rows break."""
    return any(n and rule.severity == Severity.CRITICAL for rule, n in zip(rules, broken, strict=True))


def replaced(
    file: Path, name: str, unfit: Mapping[str, Unfit], rows: Sequence[Mapping[str, Any]], stored: Mapping[str, Any]
) -> int:
    """Write a staged file anew without the rows of some jobs, and with others; how many rows it has now."""
    schema, draft, n = arrow_schema(name), file.with_name(f"{file.name}.anew"), 0
    gone = pa.array(sorted(unfit), pa.string())
    with pq.ParquetWriter(draft, schema, **stored) as writer:
        if file.exists():
            for batch in pq.ParquetFile(file).iter_batches():
                kept = batch.filter(pc.invert(pc.is_in(batch["job_id"], gone)))
                writer.write_batch(kept.cast(schema))
                n += kept.num_rows
        if rows:
            writer.write_table(pa.Table.from_pylist(list(rows), schema=schema))
    draft.replace(file)
    return n + len(rows)


def ledger_rows(file: Path | None, job: JobFiles, unfit: Unfit, batch: int) -> list[dict[str, Any]]:
    """The job's files, nothing of them kept: from the staged ledger where the job is in it, else one record each."""
    staged = pq.read_table(file, filters=[("job_id", "=", job.job_id)]).to_pylist() if file else []
    known = [
        row for row in staged if unfit.reason == "broken_rule" and not unfit.detail.startswith(("ingested_files", "quarantine"))
    ]
    rows = known or [
        {"path": found.path, "size_bytes": found.size, "modified_at": _changed(found.modified_ns), "n_read": 1}
        for found in job.files
    ]
    gone = {"n_kept": 0, "n_understood": 0, "state": "quarantined", "job_id": job.job_id, "ingest_batch": batch}
    return [{"flags": []} | row | gone | {"n_quarantined": row["n_read"]} for row in rows]


def _changed(modified_ns: int) -> datetime | None:
    return from_us(modified_ns // 1000) if modified_ns else None


def quarantine_rows(ledger: Sequence[Mapping[str, Any]], unfit: Unfit, batch: int) -> list[dict[str, Any]]:
    """One row a file, so that the books balance."""
    return [
        {
            "job_id": row["job_id"], "path": row["path"], "reason": unfit.reason, "offset": 0, "n_records": row["n_read"],
            "detail": f"the whole job was set aside: {unfit.detail}"[:400], "ingest_batch": batch,
        }
        for row in ledger
    ]  # fmt: skip


def job_row(job: JobFiles, job_hash: str, unfit: Unfit, batch: int) -> dict[str, Any]:
    """The job's own row: that it is there, and why nothing is known of it."""
    return {
        "job_id": job.job_id, "state": "UNKNOWN", "nodes": [], "flags": ["partial", "set_aside"], "archive_path": job.root or None,
        "notes": [f"the whole job was set aside: {unfit.detail}"[:400]], "job_hash": job_hash, "listing_hash": listing_hash(job),
        "ingest_batch": batch,
    }  # fmt: skip
