"""The DAG is a declaration: it imports no engine, and its tasks are those of the plan. The real scheduler runs it."""

from __future__ import annotations

import ast
import json

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
