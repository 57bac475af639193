"""What people found out about failures. Written by `fleetdiff verdict`; the newest row of a job counts."""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="verdicts",
    layer=Layer.GOLD,
    row="one verdict of one person on one job",
    columns=(
        JOB_ID,
        Column("cause", pa.string(), "what it was, in the person's words", nullable=False),
        Column("note", pa.string(), "anything else worth knowing"),
        Column("is_verified", pa.bool_(), "the person confirmed it; otherwise it is a guess", nullable=False),
        Column("author", pa.string(), "who says so"),
        Column("written_at", TIMESTAMP, "when it was written", nullable=False),
    ),
    key=("job_id", "written_at"),
)
