"""Which template each masked message belongs to: what is here is never mined again."""

import pyarrow as pa

from schemas.contract import Column, Layer, Table
from schemas.templates import TEMPLATE_ID

TABLE = Table(
    name="message_templates",
    layer=Layer.GOLD,
    row="one distinct masked message",
    columns=(
        Column("message_key", pa.int64(), "64-bit hash of the masked message", nullable=False),
        TEMPLATE_ID,
        Column("masked", pa.string(), "the masked message, at most 2,000 characters", nullable=False),
        Column("since_version", pa.string(), "library version that mapped it first", nullable=False),
    ),
    key=("message_key",),
)
