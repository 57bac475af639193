"""What is read from the lake without Spark: rows, and rows summed up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.core import lake

OFFSETS = [("a", "n1", 1.0, 3), ("a", "n2", 2.0, 5), ("b's", "n1", 4.0, 7), ("c", "n1", 8.0, 9)]


@pytest.fixture
def root(tmp_path):
    lake.create_missing(tmp_path)
    rows = [
        {"job_id": job, "node": node, "offset_s": offset, "spread_s": 0.0, "n_shared_events": n} for job, node, offset, n in OFFSETS
    ]
    lake.write_rows(tmp_path, "clock_offsets", pa.Table.from_pylist(rows, schema=lake.arrow_schema("clock_offsets")))
    return tmp_path


def test_groups_are_summed_up_under_the_columns_own_names(root):
    found = lake.aggregates(
        root, "clock_offsets", ["job_id"], {"offset_s": "sum", "node": "max"}, [("job_id", "in", ["a", "b's", "no"])]
    )
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == [("a", 3.0, "n2"), ("b's", 4.0, "n1")]
    assert found.schema == pa.schema([("job_id", pa.string()), ("offset_s", pa.float64()), ("node", pa.string())])


def test_no_job_asked_for_gives_no_group(root):
    assert lake.aggregates(root, "clock_offsets", ["job_id"], {"offset_s": "sum"}, [("job_id", "in", [])]).num_rows == 0


@pytest.mark.parametrize(
    ("by", "values"), [(["job"], {"offset_s": "sum"}), (["job_id"], {"offset": "sum"}), (["job_id"], {"offset_s": "median"})]
)
def test_an_unknown_column_or_aggregate_is_refused(root, by, values):
    with pytest.raises((KeyError, ValueError)):
        lake.aggregates(root, "clock_offsets", by, values)
