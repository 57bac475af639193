"""DataFrames of the `machine_scores` stage: metrics compared apart, a job's machines ranked together, weeks summed up."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.core.machine_places import places, series_of
from jobs.core.tables import spark_schema
from jobs.machine_scores.rows import DRIFT_SCHEMA, SCORE_SCHEMA, drift_row, job_rows
from ml.machines.drift import JobDifference, drift_of
from ml.machines.levels import Levels
from ml.machines.model import MachineModel, from_json
from ml.machines.ranking import MachineScore
from ml.machines.score import compare, compare_together
from ml.machines.series import Series
from schemas import machine_drift, machine_scores

COMPARED = "job_id string, metric string, payload string, cards array<string>, levels array<binary>"
PLACED = ["node", "device", "metric", "unit", "grid_start_at", "period_s", "values", "file"]
EVENT_SLACK_S = 300
DRIFT_DAYS = 28


def compared(metrics: DataFrame, ranks: DataFrame, models: Mapping[str, str]) -> DataFrame:
    """Each metric of each job compared by itself: rows job_id, metric, payload (JSON of scores and remarks), and the
    metric's levels by role, for its job's metrics to be looked at together.

    `models` maps a metric to its model's id and JSON. A metric is one group: a job of a thousand machines is spread
    over workers by its metrics, and no worker holds more than one metric of one job.
    """
    placed = metrics.select("job_id", *PLACED).join(F.broadcast(places(ranks)), ["job_id", "node"], "left")
    return placed.groupBy("job_id", "metric").applyInArrow(_compared(dict(models)), COMPARED)


def _compared(models: dict[str, str]) -> Callable[[pa.Table], pa.Table]:
    def compare_metric(rows: pa.Table) -> pa.Table:
        head = rows.slice(0, 1).select(["job_id", "metric"]).to_pylist()[0]
        series, roles, first = series_of(rows)
        model, problem = _model(models.get(head["metric"]))
        found = compare(series, roles, {} if model is None else {model.metric: model}, first)
        levels = [each.to_plain() for each in found.levels] if model is not None and model.companion is not None else []
        payload = {
            "first_host": first,
            "rows": [vars(row) for row in found.rows],
            "usual": found.usual,
            "remarks": [*found.remarks, *([problem] if problem else [])],
            "priority": 0 if model is None else model.priority,
            "facts": _facts_of(rows, series),
        }
        return pa.table({
            "job_id": pa.array([head["job_id"]], pa.string()),
            "metric": pa.array([head["metric"]], pa.string()),
            "payload": pa.array([json.dumps(payload)], pa.string()),
            "cards": pa.array([[card for card, _ in levels]], pa.list_(pa.string())),
            "levels": pa.array([[data for _, data in levels]], pa.list_(pa.binary())),
        })  # fmt: skip

    return compare_metric


def _model(stored: str | None) -> tuple[MachineModel | None, str | None]:
    """The model as stored (id, a space, JSON), or why it cannot be used."""
    if stored is None:
        return None, None
    expected, _, text = stored.partition(" ")
    try:
        return from_json(text, expected), None
    except ValueError as error:
        return None, f"model {expected} refused: {error}; default thresholds used"


def _facts_of(rows: pa.Table, series: list[Series]) -> dict[str, Any]:
    """By node its ranks, its file and how long it was seen, from one metric's rows and their series."""
    facts: dict[str, Any] = {}
    for row, each in zip(rows.select(["node_ranks", "file"]).to_pylist(), series, strict=True):
        known = facts.setdefault(each.node, {"ranks": row["node_ranks"] or [], "file": row["file"], "seen_s": 0.0})
        known["seen_s"] = max(known["seen_s"], float(np.isfinite(each.values).sum()) * each.period_s)
    return facts


def scores(compared: DataFrame, events: DataFrame, models: Mapping[str, str]) -> DataFrame:
    """Rows of `machine_scores`: a job's metrics put together, ranked, and held against its node events."""
    schema = spark_schema(machine_scores.TABLE)
    return compared.groupBy("job_id").cogroup(events.groupBy("job_id")).applyInArrow(_scored(dict(models)), schema)


