"""A night that was killed in the middle of a stage and run again ends in the tables of an undisturbed one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from jobs.core import lake as rows_of
from jobs.core.stages import STAGES
from schemas import tables

pytestmark = pytest.mark.spark

NIGHT = ("ingest", "templates")


@pytest.fixture(scope="module")
def archive(examples, tmp_path_factory):
    """Two example jobs: one success, one whose rank was killed."""
    folder = tmp_path_factory.mktemp("archive")
    for job in ("job-7107", "job-7142"):
        shutil.copytree(examples / "archive" / job, folder / job)
    return folder


def night(archive, lake, stages):
    """The stages in a process (and a JVM) of their own, in a process group that can be killed whole."""
    command = [sys.executable, "-m", "jobs", "stages", *stages, "--archive", str(archive), "--lake", str(lake)]
    environment = {**os.environ, "FLEETDIFF_DRIVER_MEMORY": "2g"}
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process):
    _, said = process.communicate(timeout=400)
    assert process.returncode == 0, said[-2000:]


def contents(lake, name):
    """Rows of a table as comparable text, in any order; maps and lists as they are."""
    rows = rows_of.rows(lake, name).to_pylist()
    return sorted(repr(sorted(row.items())) for row in rows)


def staged_files(lake, table):
    return list((lake / str(tables()[table].layer) / table).rglob("*.parquet"))


@pytest.fixture(scope="module")
def undisturbed(archive, tmp_path_factory):
    """The lakes of a night that nothing disturbed: before any stage, after ingest, after templates."""
    lakes = [tmp_path_factory.mktemp("before"), tmp_path_factory.mktemp("ingested"), tmp_path_factory.mktemp("mined")]
    for earlier, later, stage in zip(lakes, lakes[1:], NIGHT, strict=False):
        shutil.copytree(earlier, later, dirs_exist_ok=True)
        finish(night(archive, later, [stage]))
    return lakes


# The stage that is killed, and a table of it that has files when the stage is in its middle.
@pytest.mark.parametrize(("place", "killed", "begun"), [(0, "ingest", "log_records"), (1, "templates", "log_events")])
def test_a_killed_stage_run_again_ends_as_if_it_had_never_been_killed(archive, undisturbed, tmp_path, place, killed, begun):
    shutil.copytree(undisturbed[place], tmp_path, dirs_exist_ok=True)
    process = night(archive, tmp_path, [killed])
    deadline = time.monotonic() + 300
    while not staged_files(tmp_path, begun) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is None, "the stage ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert killed not in rows_of.rows(tmp_path, "stage_progress")["stage"].to_pylist()

    finish(night(archive, tmp_path, [killed]))
    for name in next(stage.writes for stage in STAGES if stage.name == killed):
        assert contents(tmp_path, name) == contents(undisturbed[place + 1], name), name
