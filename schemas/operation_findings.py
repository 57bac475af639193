"""What the operations of a job show: ranks that work longer, links that transfer slowly, steps that take longer."""

import pyarrow as pa

from schemas.columns import FINDING_COLUMNS
from schemas.contract import Column, Layer, Table

LAYERS = ("python", "host", "gpu", "collective")
BEYOND = pa.map_(pa.string(), pa.float64())

TABLE = Table(
    name="operation_findings",
    layer=Layer.GOLD,
    row="one difference in the operations or step times of one job",
    columns=(
        *FINDING_COLUMNS,
        Column("layer", pa.string(), "where the difference begins: python, host (OS, I/O), gpu, collective", one_of=LAYERS),
        Column("operation", pa.string(), "operation that explains most of it; `(between operations)` for time that none covers"),
        Column("excess_s", pa.float64(), "seconds a step (or a pause) more than the peers, the time before, or the baselines"),
        Column("share_of_step", pa.float64(), "the same as a share of the step"),
        Column("share_last", pa.float64(), "share of steps in which the accused came last to the collective that the others wait in",
               minimum=0, maximum=1),
        Column("beyond", BEYOND, "median seconds a step beyond the peers, by operation"),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)  # fmt: skip
