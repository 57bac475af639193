"""How reliable the fleet is: every figure with its interval, its exposure and the rows that it stands on."""

import pyarrow as pa

from schemas.contract import STRINGS, Check, Column, Layer, Severity, Table

BASES = ("measured", "projected", "expected")

TABLE = Table(
    name="reliability_figures",
    layer=Layer.GOLD,
    row="one figure of one scope: the fleet, a job size, a cause, a code version, a week",
    columns=(
        Column(
            "figure",
            pa.string(),
            "which figure, snake_case with its unit: mttf_h, failures_per_node_day …",
            nullable=False,
        ),
        Column("scope_kind", pa.string(), "what it is a figure of: fleet, n_gpus, cause_class, week …", nullable=False),
        Column("scope", pa.string(), "which one of these", nullable=False),
        Column(
            "basis",
            pa.string(),
            "measured from rows, projected from a rate, or expected from a formula",
            nullable=False,
            one_of=BASES,
        ),
        Column("value", pa.float64(), "the figure; null when there is nothing to compute it from"),
        Column("low", pa.float64(), "lower end of the 95 % interval; null when there is none"),
        Column("high", pa.float64(), "upper end of the 95 % interval; null when unbounded or when there is none"),
        Column("unit", pa.string(), "unit of value, low and high", nullable=False),
        Column("n_events", pa.int64(), "events counted (failures, jobs, intervals)", nullable=False, minimum=0),
        Column(
            "n_censored",
            pa.int64(),
            "runs that ended before they could fail: cancelled, time limit, pre-empted",
            nullable=False,
            minimum=0,
        ),
        Column("exposure", pa.float64(), "what the events are counted over", minimum=0),
        Column("exposure_unit", pa.string(), "unit of the exposure: node-days, GPU-hours, jobs …"),
        Column("is_small", pa.bool_(), "fewer than ten events: read the interval, not the value", nullable=False),
        Column("method", pa.string(), "how it was computed, in one sentence", nullable=False),
        Column("source_table", pa.string(), "table of the source rows", nullable=False),
        Column("source_rows", STRINGS, "keys of the rows behind it, the first hundred in order", nullable=False),
        Column("n_source_rows", pa.int64(), "how many rows are behind it", nullable=False, minimum=0),
    ),
    key=("figure", "scope_kind", "scope", "basis"),
    checks=(
        Check(
            "interval_holds_value",
            "low IS NULL OR high IS NULL OR value IS NULL OR (low <= value AND value <= high)",
            Severity.WARNING,
        ),
    ),
)
