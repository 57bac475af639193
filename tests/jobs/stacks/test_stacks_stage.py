"""The stage's transforms on literal rows: one hang, one healthy job, and a job without stacks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from jobs.core.tables import spark_schema
from schemas import stack_findings, stack_tries, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

WAIT = ["<module> (/w/train.py:227)", "all_reduce (/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:4181)"]
READ = ["<module> (/w/train.py:191)"]


def at(second: float) -> datetime:
    return datetime.fromtimestamp(1_800_000_000 + second, UTC)


def rows(spark: SparkSession, name: str, listed: list[dict[str, Any]]) -> DataFrame:
    schema = pa.schema([pa.field(c.name, c.type) for c in tables()[name].columns])
    return spark.createDataFrame(pa.Table.from_pylist(listed, schema=schema), spark_schema(tables()[name]))


def sample(job: str, rank: int, second: float, frames: list[str]) -> dict[str, Any]:
    return {
        "job_id": job, "sampled_at": at(second), "snapshot": f"T{int(second)}", "node": f"n{rank // 2}", "rank": rank,
        "process_type": "trainer", "pid": 10 + rank, "thread_id": str(10 + rank), "thread_name": "MainThread", "is_active": False,
        "has_gil": False, "frames": frames, "file": f"stacks/n{rank // 2}/rank{rank}_T{int(second)}.json",
    }  # fmt: skip


def test_a_hang_is_found_and_a_job_that_iterates_is_left_alone(spark: SparkSession) -> None:
    from jobs.stacks import transform

    samples = rows(
        spark, "stack_samples",
        [sample(job, rank, s, READ if rank == 3 else WAIT) for job in ("hung", "healthy") for rank in range(4) for s in (100, 103, 106)],
    )  # fmt: skip
    jobs = rows(
        spark, "training_jobs",
        [{"job_id": j, "state": "FAILED", "ended_at": at(150), "world_size": 4, "nodes": [], "flags": [], "notes": [], "job_hash": ""}
         for j in ("hung", "healthy", "without stacks")],
    )  # fmt: skip
    ranks = rows(
        spark, "ranks",
        [{"job_id": "hung", "rank": r, "node": f"gpu-{r // 2}", "role": "trainer", "groups": [("tp", [r - r % 2, r - r % 2 + 1])]} for r in range(4)],
    )  # fmt: skip
    iterations = rows(
        spark, "iterations",
        [{"job_id": "hung", "rank": 0, "iteration": 60, "occurred_at": at(95), "file": "f", "line": 1},
         {"job_id": "healthy", "rank": 0, "iteration": 61, "occurred_at": at(105.5), "file": "f", "line": 1},
         {"job_id": "healthy", "rank": 0, "iteration": 60, "occurred_at": at(102), "file": "f", "line": 2}],
    )  # fmt: skip
    # A watchdog's line while everything stands still is no sign of progress.
    records = rows(
        spark, "log_records",
        [{"job_id": "hung", "file": "f", "line": 1, "byte_offset": 0, "rank": 1, "occurred_at": at(104), "message": "still waiting for all_reduce",
          "message_key": 1}],
    )  # fmt: skip
    facts = transform.facts(jobs, ranks, iterations, transform.moments(records, samples))
    found = sorted(transform.findings(samples, facts).collect(), key=lambda r: -r["score"])
    assert {r["job_id"] for r in found} == {"hung"}
    first = next(r for r in found if r["axis"] == "spatial")
    assert (first["kind"], first["ranks"], first["nodes"], first["iteration"]) == ("outside_collective", [3], ["gpu-1"], 60)
    assert first["score"] == pytest.approx(0.95)
    assert first["refs"][0]["file"].startswith("stacks/n1/rank3")
    slow = next(r for r in found if r["kind"] == "lack_of_progress")
    assert (slow["duration_s"], slow["is_global"]) == (55.0, True)

    merged = transform.tries(samples).where("job_id = 'hung' AND snapshot = 'T106'").orderBy("path").collect()
    assert [(r["path"][-1], r["has_ranks"], r["missing_ranks"]) for r in merged] == [
        ("<module> (train.py:191)", [3], [0, 1, 2]),
        ("<module> (train.py:227)", [0, 1, 2], [3]),
        ("all_reduce (torch/distributed/distributed_c10d.py:4181)", [0, 1, 2], [3]),
    ]


def test_rows_fit_their_contracts() -> None:
    from jobs.stacks.assemble import finding_rows, samples_of, trie_rows

    taken = samples_of([sample("j", rank, s, READ if rank == 3 else WAIT) for rank in range(4) for s in (100, 103)])
    found = finding_rows("j", taken, {"state": "FAILED", "ended_at": at(150), "iterations": [{"at": at(95), "iteration": 60}]})
    for table, listed in ((stack_findings.TABLE, found), (stack_tries.TABLE, trie_rows("j", taken))):
        arrow = pa.Table.from_pylist(listed, schema=table.arrow)
        assert len(arrow) > 0
        assert set(listed[0]) == set(table.names)
        assert len({row[table.key[-1]] for row in listed}) == len(listed)
