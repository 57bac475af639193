"""Every contract is whole: prose, keys and declared stages agree."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.core.stages import STAGES, tasks, upstream
from schemas import tables
from schemas.contract import Layer, discrepancies

ALL = sorted(tables().values(), key=lambda table: table.name)


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
def test_a_table_says_what_its_rows_and_columns_mean(table):
    assert table.row
    assert all(column.doc for column in table.columns)
    assert set(table.key) <= set(table.names)
    assert table.replaced_by is None or table.replaced_by in table.names
    assert len(set(table.names)) == len(table.names)


def test_every_table_that_a_stage_reads_or_writes_has_a_contract():
    declared = {name for stage in STAGES for name in (*stage.reads, *stage.writes)}
    assert declared - set(tables()) == set()


def test_every_table_has_one_writer():
    writers = [name for stage in STAGES for name in stage.writes]
    assert len(writers) == len(set(writers))


def test_no_stage_reads_what_a_later_stage_writes():
    written: set[str] = {"dq_results", "stage_progress", "verdicts"}
    for stage in STAGES:
        later = set(stage.reads) - written - set(stage.writes)
        assert later == set(), stage.name
        written |= set(stage.writes)


def test_tasks_follow_the_tables():
    order = list(tasks())
    assert order[0] == "ingest"
    for name in order[1:]:
        assert upstream(name)
        assert all(order.index(earlier) < order.index(name) for earlier in upstream(name))


def test_discrepancies_are_all_named_at_once():
    actual = pa.schema([("job_id", pa.int64()), ("surplus", pa.string())])
    found = discrepancies(tables()["ranks"], actual)
    assert "ranks: column rank is missing" in found
    assert "ranks: column surplus is not in the contract" in found
    assert "ranks: column job_id is int64, the contract says string" in found


def test_layers_are_those_of_the_design():
    assert {table.layer for table in ALL} == set(Layer)
