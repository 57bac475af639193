"""Log messages as they were read: merged, cleaned, redacted, with their context, before any template."""

import pyarrow as pa

from schemas.columns import FILE, INGEST_BATCH, ITERATION, JOB_ID, LOCAL_RANK, NODE, PHASE, RANK, ROLE
from schemas.contract import TIMESTAMP, Column, Layer, Table

TIME_SOURCES = ("line", "json", "filename", "mtime", "interpolated")

RECORD_COLUMNS = (
    JOB_ID,
    FILE,
    Column("line", pa.int64(), "number of the first line, from 1", minimum=1),
    Column("byte_offset", pa.int64(), "offset of the first byte in the decompressed file", minimum=0),
    Column("n_lines", pa.int32(), "lines merged into this event", minimum=1),
    Column("occurred_at", TIMESTAMP, "when it was printed, UTC"),
    Column("onset_at", TIMESTAMP, "when what it tells of began: a watchdog's stamp minus the time it says it waited"),
    Column("time_source", pa.string(), "where the time comes from", one_of=TIME_SOURCES),
    Column("time_uncertainty_s", pa.float64(), "how far off the time may be, seconds", minimum=0),
    NODE,
    RANK,
    LOCAL_RANK,
    ROLE,
    Column("attempt", pa.int32(), "restart attempt, from 0", minimum=0),
    Column("stream", pa.string(), "stdout, stderr, agent or other"),
    Column("level", pa.string(), "DEBUG, INFO, WARNING, ERROR, CRITICAL; null where none is printed"),
    Column(
        "message",
        pa.string(),
        "text without stamp, prefix and colour; redacted; merged lines joined by newlines",
        nullable=False,
    ),
    Column("message_key", pa.int64(), "64-bit hash of the masked message", nullable=False),
    PHASE,
    ITERATION,
)

TABLE = Table(
    name="log_records",
    layer=Layer.BRONZE,
    row="one log event (one or more merged lines) before templates are assigned",
    columns=(*RECORD_COLUMNS, INGEST_BATCH),
    key=("job_id", "file", "byte_offset", "rank"),
    replaced_by="job_id",
)
