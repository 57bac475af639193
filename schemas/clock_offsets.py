"""How far each node's clock is off, estimated from events that all nodes share."""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import Column, Layer, Table

TABLE = Table(
    name="clock_offsets",
    layer=Layer.SILVER,
    row="one node of one job",
    columns=(
        JOB_ID,
        Column("node", pa.string(), "machine", nullable=False),
        Column(
            "offset_s",
            pa.float64(),
            "seconds by which the node's clock was ahead of its peers'; beyond 5 s (flag skew) already subtracted from every stamp of the node",
            nullable=False,
        ),
        Column("spread_s", pa.float64(), "median absolute deviation of the estimates", nullable=False, minimum=0),
        Column(
            "n_shared_events",
            pa.int64(),
            "shared events (steps, collectives) that gave estimates",
            nullable=False,
            minimum=0,
        ),
    ),
    key=("job_id", "node"),
    replaced_by="job_id",
)
