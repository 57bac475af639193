"""The stage's transforms: rows that ingest reads from dumps, cut down and judged."""

from __future__ import annotations

import io
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.base import FileContext, Rows
from jobs.adapters.flight_recorder import ADAPTERS
from jobs.collectives.assemble import finding_rows
from jobs.collectives.query import Ask, jobs_with_entries, progress, telling
from jobs.core.query import ask
from schemas import collective_findings, collectives

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WORLD = 4


def dump(rank: int, last: int, newest: int) -> bytes:
    entries = [
        {"record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n, "p2p_seq_id": 0,
         "profiling_name": "nccl:all_reduce", "time_created_ns": 1758610505592849034 + n * 10**6, "input_sizes": [[4]],
         "input_dtypes": ["Float"], "state": "scheduled" if n == newest else "completed", "is_p2p": False}
        for n in range(5, last + 1)
    ]  # fmt: skip
    status = {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": min(last, newest - 1)}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(WORLD)))}}
    return pickle.dumps({"version": "2.9", "entries": entries, "pg_config": config, "pg_status": {"0": status}}, 2)


def table_of(job: str, lasts: dict[int, int]) -> pa.Table:
    schema = pa.schema([pa.field(c.name, c.type) for c in collectives.TABLE.columns])
    parts = []
    for rank, last in lasts.items():
        context = FileContext(job, f"traces/_dump_{rank}", node=f"n{rank // 2}")
        for part in ADAPTERS[0].parse(io.BytesIO(dump(rank, last, max(lasts.values()))), context):
            if isinstance(part, Rows):
                parts.append(pa.Table.from_pydict(dict(part.columns), schema=schema))
    return pa.concat_tables(parts)


def test_rows_fit_their_contract_and_name_the_rank_with_its_node_and_dump() -> None:
    rows = table_of("j", {0: 9, 1: 9, 2: 8, 3: 9}).to_pandas()
    rows["created_us"] = rows["created_at"].astype("int64") // 1000
    rows["frame"] = None
    found = finding_rows("j", rows, {"state": "FAILED", "world_size": 4})
    assert set(found[0]) == set(collective_findings.TABLE.names)
    pa.Table.from_pylist(found, schema=collective_findings.TABLE.arrow)
    first = max(found, key=lambda row: row["score"])
    assert (first["kind"], first["ranks"], first["nodes"], first["syndrome"]) == ("rank_never_came", [2], ["n1"], "noncomm_hang")
    assert (first["group"], first["sequence"], first["missing_ranks"], first["waiting_ranks"]) == (
        "0 default_pg",
        9,
        [2],
        [0, 1, 3],
    )
    assert first["refs"] == [{"file": "traces/_dump_2", "line": None}]


def test_dumps_of_a_completed_job_accuse_nobody() -> None:
    rows = table_of("j", {0: 9, 1: 9, 2: 8, 3: 9}).to_pandas()
    rows["created_us"], rows["frame"] = -1, None
    assert all(row["score"] < 0.5 for row in finding_rows("j", rows, {"state": "COMPLETED"}))


def asking(rows: pa.Table, folder: Path) -> Ask:
    write_deltalake(str(folder), rows)
    return partial(answered, str(folder))


def answered(folder: str, query: str) -> pa.Table:
    return ask(DeltaTable(folder), query)


def test_what_is_over_is_left_out(tmp_path: Path) -> None:
    both = asking(pa.concat_tables([table_of("hung", {0: 9, 1: 9, 2: 8, 3: 9}), table_of("lost", {0: 9, 1: 9, 2: 9})]), tmp_path)
    assert len(telling(both, ["hung", "lost"])) == 6  # the open entries alone
    assert jobs_with_entries(both, ["hung", "other's", "lost"]) == ["hung", "lost"]
    assert telling(both, ["other's"]).empty
    assert progress(both, []).empty
    came = progress(both, ["hung"]).sort_values("rank")
    assert came["last_enqueued"].tolist() == [9, 9, 8, 9]
    assert came["last_completed"].tolist() == [8, 8, 8, 8]
    assert [list(ranks) for ranks in came["group_ranks"]] == [[0, 1, 2, 3]] * 4


def test_the_frame_told_is_the_innermost_that_is_not_the_librarys(tmp_path: Path) -> None:
    rows = table_of("j", {0: 9, 1: 9, 2: 8, 3: 9})
    frames = [["a.py:1", "b.py:2", "torch/distributed/c10d.py:3"]] * rows.num_rows
    place = rows.schema.get_field_index("frames")
    told = rows.set_column(place, rows.schema.field(place), pa.array(frames, rows.schema.field(place).type))
    assert set(telling(asking(told, tmp_path), ["j"])["frame"]) == {"b.py:2"}


def judged(spark: SparkSession, rows: pa.Table, folder: Path, world_size: int) -> list[Any]:
    from pyspark.sql import functions as F

    from jobs.collectives import transform

    jobs = [(job,) for job in sorted(set(rows["job_id"].to_pylist()))]
    facts = spark.createDataFrame(jobs, "job_id string").select(
        "job_id", F.lit("FAILED").alias("state"), F.lit(world_size).alias("world_size"),
        F.lit(None).cast("array<struct<rank:int,node:string>>").alias("ranks"),
    )  # fmt: skip
    return sorted(transform.findings(facts, asking(rows, folder)).collect(), key=lambda row: -row["score"])


@pytest.mark.spark
def test_jobs_are_judged_each_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    both = pa.concat_tables([table_of("hung", {0: 9, 1: 9, 2: 8, 3: 9}), table_of("lost", {0: 9, 1: 9, 2: 9})])
    found = judged(spark, both, tmp_path, WORLD)
    best = {row["job_id"]: (row["reason"], row["ranks"]) for row in reversed(found) if row["nodes"] or row["reason"]}
    assert best == {"hung": ("never_came", [2]), "lost": ("no_dump", [3])}


@pytest.mark.spark
def test_of_a_pair_that_disagrees_the_one_unlike_other_pairs_is_named(spark: SparkSession, tmp_path: Path) -> None:
    from ml.collectives.synthetic import Fault, Layout, Recording, dumps

    schema = pa.schema([pa.field(c.name, c.type) for c in collectives.TABLE.columns])
    parts = [
        pa.Table.from_pydict(dict(part.columns), schema=schema)
        for rank, document in dumps(Recording(Layout(2, 2, 2), Fault.OTHER_SIZE, (5,))).items()
        for part in ADAPTERS[0].parse(io.BytesIO(pickle.dumps(document, 2)), FileContext("odd", f"traces/_dump_{rank}"))
        if isinstance(part, Rows)
    ]
    found = judged(spark, pa.concat_tables(parts), tmp_path, 8)
    assert [(row["reason"], row["ranks"]) for row in found if row["ranks"] and row["score"] >= 0.5] == [("mismatch", [5])]
