"""DataFrames of the `machine_models` stage: a job's metrics become small harvests, a metric's harvests its model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.core.machine_places import places, series_of
from jobs.core.tables import spark_schema
from ml.machines.harvest import Harvest, harvest_job, harvest_unexplained
from ml.machines.joint import Companion, Sample, fit_companion, sample_of
from ml.machines.levels import Levels, Together, by_role
from ml.machines.model import MachineModel
from ml.machines.order import metric_order
from ml.machines.train import Wanted, fit_metric, is_held_out
from schemas import machine_models

SUCCESS = "COMPLETED"
HARVEST = (
    "job_id string, metric string, is_faulty boolean, largest double, started_at timestamp, ended_at timestamp, harvest string, "
    "first_host string, card string, levels binary"
)
HARVEST_SCHEMA = pa.schema({
    "job_id": pa.string(), "metric": pa.string(), "is_faulty": pa.bool_(), "largest": pa.float64(),
    "started_at": pa.timestamp("us", tz="UTC"), "ended_at": pa.timestamp("us", tz="UTC"), "harvest": pa.string(),
    "first_host": pa.string(), "card": pa.string(), "levels": pa.binary(),
})  # fmt: skip
SAMPLE = "job_id string, metric string, metrics array<string>, features binary, targets binary"
SAMPLE_SCHEMA = pa.schema({
    "job_id": pa.string(), "metric": pa.string(), "metrics": pa.list_(pa.string()), "features": pa.binary(), "targets": pa.binary(),
})  # fmt: skip
COMPANION = "metric string, companion string"
MOST_ROWS = 20_000
"""Places (a machine in a bin) that companions learn from, over all jobs; a job gives its share, but at least LEAST_ROWS."""
LEAST_ROWS = 64
ORDER = "metric string, priority int, n_metrics int"
PLACED = ["node", "device", "metric", "unit", "grid_start_at", "period_s", "values"]
LARGEST = 1000.0


def harvests(jobs: DataFrame, ranks: DataFrame, metrics: DataFrame, *, n_jobs: int, seed: int) -> DataFrame:
    """Harvests of the newest `n_jobs` jobs, a row a job, metric and role.

    Only successful jobs carry a `harvest`; the others only say how far apart their machines were, for the order of metrics.
    """
    newest = (
        jobs.select("job_id", "state", "started_at", "ended_at")
        .withColumn("place", F.row_number().over(Window.orderBy(F.desc_nulls_last("ended_at"), "job_id")))
        .where(F.col("place") <= n_jobs)
        .drop("place")
    )
    placed = (
        metrics.select("job_id", *PLACED)
        .join(F.broadcast(newest), "job_id")
        .join(F.broadcast(places(ranks)), ["job_id", "node"], "left")
    )
    return placed.groupBy("job_id", "metric").applyInArrow(_harvested(seed), HARVEST)


def _harvested(seed: int) -> Callable[[pa.Table], pa.Table]:
    def harvest(rows: pa.Table) -> pa.Table:
        head = rows.slice(0, 1).to_pylist()[0]
        series, roles, first = series_of(rows)
        is_faulty = head["state"] != SUCCESS
        facts = {"is_faulty": is_faulty, "started_at": head["started_at"], "ended_at": head["ended_at"], "first_host": first}
        found: list[dict[str, Any]] = []
        for harvests_of_role, levels in harvest_job(head["job_id"], series, roles, first, seed):
            card, data = levels.to_plain()
            for number, each in enumerate(harvests_of_role):
                row = {**facts, **_harvest_row(each)}
                if is_faulty:
                    row["harvest"] = None
                elif number == 0:
                    row.update(card=card, levels=data)
                found.append(row)
        return pa.Table.from_pylist(found, schema=HARVEST_SCHEMA)

    return harvest


def _harvest_row(harvest: Harvest) -> dict[str, Any]:
    text = json.dumps(asdict(harvest), sort_keys=True)
    return {"job_id": harvest.job_id, "metric": harvest.metric, "largest": _largest(harvest), "harvest": text}


def _largest(harvest: Harvest) -> float:
    """The largest difference of any machine in any aspect: the job's Z-score in this metric."""
    return min(max((top[0] for top in harvest.tops.values() if top), default=0.0), LARGEST)


