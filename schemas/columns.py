"""Columns that several tables share, so that one word means one thing everywhere."""

from __future__ import annotations

import pyarrow as pa

from schemas.contract import INTEGERS, STRINGS, TIMESTAMP, Column

SOURCES = ("logs", "stacks", "operations", "collectives", "metrics", "node_events")
AXES = ("spatial", "temporal", "cross_job")
PHASES = ("init", "load", "train", "evaluate", "checkpoint", "exit")
REFS = pa.list_(pa.struct([pa.field("file", pa.string()), pa.field("line", pa.int64())]))

JOB_ID = Column("job_id", pa.string(), "the training job", nullable=False)
NODE = Column("node", pa.string(), "host name, null where the files do not say")
RANK = Column("rank", pa.int32(), "global rank, null where only a local rank is known", minimum=0)
LOCAL_RANK = Column("local_rank", pa.int32(), "rank within the node", minimum=0)
ROLE = Column("role", pa.string(), "what the process does: trainer, dataloader, launcher, actor …")
DEVICE = Column("device", pa.string(), "accelerator index or UUID, null for the whole node")
PHASE = Column("phase", pa.string(), "part of the run in which it happened", one_of=PHASES)
ITERATION = Column("iteration", pa.int64(), "training step, the last one seen when none is printed", minimum=0)
FILE = Column("file", pa.string(), "path inside the job's folder")
INGEST_BATCH = Column("ingest_batch", pa.int64(), "number of the ingest that wrote the row: grows, never reused", minimum=1)
LIBRARY_VERSION = Column("library_version", pa.string(), "version of the template library that was used")

FINDING_COLUMNS = (
    JOB_ID,
    Column("finding_id", pa.string(), "hash of job, kind, scope and subject", nullable=False),
    Column("source", pa.string(), "kind of evidence", nullable=False, one_of=SOURCES),
    Column("axis", pa.string(), "what was compared", nullable=False, one_of=AXES),
    Column("kind", pa.string(), "which rule found it, snake_case", nullable=False),
    Column("nodes", STRINGS, "nodes that it points at; empty when it points at no place", nullable=False),
    Column("ranks", INTEGERS, "global ranks that it points at", nullable=False),
    Column("devices", STRINGS, "devices that it points at", nullable=False),
    Column("group_kind", pa.string(), "parallel group that holds exactly these ranks: tp, pp, dp …"),
    Column("score", pa.float64(), "strength, 0 to 1", nullable=False, minimum=0, maximum=1),
    Column("is_echo", pa.bool_(), "a consequence seen on peers, not an origin", nullable=False),
    Column("is_global", pa.bool_(), "nearly every peer shows it: accuses nobody", nullable=False),
    Column("at", TIMESTAMP, "when it happened, waiting times subtracted"),
    Column("iteration", pa.int64(), "iteration in which it happened", minimum=0),
    Column("phase", pa.string(), "phase in which it happened", one_of=PHASES),
    Column("statement", pa.string(), "one sentence for a person", nullable=False),
    Column("subject", pa.string(), "what differs: a template_id, a function, a metric, a collective"),
    Column("refs", REFS, "where to look: files and lines", nullable=False),
)
"""The columns of every `*_findings` table, so that all evidence can meet in one place."""
