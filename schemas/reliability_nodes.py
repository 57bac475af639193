"""Each machine's record over the last 28 days, and whether it stands out from the fleet."""

import pyarrow as pa

from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="reliability_nodes",
    layer=Layer.GOLD,
    row="one machine over the window that ends at the as-of time",
    columns=(
        Column("node", pa.string(), "machine", nullable=False),
        Column("window_start_at", TIMESTAMP, "start of the window"),
        Column("window_end_at", TIMESTAMP, "end of the window"),
        Column("n_jobs", pa.int64(), "jobs that ran on it", nullable=False, minimum=0),
        Column("exposure_days", pa.float64(), "days of work it did", nullable=False, minimum=0),
        Column(
            "n_failures",
            pa.int64(),
            "failed jobs in which it is the first-ranked candidate or an attributed cause",
            nullable=False,
            minimum=0,
        ),
        Column("failures_per_day", pa.float64(), "failures over days of work"),
        Column("low", pa.float64(), "lower end of the exact 95 % interval of the rate"),
        Column("high", pa.float64(), "upper end of the exact 95 % interval of the rate"),
        Column("features", pa.map_(pa.string(), pa.float64()), "value of each feature"),
        Column("fired", STRINGS, "features above their threshold", nullable=False),
        Column("p_value", pa.float64(), "chance of so many failures at the fleet's rate", minimum=0, maximum=1),
        Column(
            "q_value",
            pa.float64(),
            "the same, corrected for the number of machines (Benjamini and Hochberg)",
            minimum=0,
            maximum=1,
        ),
        Column("is_lemon", pa.bool_(), "stands out after correction, and a feature fired", nullable=False),
        Column("n_intervals", pa.int64(), "fault intervals after merging overlaps", nullable=False, minimum=0),
        Column("down_days", pa.float64(), "days in fault, overlaps merged", nullable=False, minimum=0),
        Column("availability", pa.float64(), "share of the window not in fault", minimum=0, maximum=1),
        Column("source_rows", STRINGS, "the jobs behind it, the first hundred in order", nullable=False),
    ),
    key=("node",),
)