def order(harvested: DataFrame, seed: int) -> DataFrame:
    """Rows metric, priority (from 1), n_metrics: metrics in the order of a decision tree over the jobs' Z-scores."""
    narrow = harvested.select("job_id", "metric", "is_faulty", "largest", F.lit(True).alias("together"))
    return narrow.groupBy("together").applyInArrow(_ordered(seed), ORDER)


def _ordered(seed: int) -> Callable[[pa.Table], pa.Table]:
    def ordered(rows: pa.Table) -> pa.Table:
        names = sorted(set(rows["metric"].to_pylist()))
        jobs = sorted(set(rows["job_id"].to_pylist()))
        table = np.zeros((len(jobs), len(names)))
        is_faulty = np.zeros(len(jobs), dtype=bool)
        job_at = {job: i for i, job in enumerate(jobs)}
        name_at = {name: i for i, name in enumerate(names)}
        for row in rows.to_pylist():
            place = job_at[row["job_id"]], name_at[row["metric"]]
            table[place] = max(table[place], row["largest"])
            is_faulty[place[0]] = row["is_faulty"]
        best = metric_order(names, table, is_faulty, seed)
        return pa.table({
            "metric": pa.array(best, pa.string()),
            "priority": pa.array(range(1, len(best) + 1), pa.int32()),
            "n_metrics": pa.array([len(best)] * len(best), pa.int32()),
        })  # fmt: skip

    return ordered


