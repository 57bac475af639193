"""The stage: only what is new or changed is read, exactly its rows are replaced, nothing is lost, nothing leaks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

TABLES = ("training_jobs", "ranks", "log_records", "iterations", "quarantine", "ingested_files")
TOKEN = "hf_" + "Z" * 34


def write_job(archive: Path, job_id: str, state: str | None = "FAILED", n_ranks: int = 2, text: str = "") -> Path:
    root = archive / job_id
    root.mkdir(parents=True, exist_ok=True)
    record = {
        "job_id": job_id,
        "nodes": ["n0"],
        "world_size": n_ranks,
        "ranks": [{"rank": r, "node": "n0", "local_rank": r} for r in range(n_ranks)],
        "config": {"token": TOKEN},
    }
    (root / "job.json").write_text(json.dumps(record | ({"state": state} if state else {})))
    for rank in range(n_ranks):
        path = root / f"logs/n0/r_x/attempt_0/{rank}/stdout.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"2026-11-30 03:00:{i:02d}.000 [rank{rank}] hello {job_id} {i} {text}\n" for i in range(5)))
    return root


def ingest(lake, archive, **settings):
    from jobs.core.runner import Given, run_stage
    from jobs.core.stages import stage

    run_stage(stage("ingest"), lake, Given(archive=str(archive), settings=settings))


def rows(lake, name):
    from jobs.core import lake as plain

    return plain.rows(lake.root, name).to_pylist()


def versions(lake):
    from jobs.core.lake import version
    from schemas import tables

    return {name: version(lake.root, name) for name in tables() if name not in ("stage_progress", "dq_results")}


def content(lake):
    return {name: sorted(json.dumps(row, default=str, sort_keys=True) for row in rows(lake, name)) for name in TABLES}


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "archive"
    for job_id in ("job-a", "job-b"):
        write_job(folder, job_id)
    return folder


def test_a_second_night_over_the_same_archive_makes_no_delta_version(lake, archive):
    ingest(lake, archive)
    before, kept = versions(lake), content(lake)
    ingest(lake, archive)
    assert versions(lake) == before
    for file in archive.rglob("*.log"):
        file.touch()  # new times, the same contents
    ingest(lake, archive)
    assert content(lake)["log_records"] == kept["log_records"]
    assert versions(lake)["log_records"] == before["log_records"]


def test_9_late_files_reopen_their_job_and_no_other(lake, archive):
    ingest(lake, archive)
    before = {row["job_id"]: row for row in rows(lake, "training_jobs")}
    late = archive / "job-a/logs/n0/r_x/attempt_0/1/stderr.log"
    late.write_text("2026-11-30 03:01:00.000 [rank1] late news\n")
    ingest(lake, archive)
    after = {row["job_id"]: row for row in rows(lake, "training_jobs")}
    assert (after["job-a"]["ingest_batch"], after["job-b"]["ingest_batch"]) == (2, 1)
    assert after["job-b"] == before["job-b"]
    assert after["job-a"]["job_hash"] != before["job-a"]["job_hash"]
    messages = [row["message"] for row in rows(lake, "log_records") if row["job_id"] == "job-a"]
    assert len(messages) == 11
    assert "late news" in messages


def test_a_changed_file_replaces_exactly_its_own_rows(lake, archive):
    ingest(lake, archive)
    path = archive / "job-b/logs/n0/r_x/attempt_0/0/stdout.log"
    path.write_text("2026-11-30 03:00:00.000 [rank0] something else\n")
    ingest(lake, archive)
    found = [row["message"] for row in rows(lake, "log_records") if row["job_id"] == "job-b" and row["rank"] == 0]
    assert found == ["something else"]
    assert len(rows(lake, "log_records")) == 16


def test_8_a_job_that_still_runs_is_left_for_later(lake, archive):
    write_job(archive, "job-c", state="RUNNING")
    write_job(archive, "job-d", state=None)  # no word on its end, and its files are fresh
    ingest(lake, archive, settle_s=3600)
    assert {row["job_id"] for row in rows(lake, "training_jobs")} == {"job-a", "job-b"}
    write_job(archive, "job-c", state="COMPLETED")
    ingest(lake, archive, settle_s=0)
    assert {row["job_id"] for row in rows(lake, "training_jobs")} == {"job-a", "job-b", "job-c", "job-d"}


def test_8_a_file_that_grows_while_it_is_read_keeps_its_job_waiting(tmp_path):
    from jobs.adapters.archive import find_jobs
    from jobs.ingest.worker import Staging, _read_job

    root = write_job(tmp_path / "archive", "job-a")
    (job,) = find_jobs(tmp_path / "archive")
    with open(root / "logs/n0/r_x/attempt_0/0/stdout.log", "a") as file:
        file.write("more\n")
    summary = _read_job(job, Staging(str(tmp_path / "staging"), "t"), str(tmp_path), None)
    assert summary["outcome"] == "unsettled"


def test_the_books_balance_for_every_file_and_every_record(lake, archive):
    (archive / "job-a/logs/broken.json").write_text(
        '{"log":"x\\n","time":"2026-11-30T03:00:00Z"}\nnot json\n{"log":"y\\n","time":"2026-11-30T03:00:00Z"}\n'
    )
    (archive / "job-a/blob.bin").write_bytes(bytes(range(256)) * 10)
    (archive / "job-b/job.json").write_text("{broken")
    ingest(lake, archive, settle_s=0)
    ledger = rows(lake, "ingested_files")
    assert all(row["n_read"] == row["n_kept"] + row["n_quarantined"] for row in ledger)
    assert sum(row["n_records"] for row in rows(lake, "quarantine")) == sum(row["n_quarantined"] for row in ledger) == 3
    assert {(row["path"], row["reason"], row["offset"]) for row in rows(lake, "quarantine")} == {
        ("logs/broken.json", "broken_json", 44), ("blob.bin", "binary_content", 0), ("job.json", "broken_json", 0),
    }  # fmt: skip


def test_books_that_do_not_balance_stop_the_stage(spark):
    from jobs.ingest.transform import imbalances

    ledger = spark.createDataFrame(
        [("j", "a", 5, 4, 1), ("j", "b", 3, 3, 0), ("j", "c", 3, 2, 0)],
        "job_id string, path string, n_read long, n_kept long, n_quarantined long",
    )
    quarantine = spark.createDataFrame([("j", "a", 1)], "job_id string, path string, n_records long")
    assert [row["path"] for row in imbalances(ledger, quarantine).collect()] == ["c"]
    assert sorted(row["path"] for row in imbalances(ledger, quarantine.where("false")).collect()) == ["a", "c"]


def test_35_the_whole_lake_holds_no_planted_token(lake, archive):
    write_job(archive, "job-s", text=f"with {TOKEN} in it")
    ingest(lake, archive)
    files = [path for path in Path(lake.root).rglob("*") if path.is_file() and archive not in path.parents]
    assert len(files) > 20
    assert not [str(path) for path in files if TOKEN.encode() in path.read_bytes()]
    text = json.dumps({name: rows(lake, name) for name in versions(lake)}, default=str)
    assert TOKEN not in text
    assert "redacted:huggingface" in text


def test_38_a_run_that_died_before_the_ledger_ends_as_if_it_had_never_died(lake, archive, tmp_path):
    """The last thing written is the ledger: without it a job counts as not read, and its rows are replaced, not doubled."""
    from jobs.core.lake import table_path

    ingest(lake, archive)
    whole = content(lake)
    shutil.rmtree(table_path(lake.root, "ingested_files"))
    (Path(lake.root) / "_ingest/rows/log_records").mkdir(parents=True)
    (Path(lake.root) / "_ingest/rows/log_records/task-9.parquet").write_bytes(b"what a killed run left")
    ingest(lake, archive)
    again = content(lake)
    assert [text.replace('"ingest_batch": 2', '"ingest_batch": 1') for text in again["log_records"]] == whole["log_records"]
    assert len(again["ingested_files"]) == len(whole["ingested_files"])
    assert not (Path(lake.root) / "_ingest/rows").exists()


def test_40_two_runs_at_once_end_as_one(lake, archive):
    threads = [threading.Thread(target=ingest, args=(lake, archive)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(lake, "log_records")) == 20
    assert {row["ingest_batch"] for row in rows(lake, "training_jobs")} == {1}


def test_40_a_second_process_waits_for_the_first(tmp_path):
    from jobs.ingest.job import alone

    code = f"from jobs.ingest.job import alone\nwith alone({str(tmp_path)!r}):\n    print('in')\n"
    with alone(str(tmp_path)):
        second = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        time.sleep(6)
        assert second.poll() is None
    assert second.communicate(timeout=60)[0] == "in\n"


def test_jobs_in_any_order_and_number_of_tasks_give_the_same_rows(lake, archive, tmp_path, monkeypatch):
    import jobs.ingest.job as stage_job
    from jobs.core.lake import create_missing
    from jobs.core.tables import Lake

    ingest(lake, archive)
    first = content(lake)
    other = Lake(lake.spark, str(tmp_path / "other"))
    create_missing(other.root)
    found = stage_job.find_jobs
    monkeypatch.setattr(stage_job, "find_jobs", lambda path: list(reversed(found(path))))
    monkeypatch.setattr(stage_job, "bins", lambda jobs, n: [list(jobs)])
    ingest(other, archive)
    assert content(other) == first
