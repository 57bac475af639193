"""The successful jobs whose configuration matches each job's, or why there is none."""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import TIMESTAMP, Check, Column, Layer, Table

DIFFERING = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("this", pa.string()), pa.field("baseline", pa.string())]))

TABLE = Table(
    name="baselines",
    layer=Layer.GOLD,
    row="one baseline of one job; a single row without a baseline when none is comparable",
    columns=(
        JOB_ID,
        Column("position", pa.int32(), "1 is the best match; 0 in the row of a refusal", nullable=False, minimum=0),
        Column("baseline_job_id", pa.string(), "the successful job; null when none is comparable"),
        Column("score", pa.float64(), "likeness of the configurations, 0 to 1", minimum=0, maximum=1),
        Column("n_ranks", pa.int32(), "ranks of the baseline", minimum=0),
        Column("ended_at", TIMESTAMP, "when the baseline ended"),
        Column("differing", DIFFERING, "every differing setting with both values, heaviest first", nullable=False),
        Column("sentence", pa.string(), "the distance in words"),
        Column("refused", pa.string(), "why no job is comparable; null when one is"),
    ),
    key=("job_id", "position"),
    replaced_by="job_id",
    checks=(Check("baseline_or_reason", "(baseline_job_id IS NULL) = (refused IS NOT NULL)"),),
)
