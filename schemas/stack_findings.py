"""What the stacks of a job say: who waits, who blocks, and whether it made progress."""

import pyarrow as pa

from schemas.columns import FINDING_COLUMNS
from schemas.contract import STRINGS, Column, Layer, Table

TABLE = Table(
    name="stack_findings",
    layer=Layer.GOLD,
    row="one difference between the stacks of a job's ranks, or between its moments",
    columns=(
        *FINDING_COLUMNS,
        Column("process_type", pa.string(), "processes that were compared: trainer, dataloader …"),
        Column("path", STRINGS, "frames by which the ranks stand out, outermost first", nullable=False),
        Column("n_ranks", pa.int32(), "ranks that were compared", minimum=0),
        Column("n_snapshots", pa.int32(), "samples in time on which it rests", minimum=0),
        Column("duration_s", pa.float64(), "how long it lasted, between the samples and the silence around them", minimum=0),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)
