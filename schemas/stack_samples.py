"""Stack samples: S = (job, timestamp, node, rank, process type, pid, thread, frames)."""

import pyarrow as pa

from schemas.columns import FILE, JOB_ID, NODE, RANK
from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="stack_samples",
    layer=Layer.SILVER,
    row="one thread of one process at one moment",
    columns=(
        JOB_ID,
        Column("sampled_at", TIMESTAMP, "when it was taken"),
        Column("snapshot", pa.string(), "tag that samples taken together share, as in the file's name"),
        NODE,
        RANK,
        Column("process_type", pa.string(), "trainer, dataloader, launcher …"),
        Column("pid", pa.int64(), "process"),
        Column("thread_id", pa.string(), "thread"),
        Column("thread_name", pa.string(), "thread's name"),
        Column("is_active", pa.bool_(), "running on a processor when sampled"),
        Column("has_gil", pa.bool_(), "held Python's global lock when sampled"),
        Column(
            "frames",
            STRINGS,
            "`function (file:line)`, outermost first; arguments and locals are never kept",
            nullable=False,
        ),
        FILE,
    ),
    key=("job_id", "file", "pid", "thread_id", "sampled_at"),
    replaced_by="job_id",
)
