"""Topology: which rank ran where. It lives here alone."""

import pyarrow as pa

from schemas.columns import DEVICE, JOB_ID, LOCAL_RANK, NODE, ROLE
from schemas.contract import INTEGERS, Column, Layer, Table

TABLE = Table(
    name="ranks",
    layer=Layer.SILVER,
    row="one rank of one job, with its place and its parallel groups",
    columns=(
        JOB_ID,
        Column("rank", pa.int32(), "global rank", nullable=False, minimum=0),
        NODE,
        LOCAL_RANK,
        DEVICE,
        Column("nic", pa.string(), "network interface"),
        Column("switch", pa.string(), "first switch above the node"),
        ROLE,
        Column("groups", pa.map_(pa.string(), INTEGERS), "ranks of each parallel group (tp, pp, dp …) that this rank is in"),
    ),
    key=("job_id", "rank"),
    replaced_by="job_id",
)
