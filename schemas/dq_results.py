"""What the expectations said of each table that a stage wrote: no raw values, only counts."""

import pyarrow as pa

from schemas.contract import Column, Layer, Severity, Table

TABLE = Table(
    name="dq_results",
    layer=Layer.GOLD,
    row="one expectation of one table, as of the last write of that table",
    columns=(
        Column("suite", pa.string(), "the table that was validated", nullable=False),
        Column("expectation", pa.string(), "what was expected: column and rule", nullable=False),
        Column(
            "expectation_type",
            pa.string(),
            "Great Expectations' name of the rule that gave the verdict",
            nullable=False,
        ),
        Column("severity", pa.string(), "critical stops the stage", nullable=False, one_of=tuple(s.value for s in Severity)),
        Column("is_success", pa.bool_(), "holds for every row", nullable=False),
        Column("n_rows", pa.int64(), "rows validated", nullable=False, minimum=0),
        Column("n_unexpected", pa.int64(), "rows that break it", nullable=False, minimum=0),
    ),
    key=("suite", "expectation"),
    replaced_by="suite",
)
