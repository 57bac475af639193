"""Machines that are a little off in every job they serve."""

import pyarrow as pa

from schemas.contract import TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="machine_drift",
    layer=Layer.GOLD,
    row="one machine in one metric over the last weeks",
    columns=(
        Column("node", pa.string(), "machine", nullable=False),
        Column("metric", pa.string(), "metric", nullable=False),
        Column("score", pa.float64(), "how constantly and how far it is off, 0 to 1", nullable=False, minimum=0, maximum=1),
        Column(
            "mean_difference",
            pa.float64(),
            "mean difference to its peers, weighted by time, in spreads between peers",
            nullable=False,
        ),
        Column(
            "same_side_share",
            pa.float64(),
            "share of its time in which it was off to that side",
            nullable=False,
            minimum=0,
            maximum=1,
        ),
        Column("n_jobs", pa.int32(), "jobs it served", nullable=False, minimum=1),
        Column("exposure_s", pa.float64(), "time for which it was observed", nullable=False, minimum=0),
        Column("first_job_at", TIMESTAMP, "start of the first of these jobs"),
        Column("last_job_at", TIMESTAMP, "start of the last of these jobs"),
        Column("statement", pa.string(), "one sentence for a person", nullable=False),
    ),
    key=("node", "metric"),
    replaced_by=None,
)
