"""What look-ups of baselines scan: hashes of each job's configuration and whether it may stand as a baseline.

Rows lie in order of `model_hash` and `must_hash`, so that one look-up opens the few files that hold one model's jobs.
"""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import STRING_MAP, TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="config_index",
    layer=Layer.GOLD,
    row="one training job with its configuration made comparable",
    columns=(
        JOB_ID,
        Column("model_hash", pa.int64(), "hash of the settings that name the model; 0 when none does", nullable=False),
        Column("must_hash", pa.int64(), "hash of the declared settings that must match; 0 without a model", nullable=False),
        Column("full_must_hash", pa.int64(), "the same with the framework's argument block", nullable=False),
        Column(
            "block_hash", pa.int64(), "hash of what must match as the block states it; 0 when it names no model", nullable=False
        ),
        Column("speed_hash", pa.int64(), "hash of the settings that make the speed: peers share it", nullable=False),
        Column("has_block", pa.bool_(), "a framework's argument block is part of the configuration", nullable=False),
        Column("is_success", pa.bool_(), "scheduler and exit codes say that it went well", nullable=False),
        Column("disqualified", pa.string(), "why it may not stand as a baseline by itself; null when it may"),
        Column("state", pa.string(), "how the scheduler says it ended", nullable=False),
        Column("lineage", pa.string(), "its task: lineage_id, else its own id", nullable=False),
        Column("name", pa.string(), "what its user called it"),
        Column("user", pa.string(), "who ran it"),
        Column("ended_at", TIMESTAMP, "when it ended"),
        Column("n_ranks", pa.int32(), "number of ranks", minimum=0),
        Column("n_nodes", pa.int32(), "number of hosts", minimum=0),
        Column("n_gpus", pa.int32(), "number of accelerators", minimum=0),
        Column("n_planned", pa.int64(), "iterations planned", minimum=0),
        Column("last_iteration", pa.int64(), "last iteration that it printed", minimum=0),
        Column("step_time_s", pa.float64(), "median time of one iteration, seconds", minimum=0),
        Column("duration_s", pa.float64(), "from start to end, seconds", minimum=0),
        Column(
            "pairs",
            pa.list_(pa.int64()),
            "one number a setting that counts: hashes of key and value, group, weight",
            nullable=False,
        ),
        Column("config", STRING_MAP, "configuration as it was read", nullable=False),
        Column("classes", pa.string(), "version of the key classes that made the hashes", nullable=False),
    ),
    key=("job_id",),
    replaced_by="job_id",
    cluster_by=("model_hash", "must_hash"),
)
