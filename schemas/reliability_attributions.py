"""Which events of nodes may have ended which job: every cause in the window is kept, one is primary."""

import pyarrow as pa

from schemas.columns import DEVICE, FILE, JOB_ID
from schemas.contract import TIMESTAMP, Column, Layer, Table
from schemas.node_events import KINDS

TABLE = Table(
    name="reliability_attributions",
    layer=Layer.GOLD,
    row="one event of one of a job's nodes between ten minutes before its end and five minutes after",
    columns=(
        JOB_ID,
        Column("node", pa.string(), "machine", nullable=False),
        DEVICE,
        Column("occurred_at", TIMESTAMP, "when the event happened", nullable=False),
        Column(
            "offset_s",
            pa.float64(),
            "seconds after the job's end; negative before it",
            nullable=False,
            minimum=-600,
            maximum=300,
        ),
        Column("kind", pa.string(), "kind of event", nullable=False, one_of=KINDS),
        Column("code", pa.int32(), "Xid or exit code"),
        Column("severity", pa.string(), "info, warning, critical", nullable=False),
        Column("cause_class", pa.string(), "class of the failure taxonomy that the event stands for", nullable=False),
        Column("is_primary", pa.bool_(), "the most severe, then the earliest", nullable=False),
        Column("n_causes", pa.int64(), "causes kept for this job", nullable=False, minimum=1),
        FILE,
        Column("byte_offset", pa.int64(), "offset in the file"),
    ),
    key=("job_id", "node", "occurred_at", "kind", "file", "byte_offset"),
)
