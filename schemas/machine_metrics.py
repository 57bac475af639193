"""Metrics of machines on a regular grid: one row a series, its values as an array."""

import pyarrow as pa

from schemas.columns import DEVICE, FILE, JOB_ID
from schemas.contract import TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="machine_metrics",
    layer=Layer.SILVER,
    row="one metric of one machine or device during one job, on the job's grid",
    columns=(
        JOB_ID,
        Column("node", pa.string(), "machine", nullable=False),
        DEVICE,
        Column("metric", pa.string(), "canonical name, counters as rates: cpu.user_s_rate, gpu.power.w", nullable=False),
        Column("unit", pa.string(), "unit of the values"),
        Column("is_rate", pa.bool_(), "made from a counter", nullable=False),
        Column("grid_start_at", TIMESTAMP, "time of the first value", nullable=False),
        Column(
            "period_s",
            pa.float64(),
            "seconds between values; the same for all series of the metric in the job",
            nullable=False,
            minimum=0,
        ),
        Column(
            "values",
            pa.list_(pa.float64()),
            "one value a grid point; null where a gap was too large to fill",
            nullable=False,
        ),
        Column("n_samples", pa.int64(), "samples read", nullable=False, minimum=0),
        Column("n_gap_points", pa.int64(), "grid points left null", nullable=False, minimum=0),
        FILE,
    ),
    key=("job_id", "node", "device", "metric"),
    replaced_by="job_id",
)
