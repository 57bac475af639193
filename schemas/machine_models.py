"""The registry: what was learnt about each metric from healthy jobs, as plain arrays with a card."""

import pyarrow as pa

from schemas.contract import STRING_MAP, STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="machine_models",
    layer=Layer.GOLD,
    row="the model of one metric",
    columns=(
        Column("metric", pa.string(), "canonical name of the metric", nullable=False),
        Column("model_id", pa.string(), "first 16 hex digits of the SHA-256 of `model`", nullable=False, pattern="^[0-9a-f]{16}$"),
        Column("unit", pa.string(), "unit that the metric must have to be scored"),
        Column(
            "method", pa.string(), "calibrated: thresholds learnt from held-out healthy jobs; default_thresholds: too few of them yet",
            nullable=False, one_of=("calibrated", "default_thresholds"),
        ),
        Column("embedding", pa.string(), "how windows are denoised", nullable=False, one_of=("pca", "none")),
        Column("priority", pa.int32(), "place in the order in which metrics are tried, from 1", nullable=False, minimum=1),
        Column("weights", pa.list_(pa.float64()), "filter of a window's samples, empty for the plain mean", nullable=False),
        Column("thresholds", pa.map_(pa.string(), pa.float64()), "threshold by aspect|seconds, in spreads of the peers", nullable=False),
        Column("false_alarms_per_job_day", pa.float64(), "rate that the thresholds of all metrics together aim at", nullable=False, minimum=0),
        Column("n_job_days", pa.float64(), "job-days that the thresholds rest on", nullable=False, minimum=0),
        Column("training_jobs", STRINGS, "healthy jobs that gave the embedding and the usual offsets", nullable=False),
        Column("calibration_jobs", STRINGS, "healthy jobs that gave the thresholds", nullable=False),
        Column("excluded_jobs", STRINGS, "successful jobs in which a machine stood out: not healthy enough to learn from", nullable=False),
        Column("data_from_at", TIMESTAMP, "start of the first job used"),
        Column("data_to_at", TIMESTAMP, "end of the last job used"),
        Column("table_versions", pa.map_(pa.string(), pa.int64()), "Delta versions of the tables read", nullable=False),
        Column("libraries", STRING_MAP, "library versions that must be the same for scoring", nullable=False),
        Column("seed", pa.int64(), "seed of every draw", nullable=False),
        Column("model", pa.string(), "the whole model as canonical JSON: equal data and seed give equal bytes", nullable=False),
    ),
    key=("metric",),
    replaced_by=None,
)  # fmt: skip
