"""Log events with their template: E = (job, timestamp, node, rank, role, file and offset, level, template, message, phase, iteration)."""

import pyarrow as pa

from schemas.columns import LIBRARY_VERSION
from schemas.contract import Column, Layer, Table
from schemas.log_records import RECORD_COLUMNS

TABLE = Table(
    name="log_events",
    layer=Layer.SILVER,
    row="one log event with its template",
    columns=(
        *RECORD_COLUMNS,
        Column("template_id", pa.string(), "hash of the template's text, or a fixed id", nullable=False),
        LIBRARY_VERSION,
    ),
    key=("job_id", "file", "byte_offset", "rank"),
    replaced_by="job_id",
)
