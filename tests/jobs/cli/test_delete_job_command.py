"""`fleetdiff delete-job`: a job goes out of every table, and nothing else does. Without Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.core.lake import arrow_schema, create_missing, rows, table_path

OFFSET = {"node": "n1", "offset_s": 1.0, "spread_s": 0.1, "n_shared_events": 3}
RECORD = {
    "file": "logs/a.log", "line": 1, "byte_offset": 0, "n_lines": 1, "time_source": "line", "message": "hello", "message_key": 7,
    "phase": "train", "ingest_batch": 1,
}  # fmt: skip
JOB = {"state": "FAILED", "nodes": [], "flags": [], "notes": [], "job_hash": "h", "ingest_batch": 1}


def put(lake, name, *given):
    schema = arrow_schema(name)
    write_deltalake(table_path(lake, name), pa.Table.from_pylist(list(given), schema=schema), mode="append")


@pytest.fixture
def lake(tmp_path):
    create_missing(tmp_path)
    for job in ("job-a", "job-b"):
        put(tmp_path, "training_jobs", {"job_id": job, **JOB})
        put(tmp_path, "clock_offsets", {"job_id": job, **OFFSET})
    put(
        tmp_path,
        "log_records",
        {"job_id": "job-a", **RECORD},
        {"job_id": "job-b", **RECORD, "message_key": 8, "message": "only here"},
    )
    return tmp_path


def call(*arguments):
    from jobs.cli.delete_job import command

    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_deleted_job_is_in_no_table_and_the_others_are_whole(lake):
    done = call("job-b", "--lake", lake, "--no-refresh", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["job_id"] == "job-b"
    assert json.loads(done.stdout)["deleted"].items() >= {"training_jobs": 1, "clock_offsets": 1, "log_records": 1}.items()
    for name in ("training_jobs", "clock_offsets", "log_records"):
        assert rows(lake, name, ["job_id"])["job_id"].to_pylist() == ["job-a"]


def test_its_pages_go_and_no_others(lake):
    pages = lake / "report" / "jobs"
    pages.mkdir(parents=True)
    for name in ("job-a.html", "job-b.html", "job-b.json", "job-b.md"):
        (pages / name).write_text("x")
    done = call("job-b", "--lake", lake, "--no-refresh", "--json")
    assert json.loads(done.stdout)["pages"] == 3
    assert [path.name for path in pages.iterdir()] == ["job-a.html"]


def test_a_job_that_is_not_there_is_one_line_and_changes_nothing(lake):
    from jobs.core.errors import NotFoundError

    done = call("job-z", "--lake", lake, "--no-refresh")
    assert isinstance(done.exception, NotFoundError)
    assert rows(lake, "training_jobs", ["job_id"]).num_rows == 2
    assert call("job-b", "--lake", lake, "--no-refresh").exit_code == 0
    assert isinstance(call("job-b", "--lake", lake, "--no-refresh").exception, NotFoundError)
