"""Counts of templates by job, role and node: the only table that diffs across jobs scan."""

import pyarrow as pa

from schemas.columns import FILE, JOB_ID, LIBRARY_VERSION, NODE, PHASES, ROLE
from schemas.contract import INTEGERS, STRINGS, TIMESTAMP, Check, Column, Layer, Table
from schemas.templates import ALERT, PROVENANCE, TEMPLATE_ID

TABLE = Table(
    name="job_templates",
    layer=Layer.GOLD,
    row="one template in one job, role and node",
    columns=(
        JOB_ID,
        TEMPLATE_ID,
        ROLE,
        NODE,
        Column("n_events", pa.int64(), "events", nullable=False, minimum=1),
        Column("first_at", TIMESTAMP, "first time"),
        Column("last_at", TIMESTAMP, "last time"),
        Column("first_onset_at", TIMESTAMP, "earliest `onset_at`: when what it tells of began"),
        Column("first_iteration", pa.int64(), "first iteration", minimum=0),
        Column("last_iteration", pa.int64(), "last iteration", minimum=0),
        Column("ranks", INTEGERS, "global ranks that printed it, sorted", nullable=False),
        Column("rank_ranges", pa.string(), "the same as text: `0-7,12`", nullable=False),
        Column("n_ranks", pa.int32(), "number of ranks", nullable=False, minimum=0),
        Column("first_phase", pa.string(), "phase of the first event", one_of=PHASES),
        Column("phases", pa.map_(pa.string(), pa.int64()), "events by phase", nullable=False),
        Column("levels", STRINGS, "levels, sorted", nullable=False),
        Column("streams", STRINGS, "streams, sorted", nullable=False),
        Column("example_file", FILE.type, "file of the first event"),
        Column("example_line", pa.int64(), "line of the first event, from 1", minimum=1),
        ALERT,
        PROVENANCE,
        LIBRARY_VERSION,
    ),
    key=("job_id", "template_id", "role", "node"),
    replaced_by="job_id",
    checks=(Check("first_is_not_after_last", "first_at IS NULL OR last_at IS NULL OR first_at <= last_at"),),
)
