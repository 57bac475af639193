"""The DAG is a declaration: it imports no engine, and its tasks are those of the plan. The real scheduler runs it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess

import pytest

from jobs.cli.plan import plan
from jobs.core.stages import STAGES

ENGINES = {"jobs", "ml", "schemas", "pyspark", "delta", "pandas", "numpy", "sklearn", "great_expectations"}


def dag_files(root):
    return sorted((root / "dags").glob("*.py"))


def test_dag_files_are_short_documented_declarations_without_engine_imports(root):
    for file in dag_files(root):
        text = file.read_text()
        tree = ast.parse(text)
        imported = {
            name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        }
        assert imported & ENGINES == set(), file.name
        assert ast.get_docstring(tree), file.name
        assert len(text.splitlines()) <= 80, file.name


def test_the_plan_beside_the_dag_is_the_declared_one(root):
    assert json.loads((root / "dags" / "plan.json").read_text()) == plan()


def test_every_stage_is_in_exactly_one_task():
    planned = [stage for task in plan()["tasks"] for stage in task["stages"]]
    assert planned == [stage.name for stage in STAGES]


@pytest.mark.airflow
def test_a_real_night_through_airflow_on_two_example_jobs(root, examples, tmp_path):
    """One success and one failure go in; the lake, the page and the ten lines come out."""
    airflow = root / ".venv-airflow" / "bin" / "airflow"
    if not airflow.exists():
        pytest.skip("no .venv-airflow here: `make setup` makes it")
    archive = tmp_path / "archive"
    for job in ("job-7107", "job-7142"):
        shutil.copytree(examples / "archive" / job, archive / job)
    script = [str(root / "examples" / "night.sh"), str(archive), str(tmp_path / "lake"), str(tmp_path / "report")]
    environment = {**os.environ, "FLEETDIFF_BUILD": str(tmp_path / "build"), "FLEETDIFF_DRIVER_MEMORY": "2g"}
    night = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=540, check=False)
    assert night.returncode == 0, night.stderr[-2000:]
    assert "2 jobs read, 1 failed, 2 diagnosed" in night.stdout
    assert (tmp_path / "report" / "index.html").exists()
    assert len(night.stdout.strip().splitlines()) <= 10
    log = (tmp_path / "build" / "night.log").read_text()
    assert all(f"end task task_id={task['task']}" in log for task in plan()["tasks"])
