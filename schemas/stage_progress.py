"""How far each stage has come: written last, so that a killed stage is redone."""

import pyarrow as pa

from schemas.contract import Column, Layer, Table

TABLE = Table(
    name="stage_progress",
    layer=Layer.GOLD,
    row="one completed run of one stage; the newest row of a stage counts",
    columns=(
        Column("stage", pa.string(), "the stage", nullable=False),
        Column("sequence", pa.int64(), "number of the run within the stage, from 1", nullable=False, minimum=1),
        Column("ingest_batch", pa.int64(), "jobs of this and earlier ingests are done", nullable=False, minimum=0),
        Column("inputs", pa.map_(pa.string(), pa.int64()), "Delta version of each table read", nullable=False),
        Column("definition", pa.string(), "hash of the stage's code and settings", nullable=False),
    ),
    key=("stage", "sequence"),
    replaced_by="stage",
)
