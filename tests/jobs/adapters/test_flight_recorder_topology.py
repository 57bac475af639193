"""The group configuration of flight-recorder dumps fills in the topology that a job's record lacks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from jobs.adapters.archive import read_job

GROUPS = {
    "0": ("default_pg", [0, 1, 2, 3]),
    "1": ("TENSOR_MODEL_PARALLEL_GROUP", [0, 1]),
    "2": ("TENSOR_MODEL_PARALLEL_GROUP", [2, 3]),
}


def write_job(folder: Path, record: dict[str, Any], dumped: list[int]) -> None:
    (folder / "traces").mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"job_id": "j", "state": "FAILED"} | record))
    for rank in dumped:
        config = {n: {"name": n, "desc": d, "ranks": str(r)} for n, (d, r) in GROUPS.items() if rank in r}
        document = {"version": "2.9", "pg_config": config, "pg_status": {}, "entries": []}
        (folder / "traces" / f"nccl_trace_rank_gpu{rank // 2}_{rank}").write_bytes(pickle.dumps(document, 2))


def ranks_of(folder: Path) -> dict[int, tuple[str | None, dict[str, list[int]]]]:
    rows = read_job(folder)["ranks"].to_pylist()
    return {row["rank"]: (row["node"], dict(row["groups"])) for row in rows}


def test_ranks_nodes_and_groups_come_from_the_dumps_where_the_record_is_silent(tmp_path: Path) -> None:
    write_job(tmp_path / "j", {}, [0, 1, 2])
    found = ranks_of(tmp_path / "j")
    assert found[0] == ("gpu0", {"tp": [0, 1]})
    assert found[2] == ("gpu1", {"tp": [2, 3]})
    assert found[3] == (None, {"tp": [2, 3]})  # left no dump, but its peers' groups name it


def test_what_the_record_says_stays(tmp_path: Path) -> None:
    ranks = [{"rank": r, "node": f"n{r}", "groups": {"mine": [0, 1]} if r == 0 else {}} for r in range(4)]
    write_job(tmp_path / "j", {"ranks": ranks}, [0, 1, 2, 3])
    found = ranks_of(tmp_path / "j")
    assert found[0] == ("n0", {"mine": [0, 1]})
    assert found[1] == ("n1", {"tp": [0, 1]})
