"""A job's findings fused: the columns to search by, and the whole document."""

import pyarrow as pa

from schemas.columns import JOB_ID, PHASE
from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table
from schemas.training_jobs import STATES

SYMPTOMS = (
    "none", "launch_failure", "crash", "hang", "slowdown", "oom", "comm_timeout", "loss_nonfinite", "time_limit", "cancelled",
    "node_failure", "undetermined",
)  # fmt: skip
SPATIAL_SIGNALS = ("localised", "global", "none", "not_applicable")

TABLE = Table(
    name="diagnoses",
    layer=Layer.GOLD,
    row="one diagnosed job",
    columns=(
        JOB_ID,
        Column("state", pa.string(), "how the scheduler says it ended", nullable=False, one_of=STATES),
        Column("symptom", pa.string(), "what a user saw", nullable=False, one_of=SYMPTOMS),
        Column("cause_class", pa.string(), "class of the failure taxonomy, or undetermined", nullable=False),
        Column("cause_confidence", pa.float64(), "how sure that is", nullable=False, minimum=0, maximum=1),
        Column("spatial_signal", pa.string(), "whether the evidence points at a place", nullable=False, one_of=SPATIAL_SIGNALS),
        Column("onset_at", TIMESTAMP, "start of the window in which it began"),
        Column("onset_end_at", TIMESTAMP, "end of that window"),
        Column("onset_iteration", pa.int64(), "iteration in which it began", minimum=0),
        Column("onset_phase", PHASE.type, "phase in which it began", one_of=PHASE.one_of),
        Column("top_node", pa.string(), "node of the best candidate"),
        Column("top_ranks", pa.list_(pa.int32()), "ranks of the best candidate", nullable=False),
        Column("top_score", pa.float64(), "score of the best candidate", minimum=0, maximum=1),
        Column("n_candidates", pa.int32(), "candidates", nullable=False, minimum=0),
        Column("candidate_nodes", STRINGS, "nodes of all candidates with score at least 0.5, best first", nullable=False),
        Column("n_findings", pa.int32(), "findings that were fused", nullable=False, minimum=0),
        Column("n_baselines", pa.int32(), "successful jobs that it was compared with", nullable=False, minimum=0),
        Column("is_verified", pa.bool_(), "confirmed by a person", nullable=False),
        Column("library_version", pa.string(), "template library that was used"),
        Column("code_version", pa.string(), "version of this program"),
        Column("document", pa.string(), "the whole diagnosis as JSON, in the words of the contract", nullable=False),
    ),
    key=("job_id",),
    replaced_by="job_id",
)
