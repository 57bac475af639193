"""
### The night

Reads the finished jobs of an archive into the lake, learns what is normal, compares, and writes the report.
The tasks and their order come from `plan.json`, which `fleetdiff plan --json` writes from the stages' declared inputs
and outputs. Each task calls the command line of the jobs' own environment and is safe to clear and run again.

Parameters: `archive`, `lake` and `report` are folders; `as_of` stands for now (empty: the newest job's end).
"""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Param, dag

HERE = Path(__file__).resolve().parent
PLAN = json.loads((HERE / "plan.json").read_text())
PYTHON = os.environ.get("FLEETDIFF_PYTHON", str(HERE.parent / ".venv" / "bin" / "python"))

# Parameters reach the shell as variables, never as part of its text.
ENVIRONMENT = {
    "FLEETDIFF_PYTHON": PYTHON,
    "FLEETDIFF_ARCHIVE": "{{ params.archive }}",
    "FLEETDIFF_LAKE": "{{ params.lake }}",
    "FLEETDIFF_REPORT": "{{ params.report }}",
    "FLEETDIFF_AS_OF": "{{ params.as_of }}",
}
COMMAND = (
    '"$FLEETDIFF_PYTHON" -m jobs stages {stages} --archive "$FLEETDIFF_ARCHIVE" --lake "$FLEETDIFF_LAKE"'
    ' --report "$FLEETDIFF_REPORT" ${{FLEETDIFF_AS_OF:+--as-of "$FLEETDIFF_AS_OF"}}'
)


@dag(
    dag_id="fleetdiff_nightly",
    doc_md=__doc__,
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=8),
    default_args={"owner": "fleetdiff", "retries": 1, "retry_delay": timedelta(seconds=30)},
    params={
        "archive": Param(os.environ.get("FLEETDIFF_ARCHIVE", "/var/lib/fleetdiff/archive"), type="string"),
        "lake": Param(os.environ.get("FLEETDIFF_LAKE", "/var/lib/fleetdiff/lake"), type="string"),
        "report": Param(os.environ.get("FLEETDIFF_REPORT", "/var/lib/fleetdiff/report"), type="string"),
        "as_of": Param("", type="string"),
    },
    tags=["fleetdiff", "nightly"],
)
def nightly() -> None:
    """One task a group of stages, wired by the tables that they read and write."""
    tasks = {
        each["task"]: BashOperator(
            task_id=each["task"],
            doc_md=each["summary"],
            bash_command=COMMAND.format(stages=" ".join(each["stages"])),
            env=ENVIRONMENT,
            append_env=True,
            execution_timeout=timedelta(hours=4),
        )
        for each in PLAN["tasks"]
    }
    for each in PLAN["tasks"]:
        for name in each["upstream"]:
            tasks[name] >> tasks[each["task"]]


nightly()
