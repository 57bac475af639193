"""How each machine of a job compares with its peers."""

import pyarrow as pa

from schemas.columns import FINDING_COLUMNS
from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="machine_scores",
    layer=Layer.GOLD,
    row="one machine of one job in the metric in which it differs most, and in every further one in which it stands out; "
    "one row without a machine for what could not be compared",
    columns=(
        *FINDING_COLUMNS,
        Column("machine_rank", pa.int32(), "place among the job's machines, 1 for the one that differs most", minimum=1),
        Column("metric", pa.string(), "metric in which it differs"),
        Column("unit", pa.string(), "unit of the metric"),
        Column(
            "aspect",
            pa.string(),
            "what differs",
            one_of=("level", "change", "roughness", "gaps", "stuck", "unexplained", "erratic"),
        ),
        Column("window_start_at", TIMESTAMP, "when the difference began"),
        Column("window_end_at", TIMESTAMP, "when it ended, or the metrics did"),
        Column("continuity_s", pa.float64(), "longest time without a break for which it stood out; 0 when it did not", minimum=0),
        Column("value", pa.float64(), "the machine's mean in the window; a share of samples for gaps and stuck"),
        Column("peer_low", pa.float64(), "lowest of its peers' means (5th percentile of many)"),
        Column("peer_high", pa.float64(), "highest of its peers' means (95th percentile of many)"),
        Column("n_peers", pa.int32(), "machines or devices of the same role that it was compared with", minimum=0),
        Column("ratio", pa.float64(), "difference in units of the threshold: 1 and more stands out", minimum=0),
        Column("model_id", pa.string(), "model that gave the threshold"),
        Column("method", pa.string(), "calibrated, or default_thresholds where no fitting model was there"),
        Column("n_events", pa.int32(), "node events of the machine in the window", minimum=0),
        Column("exposure_s", pa.float64(), "time for which the machine was observed in the job", minimum=0),
        Column(
            "usual_differences",
            pa.map_(pa.string(), pa.float64()),
            "usual difference by metric, in spreads between peers; on the machine's first row",
        ),
        Column(
            "remarks", STRINGS, "metrics and machines that were not compared, and models refused, with the reason", nullable=False
        ),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)
