"""Training progress as the logs print it: one row an iteration line."""

import pyarrow as pa

from schemas.columns import FILE, JOB_ID, NODE, RANK
from schemas.contract import TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="iterations",
    layer=Layer.SILVER,
    row="one iteration line of a log, parsed as key-value pairs",
    columns=(
        JOB_ID,
        NODE,
        RANK,
        Column("iteration", pa.int64(), "training step", nullable=False, minimum=0),
        Column("n_planned", pa.int64(), "total iterations planned, where printed", minimum=0),
        Column("occurred_at", TIMESTAMP, "when the line was printed"),
        Column("step_time_s", pa.float64(), "seconds for one iteration, as printed"),
        Column("loss", pa.float64(), "training loss; NaN stays NaN"),
        Column("grad_norm", pa.float64(), "gradient norm; NaN stays NaN"),
        Column("n_skipped", pa.int64(), "skipped iterations, as printed"),
        Column("values", pa.map_(pa.string(), pa.float64()), "every numeric pair of the line, by its printed name"),
        FILE,
        Column("line", pa.int64(), "number of the line, from 1"),
    ),
    key=("job_id", "file", "line"),
    replaced_by="job_id",
)
