"""How much of each task's wall-clock was productive: its attempts taken together."""

import pyarrow as pa

from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="reliability_lineages",
    layer=Layer.GOLD,
    row="one task: all attempts that share a lineage",
    columns=(
        Column("lineage_id", pa.string(), "the task", nullable=False),
        Column("n_attempts", pa.int64(), "attempts in the lake", nullable=False, minimum=1),
        Column("n_failures", pa.int64(), "attempts that failed", nullable=False, minimum=0),
        Column(
            "is_censored",
            pa.bool_(),
            "its last attempt was cut short from outside: cancelled, time limit, pre-empted",
            nullable=False,
        ),
        Column("n_nodes", pa.float64(), "machines of its largest attempt"),
        Column("first_submitted_at", TIMESTAMP, "first submission"),
        Column("last_ended_at", TIMESTAMP, "last end"),
        Column("wall_s", pa.float64(), "queue and running time together", minimum=0),
        Column("queue_s", pa.float64(), "waiting in the queue", minimum=0),
        Column("running_s", pa.float64(), "running", minimum=0),
        Column(
            "lost_s",
            pa.float64(),
            "running time that later attempts repeated, or that ran before the first iteration",
            minimum=0,
        ),
        Column("ettr_measured", pa.float64(), "productive over wall-clock", minimum=0, maximum=1),
        Column("ettr_expected", pa.float64(), "the same from the fleet's failure rate and the task's checkpoint interval"),
        Column("ettr_difference", pa.float64(), "measured minus expected"),
        Column("checkpoint_interval_s", pa.float64(), "seconds between checkpoints, where the logs tell it"),
        Column("method", pa.string(), "what was measured and what was assumed", nullable=False),
        Column("source_rows", STRINGS, "the attempts' job ids, in order", nullable=False),
    ),
    key=("lineage_id",),
)
