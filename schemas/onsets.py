"""When a job left its own course: shifts of step time, silence, progress by rank, and the onset chosen from them."""

from schemas.columns import FINDING_COLUMNS
from schemas.contract import TIMESTAMP, Column, Layer, Table

TABLE = Table(
    name="onsets",
    layer=Layer.GOLD,
    row="one observation on the course of one job; kind `onset` is the one that was chosen as its beginning",
    columns=(
        *FINDING_COLUMNS,
        Column("window_start_at", TIMESTAMP, "start of the window, node clocks corrected"),
        Column("window_end_at", TIMESTAMP, "end of the window"),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)
