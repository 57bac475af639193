"""The cheap proof that rows keep their contract says what DuckDB counts, or nothing."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.core.lake import arrow_schema
from jobs.ingest.adoption import count_broken, counter
from jobs.ingest.quick_rules import QuickProof
from schemas import tables
from schemas.contract import Column, Layer, Table

ROW = {
    "job_id": "a", "file": "f", "line": 1, "byte_offset": 0, "n_lines": 1, "time_source": "line", "time_uncertainty_s": 0.0, "rank": None,
    "message": "x", "message_key": 1, "phase": None, "iteration": None, "ingest_batch": 1,
}  # fmt: skip
CASES = {
    "sound rows": ([ROW, ROW | {"rank": 0}, ROW | {"rank": 1, "phase": "train"}, ROW | {"file": "g"}], True),
    "jobs apart": ([ROW | {"job_id": "b"}, ROW], True),
    "a key twice": ([ROW, ROW], False),
    "a null": ([ROW | {"message": None}], False),
    "too small": ([ROW | {"line": 0}, ROW | {"line": 2, "byte_offset": 5}], False),
    "too small beside no number": ([ROW | {"time_uncertainty_s": float("nan")}, ROW | {"rank": 3, "time_uncertainty_s": -1.0}], False),
    "an unknown word": ([ROW | {"phase": "odd"}], False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_parts", [1, 2])
def test_the_proof_agrees_with_the_count_or_leaves_it_to_it(case, n_parts, tmp_path):
    rows, is_sound = CASES[case]
    table = pa.Table.from_pylist(rows, schema=arrow_schema("log_records"))
    pq.write_table(table, tmp_path / "rows.parquet")
    proof = QuickProof(tables()["log_records"])
    for part in range(n_parts):
        proof.see(table.slice(part * len(rows) // n_parts, (part + 1) * len(rows) // n_parts - part * len(rows) // n_parts))
    proved = proof.counts()
    with counter(str(tmp_path)) as connection:
        counted = count_broken(connection, tmp_path / "rows.parquet", "log_records")
    assert (proved is not None) == is_sound == (not any(counted.broken))
    assert proved in (None, counted)


@pytest.mark.parametrize(("share", "is_sound"), [(0.5, True), (1.5, False), (float("nan"), False), (None, True)])
def test_what_is_no_number_is_not_proved_to_keep_a_maximum(share, is_sound, tmp_path):
    key = Column("job_id", pa.string(), "job", nullable=False)
    table = Table(
        name="t", layer=Layer.SILVER, row="r", columns=(key, Column("share", pa.float64(), "a share", maximum=1.0)), key=("job_id",)
    )
    proof = QuickProof(table)
    proof.see(pa.table({"job_id": ["a", "b"], "share": pa.array([0.25, share], pa.float64())}))
    assert (proof.counts() is not None) == is_sound


def test_rules_over_several_columns_are_always_counted():
    proof = QuickProof(tables()["ingested_files"])
    proof.see(pa.Table.from_pylist([], schema=arrow_schema("ingested_files")))
    assert proof.counts() is None
