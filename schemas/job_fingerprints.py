"""What each failure looked like: weighted words on its templates, symptom, phase, collective, events and role."""

import pyarrow as pa

from schemas.columns import JOB_ID, PHASE
from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="job_fingerprints",
    layer=Layer.GOLD,
    row="one job that failed or shows a symptom",
    columns=(
        JOB_ID,
        Column("tokens", pa.list_(pa.int64()), "hash and weight of each word, in order of the hash", nullable=False),
        Column("words", STRINGS, "the words, `kind:value`, in the same order", nullable=False),
        Column("state", pa.string(), "how the scheduler says it ended", nullable=False),
        Column("symptom", pa.string(), "what a user saw; undetermined without a diagnosis", nullable=False),
        Column("cause_class", pa.string(), "class of the failure taxonomy, or undetermined", nullable=False),
        Column("onset_phase", pa.string(), "phase in which it began", one_of=PHASE.one_of),
        Column("name", pa.string(), "what its user called it"),
        Column("user", pa.string(), "who ran it"),
        Column("lineage", pa.string(), "its task: lineage_id, else its own id", nullable=False),
        Column("ended_at", TIMESTAMP, "when it ended"),
        Column("nodes", STRINGS, "nodes that its diagnosis points at, sorted", nullable=False),
        Column("versions", STRINGS, "versions of code, framework and libraries, sorted", nullable=False),
        Column("family_id", pa.string(), "its failure family", nullable=False),
        Column("ingest_batch", pa.int64(), "number of the ingest that read it"),
    ),
    key=("job_id",),
)
