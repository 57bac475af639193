"""Nodes and ranks that log unlike their peers of the same role."""

import pyarrow as pa

from schemas.columns import FINDING_COLUMNS
from schemas.contract import STRINGS, Column, Layer, Table

TABLE = Table(
    name="node_findings",
    layer=Layer.GOLD,
    row="one node or rank of one job that stands out among its peers",
    columns=(
        *FINDING_COLUMNS,
        Column("distance", pa.float64(), "robust distance of its template counts from the peers' median", minimum=0),
        Column("forest_score", pa.float64(), "isolation forest's anomaly; null below eight peers", minimum=0, maximum=1),
        Column("separating", STRINGS, "templates that set it apart, strongest first", nullable=False),
        Column("n_peers", pa.int32(), "peers compared, itself included", nullable=False, minimum=0),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)
