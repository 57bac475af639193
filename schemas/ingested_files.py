"""The ledger: every file of the archive, once, with what became of it."""

import pyarrow as pa

from schemas.columns import INGEST_BATCH, JOB_ID
from schemas.contract import STRINGS, TIMESTAMP, Check, Column, Layer, Table

STATES = ("read", "partial", "quarantined", "empty", "alias", "ignored")

TABLE = Table(
    name="ingested_files",
    layer=Layer.BRONZE,
    row="one file of one job's folder",
    columns=(
        JOB_ID,
        Column("path", pa.string(), "path inside the job's folder; `bundle.tar!member` inside a bundle", nullable=False),
        Column("sha256", pa.string(), "hash of the content; null when it could not be read"),
        Column("size_bytes", pa.int64(), "size on disk", nullable=False, minimum=0),
        Column("modified_at", TIMESTAMP, "modification time"),
        Column("adapter", pa.string(), "adapter that read it"),
        Column("adapter_version", pa.int32(), "its version"),
        Column("confidence", pa.float64(), "how surely the adapter recognised it", minimum=0, maximum=1),
        Column("state", pa.string(), "what became of it", nullable=False, one_of=STATES),
        Column("alias_of", pa.string(), "path of the file with the same content that was read"),
        Column("n_read", pa.int64(), "records (lines, samples, entries) read", nullable=False, minimum=0),
        Column(
            "n_kept",
            pa.int64(),
            "records that went into silver tables or were merged into their rows",
            nullable=False,
            minimum=0,
        ),
        Column("n_quarantined", pa.int64(), "records in quarantine", nullable=False, minimum=0),
        Column(
            "n_understood",
            pa.int64(),
            "kept records that a format recognised beyond raw text",
            nullable=False,
            minimum=0,
        ),
        Column("first_at", TIMESTAMP, "earliest time in it"),
        Column("last_at", TIMESTAMP, "latest time in it"),
        Column("encoding", pa.string(), "text encoding"),
        Column("flags", STRINGS, "truncated, interleaved, decode_errors, skew …", nullable=False),
        Column("redactions", pa.map_(pa.string(), pa.int64()), "secrets replaced, by rule"),
        INGEST_BATCH,
    ),
    key=("job_id", "path"),
    replaced_by="job_id",
    checks=(Check("nothing_is_lost", "n_read = n_kept + n_quarantined"),),
)
