"""Every template id ever given, and the id that stands for it now: last month's findings still join."""

import pyarrow as pa

from schemas.contract import Column, Layer, Table
from schemas.templates import TEMPLATE_ID

TABLE = Table(
    name="template_aliases",
    layer=Layer.GOLD,
    row="one template id that was ever given, current ones too",
    columns=(
        Column("alias_id", pa.string(), "an id that some night gave", nullable=False),
        TEMPLATE_ID,
        Column("since_version", pa.string(), "library version that gave `alias_id` first", nullable=False),
    ),
    key=("alias_id",),
)
