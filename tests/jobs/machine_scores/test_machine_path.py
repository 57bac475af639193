"""From rows of metrics to scores through the functions that Spark calls, without Spark: companions are learnt, kept, used."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.machine_models.transform import (
    COMPANION,
    HARVEST,
    HARVEST_SCHEMA,
    SAMPLE,
    SAMPLE_SCHEMA,
    _accompanied,
    _fitted,
    _harvested,
    _left_over,
    _sampled,
)
from jobs.machine_scores.transform import _compared, _scored

AT = datetime(2026, 1, 1, tzinfo=UTC)
N_MACHINES, N_POINTS, SEED = 16, 480, 3
METRICS = {"ipc": (1.5, -0.4), "power": (400.0, 60.0), "traffic": (60.0, 12.0)}
ROW = pa.schema({
    "job_id": pa.string(), "node": pa.string(), "device": pa.string(), "metric": pa.string(), "unit": pa.string(),
    "grid_start_at": pa.timestamp("us", tz="UTC"), "period_s": pa.float64(), "values": pa.list_(pa.float64()), "file": pa.string(),
    "state": pa.string(), "started_at": pa.timestamp("us", tz="UTC"), "ended_at": pa.timestamp("us", tz="UTC"),
    "node_role": pa.string(), "is_first_host": pa.bool_(), "node_ranks": pa.list_(pa.int32()),
})  # fmt: skip
EVENTS = pa.schema({"job_id": pa.string(), "node": pa.string(), "occurred_at": pa.timestamp("us", tz="UTC"), "kind": pa.string(),
                    "code": pa.int32(), "severity": pa.string(), "message": pa.string()})  # fmt: skip


def rows_of(job_id, seed, fault=None):
    """A table a metric, as the stages group them; each machine pauses at times of its own, in all metrics at once."""
    draw = np.random.default_rng(seed)
    pauses = (draw.random((N_MACHINES, N_POINTS)) < 0.15).astype(float)
    lasting = np.maximum(pauses, np.roll(pauses, 1, 1))
    tables = {}
    for metric, (level, depth) in METRICS.items():
        values = level - depth * lasting + 0.03 * abs(depth) * draw.normal(size=lasting.shape)
        if metric == fault:
            values[3, 300:306] -= depth
        tables[metric] = pa.Table.from_pylist([
            {"job_id": job_id, "node": f"n{i:02d}", "metric": metric, "grid_start_at": AT, "period_s": 60.0, "values": own.tolist(),
             "file": f"m/n{i:02d}.csv", "state": "COMPLETED", "started_at": AT, "ended_at": AT, "node_role": "trainer",
             "is_first_host": i == 0, "node_ranks": [i]}
            for i, own in enumerate(values)
        ], schema=ROW)  # fmt: skip
    return tables


@pytest.fixture(scope="module")
def models():
    # by the hash of its id the first job trains and the second calibrates
    harvested = [_harvested(SEED)(table) for number, job in enumerate(("a", "e")) for table in rows_of(job, number).values()]
    by_job = {job: pa.concat_tables(each for each in harvested if each["job_id"][0].as_py() == job) for job in ("a", "e")}
    whole = {job: table.filter(table["levels"].is_valid()) for job, table in by_job.items()}
    samples = pa.concat_tables(_sampled(4000, SEED)(table) for table in whole.values())
    known = {}
    for metric in METRICS:
        made = _accompanied(SEED)(samples.filter(pc.equal(samples["metric"], metric))).to_pylist()
        known |= {row["metric"]: row["companion"] for row in made}
    rest = [_left_over(known, SEED)(table) for table in whole.values()]
    everything = pa.concat_tables([*by_job.values(), *rest]).drop_columns(["levels"])
    stored = {}
    for metric in METRICS:
        own = everything.filter(pc.equal(everything["metric"], metric))
        own = own.append_column("priority", pa.array([1] * len(own), pa.int32()))
        own = own.append_column("n_metrics", pa.array([3] * len(own), pa.int32()))
        (row,) = _fitted(None, 1 / 30, SEED, {}, known)(own).to_pylist()
        stored[metric] = f"{row['model_id']} {row['model']}"
    return stored


def scored(tables, models):
    compared = pa.concat_tables(_compared(models)(table) for table in tables.values())
    return _scored(models)(compared, EVENTS.empty_table()).to_pylist()


def test_companions_are_learnt_and_kept_in_the_models(models):
    assert all('"companion":{' in text for text in models.values())


def test_a_healthy_job_accuses_nobody(models):
    assert [row["nodes"] for row in scored(rows_of("c", 7), models) if row["score"] >= 0.5] == []


def test_six_minutes_that_look_like_a_pause_in_one_metric_name_the_machine(models):
    rows = [row for row in scored(rows_of("d", 7, fault="power"), models) if row["score"] >= 0.5]
    assert {row["nodes"][0] for row in rows} == {"n03"}
    assert "power" in {row["metric"] for row in rows}
    assert len({row["finding_id"] for row in rows}) == len(rows)
    assert "its other metrics" in rows[0]["statement"]


def test_a_changed_model_is_refused_and_said(models):
    hostile = {**models, "power": models["power"].replace('"seed":3', '"seed":4')}
    remarks = [remark for row in scored(rows_of("d", 7, fault="power"), hostile) for remark in row["remarks"]]
    assert any("refused" in remark and "has hash" in remark for remark in remarks)


def test_schemas_given_to_spark_are_those_of_the_rows():
    for text, schema in ((HARVEST, HARVEST_SCHEMA), (SAMPLE, SAMPLE_SCHEMA)):
        assert [part.split()[0] for part in text.split(", ")] == schema.names
    assert [part.split()[0] for part in COMPANION.split(", ")] == ["metric", "companion"]
