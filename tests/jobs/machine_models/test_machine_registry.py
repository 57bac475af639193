"""A job's rows become harvests, harvests become rows of the registry."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from jobs.machine_models.transform import _fitted, _harvested, _ordered, arrow_schema
from ml.machines.model import from_json

AT = datetime(2026, 1, 1, tzinfo=UTC)


def job_rows(number, state="COMPLETED"):
    """Six machines of one job in one metric, as the stage joins them."""
    values = 100 + np.random.default_rng(number).normal(0, 3, (6, 1200))
    rows = [
        {"job_id": f"job-{number}", "node": f"n{i}", "device": None, "metric": "power", "unit": "W", "grid_start_at": AT,
         "period_s": 1.0, "values": own.tolist(), "state": state, "started_at": AT, "ended_at": AT, "node_role": "trainer",
         "is_first_host": i == 0}
        for i, own in enumerate(values)
    ]  # fmt: skip
    schema = pa.schema({"device": pa.string(), "values": pa.list_(pa.float64())})
    table = pa.Table.from_pylist(rows)
    return table.set_column(table.column_names.index("device"), schema.field("device"), pa.nulls(6, pa.string()))


def harvested(states):
    return pa.concat_tables([_harvested(0)(job_rows(n, state)) for n, state in enumerate(states)])


def test_only_successful_jobs_are_harvested_and_failed_ones_only_say_how_far_apart_they_were():
    found = harvested(["COMPLETED", "FAILED"]).to_pylist()
    assert [(row["is_faulty"], row["harvest"] is None) for row in found] == [(False, False), (True, True)]
    assert all(row["largest"] >= 0 for row in found)


def test_the_registry_s_row_is_the_model_with_its_card():
    rows = harvested(["COMPLETED"] * 3)
    rows = rows.append_column("priority", pa.array([1] * 3, pa.int32())).append_column("n_metrics", pa.array([1] * 3, pa.int32()))
    table = _fitted(None, 1 / 30, 5, {"machine_metrics": 7}, {})(rows)
    assert table.schema == arrow_schema()
    (row,) = table.to_pylist()
    model = from_json(row["model"], row["model_id"])
    assert (model.seed, dict(model.table_versions)) == (5, {"machine_metrics": 7})
    assert row["unit"] == "W"
    assert sorted({*row["training_jobs"], *row["calibration_jobs"]}) == ["job-0", "job-1", "job-2"]
    again = _fitted(None, 1 / 30, 5, {"machine_metrics": 7}, {})(rows.take([2, 0, 1]))
    assert again.equals(table)


def test_metrics_get_their_places_from_the_tree():
    order = _ordered(0)(harvested(["COMPLETED", "FAILED"])).to_pylist()
    assert order == [{"metric": "power", "priority": 1, "n_metrics": 1}]