def _scored(models: dict[str, str]) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def score(compared: pa.Table, events: pa.Table) -> pa.Table:
        return _job_scores(compared, events, models) if len(compared) else SCORE_SCHEMA.empty_table()

    return score


def _job_scores(compared: pa.Table, events: pa.Table, stored: Mapping[str, str]) -> pa.Table:
    parts = sorted(compared.to_pylist(), key=lambda part: part["metric"])
    job_id = parts[0]["job_id"]
    payloads = [json.loads(part["payload"]) for part in parts]
    found = [MachineScore(**row) for payload in payloads for row in payload["rows"]]
    pairs = [pair for part in parts for pair in zip(part["cards"], part["levels"], strict=True)]
    if pairs:
        known = {metric: model for metric in stored if (model := _model(stored[metric])[0]) is not None}
        first = next((payload["first_host"] for payload in payloads if payload["first_host"]), None)
        found += compare_together([Levels.from_plain(card, data) for card, data in pairs], known, first)
    priorities = {part["metric"]: payload["priority"] for part, payload in zip(parts, payloads, strict=True)}
    rows = job_rows(job_id, found, payloads, priorities, events.to_pylist())
    return pa.Table.from_pylist(rows, schema=SCORE_SCHEMA)


def events_of(events: DataFrame, jobs: DataFrame) -> DataFrame:
    """Rows job_id, node, occurred_at, kind, code, severity, message: events of a job's folder, and those of the fleet that
    fell on one of its nodes while it ran."""
    columns = [F.col(name) for name in ("job_id", "node", "occurred_at", "kind", "code", "severity", "message")]
    own = events.where("job_id IS NOT NULL").join(jobs.select("job_id"), "job_id", "left_semi").select(*columns)
    spans = jobs.select("job_id", "started_at", "ended_at", F.explode("nodes").alias("node"))
    fleet = (
        events.where("job_id IS NULL AND node IS NOT NULL AND occurred_at IS NOT NULL")
        .drop("job_id")
        .join(spans, "node")
        .where(_is_during("occurred_at"))
        .select(*columns)
    )
    return own.unionByName(fleet)


def _is_during(column: str) -> Column:
    slack = F.expr(f"INTERVAL {EVENT_SLACK_S} SECONDS")
    return (F.col(column) >= F.col("started_at") - slack) & (F.col(column) <= F.col("ended_at") + slack)


def drift(scored: DataFrame, jobs: DataFrame, until: str | None) -> DataFrame:
    """Rows of `machine_drift` over the DRIFT_DAYS before `until` (ISO time), or before the newest job's start."""
    schema = spark_schema(machine_drift.TABLE)
    started = jobs.select("job_id", "started_at")
    newest = F.to_timestamp(F.lit(until)) if until else F.max("started_at")
    ends = started.agg(newest.alias("until_at"))
    age = F.col("until_at") - F.col("started_at")
    is_recent = F.col("started_at").isNull() | age.between(F.expr("INTERVAL 0 DAYS"), F.expr(f"INTERVAL {DRIFT_DAYS} DAYS"))
    recent = started.crossJoin(F.broadcast(ends)).where(is_recent).drop("until_at")
    own = scored.where("usual_differences IS NOT NULL AND size(nodes) = 1")
    difference = F.explode("usual_differences").alias("metric", "difference")
    habits = own.select("job_id", F.col("nodes")[0].alias("node"), "exposure_s", difference).join(F.broadcast(recent), "job_id")
    return habits.groupBy("node", "metric").applyInArrow(_drifted, schema)


def _drifted(rows: pa.Table) -> pa.Table:
    found = rows.to_pylist()
    habits = drift_of(
        JobDifference(row["node"], row["metric"], row["job_id"], row["exposure_s"] or 0.0, row["difference"]) for row in found
    )
    starts = sorted(row["started_at"] for row in found if row["started_at"] is not None)
    return pa.Table.from_pylist([drift_row(habit, starts) for habit in habits], schema=DRIFT_SCHEMA)
