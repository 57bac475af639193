"""What the flight recorders of a job say: which ranks are missing from, or disagree in, which collective."""

import pyarrow as pa

from schemas.columns import FINDING_COLUMNS
from schemas.contract import INTEGERS, Column, Layer, Table

SYNDROMES = ("comm_hang", "noncomm_hang", "comm_slow", "noncomm_slow", "none")

TABLE = Table(
    name="collective_findings",
    layer=Layer.GOLD,
    row="one rank that others wait for, or one collective that is not over, in a job's flight recorders",
    columns=(
        *FINDING_COLUMNS,
        Column("syndrome", pa.string(), "communication or not, hang or slow, of the whole job", one_of=SYNDROMES),
        Column("reason", pa.string(), "why the rank is named: never_came, no_dump, not_completing, mismatch …"),
        Column("group", pa.string(), "process group's name and description"),
        Column("group_ranks", INTEGERS, "ranks of the group", nullable=False),
        Column("sequence", pa.int64(), "sequence number in the group"),
        Column("op", pa.string(), "operation with its back end"),
        Column("missing_ranks", INTEGERS, "ranks that never enqueued it or left no dump", nullable=False),
        Column("waiting_ranks", INTEGERS, "ranks that have it enqueued and not completed", nullable=False),
        Column("frame", pa.string(), "where the waiting ranks called it"),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)
