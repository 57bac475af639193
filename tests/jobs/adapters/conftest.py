"""Small jobs written for one test, read without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORD = {
    "job_id": "job-1", "state": "FAILED", "start_time": "2026-11-30T03:00:00Z", "end_time": "2026-11-30T04:00:00Z", "nodes": ["n0", "n1"], "world_size": 4,
    "ranks": [{"rank": r, "node": f"n{r // 2}", "local_rank": r % 2, "role": "trainer"} for r in range(4)],
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Path]:
    """Writes a job's folder: `job({"logs/a.log": "text"}, state="COMPLETED")`."""

    def write(files: dict[str, str | bytes], record: dict[str, Any] | None = None, **changes: Any) -> Path:
        root = tmp_path / "job"
        root.mkdir(exist_ok=True)
        (root / "job.json").write_text(json.dumps({**(RECORD if record is None else record), **changes}))
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write


@pytest.fixture
def read() -> Callable[[Path], dict[str, list[dict[str, Any]]]]:
    """Reads a job's folder into rows by table, and holds its books to account."""
    from jobs.adapters.archive import read_job

    def rows(root: Path) -> dict[str, list[dict[str, Any]]]:
        found = {name: table.to_pylist() for name, table in read_job(root).items()}
        for file in found["ingested_files"]:
            assert file["n_read"] == file["n_kept"] + file["n_quarantined"], file
            held = sum(row["n_records"] for row in found["quarantine"] if row["path"] == file["path"])
            assert held == file["n_quarantined"], file
            assert file["n_understood"] <= file["n_kept"]
        return found

    return rows
