"""Events of nodes from kernel, driver, health checks and platform."""

import pyarrow as pa

from schemas.columns import DEVICE, FILE
from schemas.contract import TIMESTAMP, Column, Layer, Table

KINDS = (
    "xid", "sxid", "ecc", "link_down", "link_up", "oom_kill", "io_error", "filesystem", "thermal", "power",
    "hung_task", "lockup", "segfault", "pcie", "nvlink", "reboot", "health_check", "drain", "other",
)  # fmt: skip

TABLE = Table(
    name="node_events",
    layer=Layer.SILVER,
    row="one event of one node",
    columns=(
        Column("job_id", pa.string(), "job in whose folder it was found; null when it belongs to the fleet"),
        Column("node", pa.string(), "machine; null when the line does not say"),
        DEVICE,
        Column("occurred_at", TIMESTAMP, "when it happened"),
        Column("kind", pa.string(), "kind of event", nullable=False, one_of=KINDS),
        Column("code", pa.int32(), "Xid or SXid number, exit code of a check"),
        Column("severity", pa.string(), "info, warning, critical", nullable=False, one_of=("info", "warning", "critical")),
        Column("message", pa.string(), "the line, redacted", nullable=False),
        FILE,
        Column("byte_offset", pa.int64(), "offset in the file"),
    ),
    key=("job_id", "file", "byte_offset"),
    replaced_by="job_id",
)
