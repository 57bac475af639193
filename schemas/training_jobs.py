"""Identity, times, outcome and configuration of each finished training job."""

import pyarrow as pa

from schemas.columns import INGEST_BATCH, JOB_ID
from schemas.contract import STRING_MAP, STRINGS, TIMESTAMP, Check, Column, Layer, Severity, Table

STATES = (
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL",
    "DEADLINE", "REVOKED", "REQUEUED", "RESIZING", "UNKNOWN",
)  # fmt: skip

TABLE = Table(
    name="training_jobs",
    layer=Layer.SILVER,
    row="one finished attempt of a training task",
    columns=(
        JOB_ID,
        Column("name", pa.string(), "what its user called it"),
        Column("user", pa.string(), "who ran it"),
        Column("cluster", pa.string(), "where it ran"),
        Column("partition", pa.string(), "queue or partition"),
        Column("state", pa.string(), "how the scheduler says it ended, in Slurm's words", nullable=False, one_of=STATES),
        Column("exit_code", pa.int32(), "exit code of the job's first process"),
        Column("node_exit_codes", pa.map_(pa.string(), pa.int32()), "exit code of each node's launcher"),
        Column("submitted_at", TIMESTAMP, "when it was submitted"),
        Column("started_at", TIMESTAMP, "when it started"),
        Column("ended_at", TIMESTAMP, "when it ended"),
        Column("nodes", STRINGS, "hosts, in rank order", nullable=False),
        Column("n_nodes", pa.int32(), "number of hosts", minimum=0),
        Column("world_size", pa.int32(), "number of ranks", minimum=0),
        Column("n_gpus", pa.int32(), "number of accelerators", minimum=0),
        Column("lineage_id", pa.string(), "the task of which this is one attempt"),
        Column("attempt", pa.int32(), "number of the attempt within its lineage, from 0", minimum=0),
        Column("config", STRING_MAP, "full configuration, flattened: nested keys joined by dots, values as text"),
        Column("coverage", pa.map_(pa.string(), pa.float64()), "share of ranks or nodes that each source covers, 0 to 1"),
        Column("flags", STRINGS, "what was inferred, missing or wrong, from a closed list", nullable=False),
        Column("notes", STRINGS, "the same in sentences", nullable=False),
        Column("archive_path", pa.string(), "folder of the job below the archive"),
        Column("job_hash", pa.string(), "hash of the content of all its files", nullable=False),
        Column("listing_hash", pa.string(), "hash of its files' paths, sizes and times: while it stays, nothing is read again"),
        INGEST_BATCH,
    ),
    key=("job_id",),
    replaced_by="job_id",
    checks=(Check("ends_after_it_starts", "ended_at IS NULL OR started_at IS NULL OR ended_at >= started_at", Severity.WARNING),),
)
