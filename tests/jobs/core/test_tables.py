"""The lake's writers hold rows to their contract."""

from __future__ import annotations

import pytest
from delta.tables import DeltaTable

from jobs.core import lake as rows_of
from jobs.core.errors import CheckError, ContractError
from jobs.core.lake import create_missing, table_path
from jobs.core.tables import FEW_ROWS, Lake, in_list, spark_schema
from schemas import tables

pytestmark = pytest.mark.spark
OFFSETS = tables()["clock_offsets"]


def offsets(lake: Lake, *rows: tuple[str, str, float]):
    """Rows of clock_offsets: job, node, offset in seconds."""
    return lake.spark.createDataFrame([(job, node, offset, 0.1, 3) for job, node, offset in rows], spark_schema(OFFSETS))


def kept(lake: Lake) -> list[tuple[str, str, float]]:
    found = rows_of.rows(lake.root, "clock_offsets").to_pylist()
    return sorted((row["job_id"], row["node"], row["offset_s"]) for row in found)


@pytest.fixture(params=[0, FEW_ROWS], ids=["by Spark", "through the driver"])
def way(request, monkeypatch):
    """Rows go to a table in two ways, by their number."""
    monkeypatch.setattr("jobs.core.tables.FEW_ROWS", request.param)


@pytest.mark.usefixtures("way")
def test_a_write_replaces_exactly_the_rows_of_its_jobs(lake):
    lake.write("clock_offsets", offsets(lake, ("a", "n1", 1.0), ("b", "n1", 2.0)), jobs=["a", "b"])
    lake.write("clock_offsets", offsets(lake, ("a", "n2", 9.0)), jobs=["a"])
    assert kept(lake) == [("a", "n2", 9.0), ("b", "n1", 2.0)]


@pytest.mark.usefixtures("way")
def test_without_jobs_the_whole_table_is_replaced(lake):
    for job in ("a", "b"):
        lake.write("clock_offsets", offsets(lake, (job, "n1", 1.0)))
    assert kept(lake) == [("b", "n1", 1.0)]


def test_writing_the_same_rows_twice_leaves_the_same_table(lake):
    for _ in range(2):
        lake.write("clock_offsets", offsets(lake, ("a", "n1", 1.0)), jobs=["a"])
    assert kept(lake) == [("a", "n1", 1.0)]


def test_rows_that_do_not_fit_are_refused_with_every_discrepancy_at_once(lake):
    wrong = lake.spark.createDataFrame([("a", 1)], "job_id string, offset_s int")
    with pytest.raises(ContractError) as refused:
        lake.write("clock_offsets", wrong, jobs=["a"])
    message = str(refused.value)
    assert "column node is missing" in message
    assert "column spread_s is missing" in message
    assert "offset_s is int32, the contract says double" in message


def test_a_broken_critical_expectation_stops_the_write_and_names_itself(lake):
    with pytest.raises(CheckError, match=r"job_id, node is unique \(1 of 2 rows\)"):
        lake.write("clock_offsets", offsets(lake, ("a", "n1", 1.0), ("a", "n1", 2.0)), jobs=["a"])
    assert kept(lake) == []
    verdicts = rows_of.rows(lake.root, "dq_results", filters=[("suite", "=", "clock_offsets")]).to_pylist()
    broken = [v["expectation"] for v in verdicts if not v["is_success"]]
    assert broken == ["job_id, node is unique"]


def test_a_warning_is_recorded_and_does_not_stop_the_write(lake):
    table = tables()["training_jobs"]
    values = dict.fromkeys(table.names)
    values |= {"job_id": "a", "state": "FAILED", "nodes": [], "flags": [], "notes": [], "job_hash": "h"}
    import datetime as dt

    values |= {"started_at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "ended_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}
    job = lake.spark.createDataFrame([tuple(values[name] for name in table.names)], spark_schema(table))
    lake.write("training_jobs", job, jobs=["a"])
    verdicts = rows_of.rows(lake.root, "dq_results", filters=[("is_success", "=", False)]).to_pylist()
    assert [(v["expectation"], v["severity"], v["n_unexpected"]) for v in verdicts] == [("ends_after_it_starts", "warning", 1)]
    assert rows_of.rows(lake.root, "training_jobs")["job_id"].to_pylist() == ["a"]


HOSTILE_IDS = ["plain", "it's", "back\\slash", 'double"quote', "new\nline", "ünï", "%_[a]", "'; DROP"]


@pytest.mark.usefixtures("way")
def test_job_ids_of_any_characters_replace_only_themselves(lake):
    lake.write("clock_offsets", offsets(lake, *((job, "n1", 1.0) for job in HOSTILE_IDS)), jobs=HOSTILE_IDS)
    for half in (HOSTILE_IDS[::2], HOSTILE_IDS[1::2]):
        lake.write("clock_offsets", offsets(lake, *((job, "n1", 3.0) for job in half)), jobs=half)
        changed = half if half == HOSTILE_IDS[::2] else HOSTILE_IDS
        assert kept(lake) == sorted((job, "n1", 3.0 if job in changed else 1.0) for job in HOSTILE_IDS)


# The folder's name, and what is done to the table beforehand, so that Spark reads it in each of its ways.
@pytest.mark.parametrize(
    ("folder", "feature"),
    [("plain", None), ("with space, star* and 100%", None), ("vectors", "delta.enableDeletionVectors")],
)
def test_a_table_reads_the_same_whatever_its_folder_and_features(spark, tmp_path, folder, feature):
    lake = Lake(spark, str(tmp_path / folder))
    create_missing(lake.root)
    assert lake.read("clock_offsets").collect() == []
    lake.write("clock_offsets", offsets(lake, ("a", "n1", 1.0), ("a", "n2", 2.0)), jobs=["a"])
    if feature:
        path = table_path(lake.root, "clock_offsets")
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{feature}' = 'true')")
        DeltaTable.forPath(spark, path).delete("node = 'n2'")
    expected = [("n1", 1.0)] if feature else [("n1", 1.0), ("n2", 2.0)]
    assert sorted((row.node, row.offset_s) for row in lake.read("clock_offsets").collect()) == expected


def test_no_values_match_nothing():
    assert in_list("job_id", []) == "false"
