"""A lake of which files are gone: one line and exit code 3."""

import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import write_deltalake


@pytest.mark.parametrize("damage", ["files gone", "column missing"])
def test_a_damaged_table_is_told_in_one_line(tmp_path, damage):
    table = tmp_path / "gold" / "diagnoses"
    write_deltalake(str(table), pa.table({"job_id": ["j"], "state": ["FAILED"]}))
    if damage == "files gone":
        for file in table.glob("*.parquet"):
            file.unlink()
    call = [sys.executable, "-m", "jobs", "diagnosis", "j", "--lake", str(tmp_path), "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), done.stderr
