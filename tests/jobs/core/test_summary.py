"""The closing table counts failures as the reliability figures do."""

from __future__ import annotations

import pyarrow as pa

from jobs.core import lake
from jobs.core.summary import closing_table

STATES = ("COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "UNKNOWN")  # the second and third are failures


def test_runs_that_were_cut_short_are_no_failures(tmp_path):
    lake.create_missing(tmp_path)
    schema = lake.arrow_schema("training_jobs")
    rows = [dict.fromkeys(schema.names) | {"job_id": f"job-{n}", "state": state} for n, state in enumerate(STATES)]
    lake.write_rows(tmp_path, "training_jobs", pa.Table.from_pylist(rows, schema=schema))
    told = closing_table(str(tmp_path), str(tmp_path / "report"), {})
    assert told.startswith("6 jobs read, 2 failed, 0 diagnosed, 0 rows in quarantine\n")
    assert f"report: none in {tmp_path}/report; `fleetdiff reports" in told
