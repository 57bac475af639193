"""
### The week

Trains the machine models anew on all successful jobs of the lake. The night scores with the newest model that fits.

Parameter: `lake` is the folder of the Delta tables.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Param, dag

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("FLEETDIFF_PYTHON", str(HERE.parent / ".venv" / "bin" / "python"))


@dag(
    dag_id="fleetdiff_weekly",
    doc_md=__doc__,
    schedule="0 12 * * 0",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=12),
    default_args={"owner": "fleetdiff", "retries": 1, "retry_delay": timedelta(minutes=5)},
    params={"lake": Param(os.environ.get("FLEETDIFF_LAKE", "/var/lib/fleetdiff/lake"), type="string")},
    tags=["fleetdiff", "weekly"],
)
def weekly() -> None:
    """One task: the models are trained in one Spark session."""
    BashOperator(
        task_id="machine_models",
        bash_command='"$FLEETDIFF_PYTHON" -m jobs stages machine_models --refresh --lake "$FLEETDIFF_LAKE"',
        env={"FLEETDIFF_PYTHON": PYTHON, "FLEETDIFF_LAKE": "{{ params.lake }}"},
        append_env=True,
        execution_timeout=timedelta(hours=8),
    )


weekly()
