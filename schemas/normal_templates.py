"""The normal library: what successful jobs across the fleet print, how often, where and when."""

import pyarrow as pa

from schemas.columns import LIBRARY_VERSION
from schemas.contract import STRINGS, TIMESTAMP, Column, Layer, Table
from schemas.templates import ALERT, PROVENANCE, TEMPLATE_ID

NOISE_ROLES = ("rank0", "control_plane")
PROFILE = pa.map_(pa.string(), pa.float64())

TABLE = Table(
    name="normal_templates",
    layer=Layer.GOLD,
    row="one template that successful jobs printed",
    columns=(
        TEMPLATE_ID,
        Column("n_jobs", pa.int64(), "distinct successful jobs", nullable=False, minimum=0),
        Column("n_lineages", pa.int64(), "distinct tasks: attempts of one task count once", nullable=False, minimum=0),
        Column("n_users", pa.int64(), "distinct users", nullable=False, minimum=0),
        Column("n_configs", pa.int64(), "distinct configurations", nullable=False, minimum=0),
        Column("n_nodes", pa.int64(), "distinct nodes", nullable=False, minimum=0),
        Column("n_events", pa.int64(), "events in successful jobs", nullable=False, minimum=0),
        Column("first_seen_at", TIMESTAMP, "first time in a successful job"),
        Column("last_seen_at", TIMESTAMP, "last time in a successful job"),
        Column("phase_profile", PROFILE, "share of its events by phase", nullable=False),
        Column("role_profile", PROFILE, "share of its events by role", nullable=False),
        Column(
            "rate_per_rank_hour",
            pa.float64(),
            "usual events per rank and hour: median over jobs that print it",
            minimum=0,
        ),
        Column("rate_spread", pa.float64(), "median absolute deviation of that rate over jobs", minimum=0),
        Column("share_of_ranks", pa.float64(), "usual share of a job's ranks that print it", minimum=0, maximum=1),
        Column("is_normal", pa.bool_(), "printed by several distinct successful jobs, and no alert", nullable=False),
        Column(
            "noise_role",
            pa.string(),
            "whose own noise it is: only rank 0 or only the control plane prints it",
            one_of=NOISE_ROLES,
        ),
        Column("roles", STRINGS, "roles that printed it, sorted", nullable=False),
        ALERT,
        PROVENANCE,
        LIBRARY_VERSION,
    ),
    key=("template_id",),
)
