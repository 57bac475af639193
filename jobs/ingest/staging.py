"""Parquet files of one task: rows are gathered, written, judged by their contracts, and moved to their final names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.adapters.archive import JobFiles
from jobs.adapters.job_reader import sha256_of
from jobs.adapters.job_results import content_hash
from jobs.core.lake import arrow_schema
from jobs.core.rules import rules_of
from jobs.ingest.adoption import Counted, count_broken, counter, note_counts
from jobs.ingest.quick_rules import QuickProof
from jobs.ingest.unfit import BOOKS, Unfit, broken_jobs, is_critical, job_row, ledger_rows, quarantine_rows, replaced
from schemas import tables

ROW_GROUP = 1 << 17
HELD_BYTES = 64 << 20


class Staging:
    """Parquet files of one task, one a table: rows are gathered and written in row groups of bounded size."""

    def __init__(self, folder: str, task: str, batch: int = 1) -> None:
        self._folder, self._task, self._batch = Path(folder), task, batch
        self._writers: dict[str, tuple[Path, Path, pq.ParquetWriter]] = {}
        self._held: dict[str, tuple[int, int, list[pa.RecordBatch]]] = {}
        self._proofs: dict[str, QuickProof] = {}

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
        rows = self._complete(table, batches, schema)
        self._proofs.setdefault(table, QuickProof(tables()[table])).see(rows)
        self._open(table)[2].write_table(rows, row_group_size=ROW_GROUP)

    def _open(self, table: str) -> tuple[Path, Path, pq.ParquetWriter]:
        if table not in self._writers:
            final = self._folder / table / f"{self._task}.parquet"
            final.parent.mkdir(parents=True, exist_ok=True)
            draft = final.with_name(f".{self._task}.{os.getpid()}.draft")
            self._writers[table] = (draft, final, pq.ParquetWriter(draft, arrow_schema(table), **_storage(table)))
        return self._writers[table]

    def _complete(self, table: str, batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        """The rows with the number of this ingest, where the contract has a place for it."""
        rows, wanted = pa.Table.from_batches(batches, schema), arrow_schema(table)
        if "ingest_batch" not in wanted.names:
            return rows
        number = pa.repeat(pa.scalar(self._batch, pa.int64()), rows.num_rows)
        return rows.add_column(wanted.get_field_index("ingest_batch"), wanted.field("ingest_batch"), number)

    def finish(self, jobs: Sequence[JobFiles] = (), unfit: Mapping[str, Unfit] | None = None) -> dict[str, Unfit]:
        """Write what is held and give the files their final names; the jobs that were set aside, `unfit` and others."""
        for table, (_, _, batches) in list(self._held.items()):
            self._flush(table, batches[0].schema)
        for _, _, writer in self._writers.values():
            writer.close()
        with counter(self.folder) as connection:
            counts = {table: self._counted(connection, table) for table in self._writers}
            gone = dict(unfit or {})
            for table in sorted(counts, key=lambda table: (table in BOOKS, table)):
                if is_critical(rules_of(tables()[table]), counts[table].broken):
                    gone = broken_jobs(connection, self._writers[table][0], table) | gone
            if gone:
                counts = self._without(connection, {job.job_id: job for job in jobs}, gone)
            for table, counted in counts.items():
                draft, final, _ = self._writers[table]
                note_counts(counted, final)
                os.replace(draft, final)
        return gone

    def _counted(self, connection: duckdb.DuckDBPyConnection, table: str) -> Counted:
        proved = self._proofs[table].counts()
        return proved or count_broken(connection, self._writers[table][0], table)

    def _without(
        self, connection: duckdb.DuckDBPyConnection, jobs: Mapping[str, JobFiles], gone: Mapping[str, Unfit]
    ) -> dict[str, Counted]:
        """Leave out jobs but for what the books tell of them; the counts of each table anew."""
        added: dict[str, list[dict[str, Any]]] = {table: [] for table in BOOKS}
        staged = self._writers.get("ingested_files")
        for job_id, why in sorted(gone.items()):
            job = jobs[job_id]
            ledger = ledger_rows(staged[0] if staged else None, job, why, self._batch)
            hashes = {file.path: sha256_of(file) for file in job.files}
            added["ingested_files"] += ledger
            added["quarantine"] += quarantine_rows(ledger, why, self._batch)
            added["training_jobs"].append(job_row(job, content_hash(job, hashes), why, self._batch))
        counts = {}
        for table in sorted({*self._writers, *BOOKS}):
            if table not in self._writers:
                self._open(table)[2].close()
            draft = self._writers[table][0]
            if replaced(draft, table, gone, added.get(table, []), _storage(table)):
                counts[table] = count_broken(connection, draft, table)
            else:
                draft.unlink()
        return counts

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
