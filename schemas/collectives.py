"""Flight-recorder entries: the collectives that each rank enqueued, started and completed."""

import pyarrow as pa

from schemas.columns import FILE, JOB_ID, NODE
from schemas.contract import INTEGERS, STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="collectives",
    layer=Layer.SILVER,
    row="one entry of one rank's flight recorder, or one of its groups with how far the rank came in it",
    columns=(
        JOB_ID,
        NODE,
        Column("rank", pa.int32(), "global rank", nullable=False, minimum=0),
        Column("record_id", pa.int64(), "number of the entry on its rank; negative for a row about a group"),
        Column("pg_id", pa.string(), "process group id, as recorded; may be reused after a split"),
        Column("group", pa.string(), "group's name and description"),
        Column(
            "group_ranks",
            INTEGERS,
            "ranks of the group, on the rows about groups only; empty when not recorded",
            nullable=False,
        ),
        Column("sequence", pa.int64(), "collective sequence number in its group, or the point-to-point one"),
        Column("is_p2p", pa.bool_(), "send or receive", nullable=False),
        Column("op", pa.string(), "operation with its back end: nccl:all_reduce"),
        Column("input_sizes", pa.string(), "shapes, as JSON"),
        Column("output_sizes", pa.string(), "shapes, as JSON"),
        Column("input_dtypes", pa.string(), "types, as JSON"),
        Column("output_dtypes", pa.string(), "types, as JSON"),
        Column("state", pa.string(), "scheduled, started or completed"),
        Column("created_at", TIMESTAMP, "when it was enqueued"),
        Column("started_at", TIMESTAMP, "when its start was discovered"),
        Column("completed_at", TIMESTAMP, "when its end was discovered"),
        Column("duration_ms", pa.float64(), "duration, where recorded"),
        Column("timeout_ms", pa.float64(), "time-out of the group"),
        Column("frames", STRINGS, "`function (file:line)`, outermost first", nullable=False),
        Column("last_enqueued", pa.int64(), "group's last enqueued sequence on this rank"),
        Column("last_started", pa.int64(), "group's last started sequence on this rank"),
        Column("last_completed", pa.int64(), "group's last completed sequence on this rank"),
        FILE,
    ),
    key=("job_id", "file", "record_id"),
    replaced_by="job_id",
)
