"""Log templates: messages with their variable parts masked, known by a hash of their text."""

import pyarrow as pa

from schemas.contract import TIMESTAMP, Column, Layer, Table

ALERTS = (
    "oom", "timeout", "nccl", "xid", "exception", "assertion", "non_finite", "signal", "exit_code", "connection", "storage",
    "hardware",
)  # fmt: skip
"""Kinds of alert, the contract's words first."""

PROVENANCES = ("framework", "platform", "launcher", "user")

EXAMPLE_CHARACTERS = 500

TEMPLATE_ID = Column("template_id", pa.string(), "hash of the template's text, or the fixed id of a predefined one", nullable=False)
ALERT = Column("alert", pa.string(), "kind of alert that its text raises, null for none", one_of=ALERTS)
PROVENANCE = Column("provenance", pa.string(), "whose code printed it", one_of=PROVENANCES)

TABLE = Table(
    name="templates",
    layer=Layer.GOLD,
    row="one template that is in use",
    columns=(
        TEMPLATE_ID,
        Column("template", pa.string(), "the message, `<*>` where it varies", nullable=False),
        Column("pattern", pa.string(), "the template as the miner keeps it: lists folded, `<+>` where plain words vary"),
        ALERT,
        Column("is_predefined", pa.bool_(), "has a fixed id and a name in ml/templates/predefined.yaml", nullable=False),
        Column("name", pa.string(), "name of a predefined template"),
        PROVENANCE,
        Column("example", pa.string(), "one message as it was printed: redacted, at most 500 characters"),
        Column("example_job_id", pa.string(), "job that printed the example"),
        Column("n_events", pa.int64(), "events over all jobs in the lake", nullable=False, minimum=0),
        Column("n_jobs", pa.int64(), "jobs in the lake that printed it", nullable=False, minimum=0),
        Column("first_seen_at", TIMESTAMP, "first time that it was printed"),
        Column("last_seen_at", TIMESTAMP, "last time that it was printed"),
        Column("first_job_id", pa.string(), "job that printed it first"),
        Column("last_job_id", pa.string(), "job that printed it last"),
        Column("library_version", pa.string(), "hash of the library of which it is part", nullable=False),
    ),
    key=("template_id",),
)
