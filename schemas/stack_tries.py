"""Merged stacks: every path with the ranks that are in it and those that are not, as icicles draw it."""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import INTEGERS, STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="stack_tries",
    layer=Layer.GOLD,
    row="one node of the merged stacks of one snapshot and process type",
    columns=(
        JOB_ID,
        Column("node_id", pa.string(), "hash of job, snapshot, process type and path", nullable=False),
        Column("snapshot", pa.string(), "tag that the samples share; empty when they have none", nullable=False),
        Column("sampled_at", TIMESTAMP, "first sample of the snapshot"),
        Column("process_type", pa.string(), "trainer, dataloader, launcher …", nullable=False),
        Column("path", STRINGS, "frames from the outermost to this node", nullable=False),
        Column("has_ranks", INTEGERS, "ranks that are in it", nullable=False),
        Column("missing_ranks", INTEGERS, "ranks of the snapshot that are not", nullable=False),
        Column("n", pa.int32(), "threads in it", nullable=False, minimum=1),
        Column("is_leaf", pa.bool_(), "some thread ends here", nullable=False),
    ),
    key=("job_id", "node_id"),
    replaced_by="job_id",
)
