"""What a worker does without Spark: jobs come as JSON, and one that breaks a rule or cannot be read stops no other one."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.adapters.archive import find_jobs
from jobs.adapters.job_results import schema_of
from jobs.ingest import worker
from jobs.ingest.manifest import known_exports, plan
from jobs.ingest.packing import packed, unpacked
from jobs.ingest.staging import Staging

LINE = "2026-11-30 03:00:00.000 [rank0] hello\n"


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "archive"
    for name in ("job-a", "job-b"):
        (folder / name / "logs").mkdir(parents=True)
        (folder / name / "job.json").write_text(f'{{"job_id": "{name}", "state": "FAILED"}}')
        (folder / name / "logs" / "rank0.log").write_text(LINE * 3)
    return folder


def read_all(jobs, folder):
    """Summaries by job, and the staged rows by table."""
    summaries = worker._read_task(Staging(str(folder), "task"), jobs, {}).to_pylist()
    return {row["job_id"]: row for row in summaries}, {
        p.parent.name: pq.read_table(p).to_pylist() for p in folder.rglob("*.parquet")
    }


def by_job(rows):
    return {job: sum(row["job_id"] == job for row in rows) for job in ("job-a", "job-b")}


def test_jobs_reach_a_worker_as_they_were_listed(archive):
    (archive / "sacct.txt").write_text("JobID|JobIDRaw|State|Start\n7|7|FAILED|2026-11-30T02:00:00\n")
    os.mkfifo(archive / "job-a" / "pipe")
    with open(os.fsencode(archive) + b"/job-a/\xff.log", "w") as odd:
        odd.write(LINE)
    jobs = find_jobs(archive)
    assert unpacked(packed(jobs)) == jobs
    assert {job.job_id for job in jobs} == {"7@2026-11-30T02:00:00", "job-a", "job-b", "scheduler/sacct"}


@pytest.mark.parametrize(
    ("table", "column", "value", "told"),
    [
        ("log_records", "line", 0, "log_records: line ≥ 1 (3 rows)"),
        ("log_records", "message_key", None, "log_records: message_key is not null (3 rows)"),
        ("log_records", "byte_offset", 7, "log_records: job_id, file, byte_offset, rank is unique (2 rows)"),
        ("ingested_files", "n_read", -1, "ingested_files: n_read ≥ 0 (2 rows); nothing_is_lost (2 rows)"),
        ("training_jobs", "state", "ODD", "training_jobs: state is a known word (1 rows)"),
    ],
)
def test_a_job_whose_rows_break_a_rule_is_set_aside_and_counted(archive, tmp_path, monkeypatch, table, column, value, told):
    def broken(done, results=worker.results):
        for name, schema, batches in results(done):
            if name == table and done.job.job_id == "job-a":
                at = schema.get_field_index(column)
                batches = [b.set_column(at, schema.field(at), pa.array([value] * len(b), schema.field(at).type)) for b in batches]
            yield name, schema, batches

    monkeypatch.setattr(worker, "results", broken)
    summaries, rows = read_all(find_jobs(archive), tmp_path / "rows")
    assert summaries["job-a"]["detail"] == told
    assert summaries["job-b"]["detail"] is None
    assert by_job(rows["log_records"]) == {"job-a": 0, "job-b": 3}
    assert by_job(rows["training_jobs"]) == {"job-a": 1, "job-b": 1}
    check_set_aside(rows, told)


def test_a_job_that_cannot_be_read_is_set_aside_and_counted(archive, tmp_path, monkeypatch):
    def failing(done, results=worker.results):
        yield from results(done)
        if done.job.job_id == "job-a":
            raise ValueError("odd")

    monkeypatch.setattr(worker, "results", failing)
    summaries, rows = read_all(find_jobs(archive), tmp_path / "rows")
    assert by_job(rows["log_records"]) == {"job-a": 0, "job-b": 3}
    assert summaries["job-a"]["detail"] == "ValueError: odd"
    check_set_aside(rows, "ValueError: odd")


def check_set_aside(rows, why):
    (job,) = (row for row in rows["training_jobs"] if row["job_id"] == "job-a")
    assert (job["state"], job["flags"], job["notes"]) == (
        "UNKNOWN",
        ["partial", "set_aside"],
        [f"the whole job was set aside: {why}"],
    )
    ledger = {row["path"]: row for row in rows["ingested_files"] if row["job_id"] == "job-a"}
    assert set(ledger) == {"job.json", "logs/rank0.log"}
    for path, file in ledger.items():
        assert file["n_kept"] == 0
        held = sum(row["n_records"] for row in rows["quarantine"] if (row["job_id"], row["path"]) == ("job-a", path))
        assert file["n_read"] == file["n_quarantined"] == held > 0
    assert all(set(row) == {*schema_of("quarantine").names, "ingest_batch"} for row in rows["quarantine"])


def test_a_full_disk_is_not_the_fault_of_a_job(archive, tmp_path, monkeypatch):
    def full(done):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(worker, "results", full)
    with pytest.raises(OSError, match="No space left"):
        read_all(find_jobs(archive), tmp_path / "rows")


def test_an_export_that_the_ledger_knows_is_not_read_again(archive, tmp_path):
    (archive / "sacct.txt").write_text("JobID|JobIDRaw|State|Start\n7|7|FAILED|2026-11-30T02:00:00\n")
    jobs = find_jobs(archive)
    _, rows = read_all(jobs, tmp_path / "rows")
    ledger = pa.Table.from_pylist([row for row in rows["ingested_files"] if row["adapter"] == "sacct"])
    assert {row["job_id"] for row in rows["training_jobs"]} == {"7@2026-11-30T02:00:00", "job-a", "job-b"}
    assert "scheduler/sacct" not in {job.job_id for job in plan(jobs, {}, 0.0, exports=known_exports(ledger)).to_read}
    (archive / "sacct.txt").write_text(
        "JobID|JobIDRaw|State|Start\n8|8|FAILED|2026-11-30T02:00:00\n8|8|FAILED|2026-11-30T02:00:00\n"
    )
    assert "scheduler/sacct" in {job.job_id for job in plan(find_jobs(archive), {}, 0.0, exports=known_exports(ledger)).to_read}
