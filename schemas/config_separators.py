"""Which settings best separate failed from successful jobs of the same models: hints, corrected for how many were tried."""

import pyarrow as pa

from schemas.contract import Column, Layer, Table

GROUP_KINDS = ("family", "symptom", "state", "metric")

TABLE = Table(
    name="config_separators",
    layer=Layer.GOLD,
    row="one setting that separates one group of jobs from successful ones",
    columns=(
        Column("group_kind", pa.string(), "what the group is", nullable=False, one_of=GROUP_KINDS),
        Column("group_id", pa.string(), "family_id, symptom, `failed`, or the metric's name", nullable=False),
        Column("position", pa.int32(), "1 separates best", nullable=False, minimum=1),
        Column("key", pa.string(), "configuration key", nullable=False),
        Column("value", pa.string(), "value that is more, or less, frequent in the group", nullable=False),
        Column("n_group_with", pa.int64(), "jobs of the group with the value", nullable=False, minimum=0),
        Column("n_group", pa.int64(), "jobs of the group", nullable=False, minimum=1),
        Column("n_others_with", pa.int64(), "other jobs of the same models with the value", nullable=False, minimum=0),
        Column("n_others", pa.int64(), "other jobs of the same models", nullable=False, minimum=1),
        Column("odds_ratio", pa.float64(), "odds of the value in the group over its odds in the others", nullable=False, minimum=0),
        Column("odds_low", pa.float64(), "lower end of its 95 % interval", nullable=False, minimum=0),
        Column("odds_high", pa.float64(), "upper end of its 95 % interval", nullable=False, minimum=0),
        Column("p_value", pa.float64(), "Fisher's exact test, two-sided", nullable=False, minimum=0, maximum=1),
        Column("p_adjusted", pa.float64(), "the same, corrected for the keys tried (Holm)", nullable=False, minimum=0, maximum=1),
        Column("n_keys", pa.int64(), "keys tried", nullable=False, minimum=1),
        Column("statement", pa.string(), "the hint in a sentence", nullable=False),
    ),
    key=("group_kind", "group_id", "position"),
)
