"""Profile events: what each rank did in each step, and for how long."""

import pyarrow as pa

from schemas.columns import FILE, JOB_ID, NODE, RANK
from schemas.contract import Column, Layer, Table

KINDS = (
    "python", "host", "gpu", "collective", "p2p", "memcpy", "data", "forward", "backward", "optimizer", "loss",
    "checkpoint", "gc", "step", "other",
)  # fmt: skip
LAYERS = ("python", "host", "gpu", "collective")

TABLE = Table(
    name="operations",
    layer=Layer.SILVER,
    row="one operation of one rank in one step, or (n_calls > 1) its sum over the step",
    columns=(
        JOB_ID,
        NODE,
        RANK,
        Column("step", pa.int64(), "training step", minimum=0),
        Column("kind", pa.string(), "kind of operation", nullable=False, one_of=KINDS),
        Column("layer", pa.string(), "where it runs: python, host (OS, I/O), gpu, collective", one_of=LAYERS),
        Column("name", pa.string(), "name as recorded", nullable=False),
        Column("started_us", pa.int64(), "start, µs since 1970 by the node's clock"),
        Column("duration_us", pa.float64(), "duration, µs", nullable=False, minimum=0),
        Column("n_calls", pa.int32(), "calls summed here", nullable=False, minimum=1),
        Column("parent", pa.string(), "name of the enclosing operation, null at top level"),
        Column("group", pa.string(), "process group of a collective"),
        Column("stage", pa.int32(), "pipeline stage"),
        Column("dp_rank", pa.int32(), "data-parallel rank"),
        Column("micro_batch", pa.int32(), "micro-batch"),
        Column("sequence", pa.int64(), "order within step, rank and kind, as recorded"),
        Column("source", pa.string(), "timeline, kineto or whatif", one_of=("timeline", "kineto", "whatif")),
        FILE,
    ),
    key=("job_id", "file", "rank", "step", "name", "started_us"),
    replaced_by="job_id",
)
