"""`fleetdiff inspect`: what an archive holds and what is wrong with it, before anything is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys


def inspect(path, *more):
    return subprocess.run(
        [sys.executable, "-m", "jobs", "inspect", str(path), *more], capture_output=True, text=True, timeout=120, check=False
    )


def listing(folder):
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_a_job_is_shown_with_adapters_ranks_and_time_and_nothing_is_written(examples, tmp_path):
    job = tmp_path / "job-7135"
    shutil.copytree(examples / "archive" / "job-7135", job)
    before = listing(tmp_path)
    found = json.loads(inspect(tmp_path, "--json").stdout)
    assert listing(tmp_path) == before
    assert [each["job_id"] for each in found["jobs"]] == ["job-7135"]
    assert found["jobs"][0]["n_ranks"] == 8
    assert found["jobs"][0]["sources"]["logs"] == list(range(8))
    assert found["totals"]["n_quarantined"] == 0
    assert found["totals"]["n_files"] == sum(path.is_file() for path in job.rglob("*"))


def test_a_broken_file_is_named_with_its_reason_and_the_rest_is_read(examples, tmp_path):
    job = tmp_path / "job-7135"
    shutil.copytree(examples / "archive" / "job-7135", job)
    time_line = job / "traces" / "timeline_rank3.jsonl.gz"
    time_line.write_bytes(time_line.read_bytes()[:2000])
    done = inspect(tmp_path, "--json")
    assert done.returncode == 0
    assert "truncated_gzip" in done.stdout
    assert "timeline_rank3.jsonl.gz" in done.stdout
    assert json.loads(done.stdout)["totals"]["rows"]["stack_samples"] == 32
    told = inspect(tmp_path).stdout
    assert "truncated_gzip" in told
    assert "timeline_rank3.jsonl.gz" in told


def test_a_pipe_is_named_and_not_waited_for(tmp_path):
    pipe = tmp_path / "events"
    os.mkfifo(pipe)
    done = inspect(pipe)
    assert done.returncode == 0
    assert "not_a_regular_file" in done.stdout


def test_a_path_that_is_not_there_is_one_line():
    done = inspect("/no/such/archive")
    assert done.returncode in (1, 3)
    assert "/no/such/archive" in done.stderr
    assert "Traceback" not in done.stderr
