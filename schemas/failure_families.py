"""Failures that look alike, as families: how many, since when, where, and whether they are new."""

import pyarrow as pa

from schemas.contract import STRINGS, TIMESTAMP, Check, Column, Layer, Table

TABLE = Table(
    name="failure_families",
    layer=Layer.GOLD,
    row="one family of failures",
    columns=(
        Column("family_id", pa.string(), "hash of its first job", nullable=False),
        Column("label", pa.string(), "what its jobs share, in a few words", nullable=False),
        Column("symptom", pa.string(), "most frequent symptom", nullable=False),
        Column("n_jobs", pa.int64(), "jobs", nullable=False, minimum=1),
        Column("n_lineages", pa.int64(), "distinct tasks: attempts of one task count once", nullable=False, minimum=1),
        Column("n_new", pa.int64(), "jobs of the newest ingest", nullable=False, minimum=0),
        Column("is_new", pa.bool_(), "all its jobs are of the newest ingest: new since last night", nullable=False),
        Column("growth", pa.float64(), "jobs of the newest ingest over those before it; null when it is new", minimum=0),
        Column("job_ids", STRINGS, "its jobs, sorted", nullable=False),
        Column("shared", STRINGS, "words that at least half of its jobs show, heaviest first", nullable=False),
        Column("n_nodes", pa.int64(), "distinct nodes pointed at", nullable=False, minimum=0),
        Column("nodes", STRINGS, "nodes pointed at, most frequent first, at most 20", nullable=False),
        Column("n_users", pa.int64(), "distinct users", nullable=False, minimum=0),
        Column("users", STRINGS, "users, most frequent first, at most 20", nullable=False),
        Column("n_versions", pa.int64(), "distinct versions of code, framework and libraries", nullable=False, minimum=0),
        Column("versions", STRINGS, "versions, most frequent first, at most 20", nullable=False),
        Column("first_at", TIMESTAMP, "end of its first job"),
        Column("last_at", TIMESTAMP, "end of its last job"),
    ),
    key=("family_id",),
    checks=(Check("new_are_part", "n_new <= n_jobs"),),
)
