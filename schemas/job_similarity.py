"""For each failed job the failures that look most like it."""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="job_similarity",
    layer=Layer.GOLD,
    row="one look-alike of one failed job",
    columns=(
        JOB_ID,
        Column("position", pa.int32(), "1 looks most alike", nullable=False, minimum=1),
        Column("similar_job_id", pa.string(), "the other failed job", nullable=False),
        Column("score", pa.float64(), "weighted share of what both show, 0 to 1", nullable=False, minimum=0, maximum=1),
        Column("shared", STRINGS, "what both show, heaviest first: `kind:value`", nullable=False),
        Column("symptom", pa.string(), "the other job's symptom", nullable=False),
        Column("ended_at", TIMESTAMP, "when the other job ended"),
        Column("family_id", pa.string(), "the other job's failure family", nullable=False),
    ),
    key=("job_id", "position"),
    replaced_by="job_id",
)