def companions(harvested: DataFrame, *, n_jobs: int, seed: int) -> DataFrame:
    """Rows metric, companion (JSON): learnt from the levels of the jobs that do not calibrate, a sample of each."""
    n_rows = max(MOST_ROWS // max(n_jobs, 1), LEAST_ROWS)
    sampled = harvested.where("levels IS NOT NULL").groupBy("job_id").applyInArrow(_sampled(n_rows, seed), SAMPLE)
    return sampled.groupBy("metric").applyInArrow(_accompanied(seed), COMPANION)


def _sampled(n_rows: int, seed: int) -> Callable[[pa.Table], pa.Table]:
    def sample(rows: pa.Table) -> pa.Table:
        job_id = rows["job_id"][0].as_py()
        found: list[dict[str, Any]] = []
        for number, job in enumerate(_together(rows) if not is_held_out(job_id) else []):
            draw = np.random.default_rng([seed, int.from_bytes(job_id.encode()[-8:], "big"), number])
            own = sample_of(job, n_rows, draw)
            facts = {
                "job_id": job_id,
                "metrics": list(own.metrics),
                "features": own.features.tobytes(),
                "targets": own.targets.tobytes(),
            }
            found += [{"metric": metric, **facts} for metric in own.metrics]
        return pa.Table.from_pylist(found, schema=SAMPLE_SCHEMA)

    return sample


def _together(rows: pa.Table) -> list[Together]:
    return by_role([Levels.from_plain(row["card"], row["levels"]) for row in rows.select(["card", "levels"]).to_pylist()])


def _accompanied(seed: int) -> Callable[[pa.Table], pa.Table]:
    def accompany(rows: pa.Table) -> pa.Table:
        metric = rows["metric"][0].as_py()
        stored = sorted(rows.to_pylist(), key=lambda row: (row["job_id"], row["metrics"], row["features"]))
        samples = [Sample.from_bytes(tuple(row["metrics"]), row["features"], row["targets"]) for row in stored]
        made = fit_companion(metric, samples, seed)
        found = [] if made is None else [{"metric": metric, "companion": json.dumps(asdict(made))}]
        return pa.Table.from_pylist(found, schema=pa.schema({"metric": pa.string(), "companion": pa.string()}))

    return accompany


def unexplained_harvests(harvested: DataFrame, known: Mapping[str, str], *, seed: int) -> DataFrame:
    """Harvests of what companions (JSON by metric, a few kB each) leave unexplained in the jobs that calibrate."""
    own = harvested.where("levels IS NOT NULL")
    return own.groupBy("job_id").applyInArrow(_left_over(dict(known), seed), HARVEST)


def _left_over(known: dict[str, str], seed: int) -> Callable[[pa.Table], pa.Table]:
    def leave(rows: pa.Table) -> pa.Table:
        head = rows.select(["job_id", "first_host", "started_at", "ended_at"]).slice(0, 1).to_pylist()[0]
        found: list[dict[str, Any]] = []
        if known and is_held_out(head["job_id"]):
            fitted = {metric: Companion.from_plain(json.loads(text)) for metric, text in known.items()}
            for job in _together(rows):
                for each in harvest_unexplained(head["job_id"], job, fitted, head["first_host"], seed):
                    found.append({**head, "is_faulty": False, **_harvest_row(each)})
        return pa.Table.from_pylist(found, schema=HARVEST_SCHEMA)

    return leave


def models(
    harvested: DataFrame, ordered: DataFrame, known: Mapping[str, str], *, false_alarms_per_job_day: float, seed: int,
    table_versions: Mapping[str, int],
) -> DataFrame:  # fmt: skip
    """Rows of `machine_models`, a row a metric; `known` has the metrics' companions."""
    schema = spark_schema(machine_models.TABLE)
    healthy = harvested.where("harvest IS NOT NULL").drop("levels").join(F.broadcast(ordered), "metric")
    fit = _fitted(schema, false_alarms_per_job_day, seed, dict(table_versions), dict(known))
    return healthy.groupBy("metric").applyInArrow(fit, schema)


def _fitted(
    schema: StructType, rate: float, seed: int, versions: dict[str, int], known: dict[str, str]
) -> Callable[[pa.Table], pa.Table]:
    def fit(rows: pa.Table) -> pa.Table:
        found = rows.to_pylist()
        starts = [row["started_at"] for row in found if row["started_at"] is not None]
        ends = [row["ended_at"] for row in found if row["ended_at"] is not None]
        wanted = Wanted(
            rate, found[0]["n_metrics"], seed, _text(min(starts, default=None)), _text(max(ends, default=None)), versions
        )
        text = known.get(found[0]["metric"])
        companion = None if text is None else Companion.from_plain(json.loads(text))
        model = fit_metric([_from_json(row["harvest"]) for row in found], wanted, found[0]["priority"], companion)
        return pa.Table.from_pylist([_row(model)], schema=arrow_schema())

    return fit


def arrow_schema() -> pa.Schema:
    """The table's Arrow schema without metadata, as Spark wants it."""
    return pa.schema([pa.field(c.name, c.type) for c in machine_models.TABLE.columns])


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _from_json(text: str) -> Harvest:
    raw: dict[str, Any] = json.loads(text)
    raw["tops"] = {key: tuple(values) for key, values in raw["tops"].items()}
    raw["windows"] = tuple(tuple(window) for window in raw["windows"])
    return Harvest(**raw)


def _row(model: MachineModel) -> dict[str, Any]:
    """A model as a row: the card's facts in columns, the whole of it as canonical JSON."""
    return {
        "metric": model.metric, "model_id": model.model_id, "unit": model.unit, "method": model.method,
        "embedding": model.embedding, "priority": model.priority, "weights": list(model.weights),
        "thresholds": sorted(model.thresholds.items()), "false_alarms_per_job_day": model.false_alarms_per_job_day,
        "n_job_days": model.n_job_days, "training_jobs": list(model.training_jobs),
        "calibration_jobs": list(model.calibration_jobs), "excluded_jobs": list(model.excluded_jobs),
        "data_from_at": _moment(model.data_from_at), "data_to_at": _moment(model.data_to_at),
        "table_versions": sorted(model.table_versions.items()), "libraries": sorted(model.libraries.items()),
        "seed": model.seed, "model": model.to_json(),
    }  # fmt: skip


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
