"""Parquet files of operations inside a job's folder."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.adapters.base import FileContext, Problem, Rows, Tally
from jobs.adapters.operations_parquet import OperationParquetAdapter

STRAGGLER = {
    "dp_rank": [0, 1], "stage": [0, 0], "rank": [0, 4], "step": [16, 16], "optype": ["forward-compute", "params-all-gather"],
    "start_ts": [0.5, 0.0], "duration": [0.25, 0.1], "seq_id": [0, 0], "mc": [0, 0], "mb_id": [0, -1], "gmc": [0, -1],
}  # fmt: skip


def parsed(columns, path="traces/trace.parquet"):
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    buffer.seek(0)
    return list(OperationParquetAdapter().parse(buffer, FileContext("job-1", path)))


def test_a_straggler_trace_keeps_stage_replica_and_chunk():
    rows, tally = parsed(STRAGGLER)
    assert isinstance(rows, Rows)
    assert rows.columns["kind"] == ["forward", "collective"]
    assert rows.columns["started_us"] == [500_000, 0]
    assert rows.columns["duration_us"] == [250_000, 100_000]
    assert rows.columns["group"] == ["chunk 0", "chunk 0"]
    assert rows.columns["source"] == ["whatif", "whatif"]
    assert tally == Tally(2, 2)


def test_a_negative_duration_is_quarantined_and_the_rest_kept():
    rows, problem, tally = parsed({**STRAGGLER, "duration": [0.25, -0.1]})
    assert (problem.reason, problem.n_records) == ("bad_value", 1)
    assert tally.n_read == len(rows) + problem.n_records


def test_a_table_that_names_its_fields_is_a_time_line():
    rows, _ = parsed({"step": [1], "op": ["backward"], "start_us": [10], "end_us": [30]}, "traces/timeline_rank2.parquet")
    assert (rows.columns["rank"], rows.columns["duration_us"], rows.columns["source"]) == ([2], [20.0], ["timeline"])


def test_what_is_no_parquet_is_one_problem():
    problem, tally = OperationParquetAdapter().parse(io.BytesIO(b"PAR1 and no more"), FileContext("job-1", "traces/x.parquet"))
    assert isinstance(problem, Problem)
    assert problem.reason == "corrupt_parquet"
    assert tally.n_read == problem.n_records
