"""Rows of jobs and machines as what the reliability figures need: one small row a job, a lineage, a machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.core.lake import arrow_schema
from jobs.reliability.machines import machine_figures, node_rows
from jobs.reliability.over_time import Lineage, fleet_figures
from ml.fusion.evaluate import ACCUSED
from ml.reliability.attribution import AFTER_S, BEFORE_S, NodeEvent, attribute
from ml.reliability.outcomes import Run

VERSION_KEYS = ("code_version", "code.version", "git_commit", "git.commit", "version")
SAVE_KEYS = ("save_interval", "checkpoint_interval", "save_every", "save_steps")
MAX_NEAR_EVENTS = 200
"""Events kept around one job's end, the most severe first."""


def seconds(column: str) -> Column:
    """A time as seconds since 1970."""
    return F.unix_micros(column) / 1e6


def config_value(keys: Iterable[str]) -> Column:
    """The first value whose key is, or ends in, one of these."""
    return F.coalesce(*[F.get(F.map_values(F.map_filter("config", _named(key))), 0) for key in keys])


def _named(key: str) -> Callable[[Column, Column], Column]:
    return lambda name, _value: (name == key) | name.endswith("." + key)


def near_events(training_jobs: DataFrame, node_events: DataFrame) -> DataFrame:
    """Events around the end of jobs, on their nodes: a row an event and job, with the job's end and the event's time in seconds."""
    places = training_jobs.where("ended_at IS NOT NULL").select(
        "job_id", seconds("ended_at").alias("ended_at_s"), F.explode("nodes").alias("node")
    )
    events = node_events.where("node IS NOT NULL AND occurred_at IS NOT NULL AND severity <> 'info' AND kind <> 'link_up'").select(
        "node", seconds("occurred_at").alias("at_s"), "kind", "severity", "code", "device", "file", "byte_offset"
    )
    distance = F.col("at_s") - F.col("ended_at_s")
    return (
        places.join(events, "node")
        .where(distance.between(-BEFORE_S, AFTER_S))
        .dropDuplicates(["job_id", "node", "at_s", "kind", "file", "byte_offset"])
    )


def attributions(near: DataFrame) -> DataFrame:
    """Rows of reliability_attributions: every event in the window of a job's end, one of them primary."""
    return near.groupBy("job_id").applyInArrow(_attribute, ddl("reliability_attributions"))


def _attribute(rows: pa.Table) -> pa.Table:
    found = rows.to_pylist()
    events = [NodeEvent(r["node"], r["at_s"], r["kind"], r["severity"], r["code"], str(i)) for i, r in enumerate(found)]
    kept = attribute(found[0]["ended_at_s"], sorted({r["node"] for r in found}), events)[:MAX_NEAR_EVENTS]
    out = []
    for a in kept:
        row = found[int(a.event.key)]
        out.append(
            {
                "job_id": row["job_id"],
                "node": row["node"],
                "device": row["device"],
                "occurred_at": datetime_of(row["at_s"]),
                "offset_s": a.offset_s,
                "kind": row["kind"],
                "code": row["code"],
                "severity": row["severity"],
                "cause_class": a.cause,
                "is_primary": a.is_primary,
                "n_causes": a.n_causes,
                "file": row["file"],
                "byte_offset": row["byte_offset"],
            }
        )
    return pa.Table.from_pylist(out, schema=arrow_schema("reliability_attributions"))


def datetime_of(at: float) -> datetime:
    """Seconds since 1970 as UTC, to the microsecond."""
    from datetime import UTC, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(at * 1e6))


def ddl(name: str) -> str:
    """A table's columns as Spark's schema string."""
    from jobs.core.tables import spark_schema
    from schemas import tables

    return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in spark_schema(tables()[name]).fields)


def run_rows(training_jobs: DataFrame, diagnoses: DataFrame, attributed: DataFrame) -> DataFrame:
    """One row a job with what a `Run` holds, and `top_node`: the machine that its first candidate names firmly.

    The cause is the diagnosis', else that of the primary critical event near the job's end.
    """
    told = diagnoses.select("job_id", "cause_class", F.when(F.col("top_score") >= ACCUSED, F.col("top_node")).alias("top_node"))
    primary = attributed.where("is_primary").select(
        "job_id",
        F.col("cause_class").alias("event_cause"),
        F.col("severity").alias("event_severity"),
        F.col("node").alias("event_node"),
    )
    is_critical = F.coalesce(F.col("event_severity") == "critical", F.lit(False))
    from_event = F.when(is_critical, F.col("event_cause"))
    cause = F.coalesce(
        F.when(~F.col("cause_class").isin("undetermined", "none"), F.col("cause_class")), from_event, F.lit("undetermined")
    )
    rows = training_jobs.join(told, "job_id", "left").join(primary, "job_id", "left")
    return rows.select(
        "job_id",
        "state",
        seconds("started_at").alias("started_at"),
        seconds("ended_at").alias("ended_at"),
        seconds("submitted_at").alias("submitted_at"),
        F.coalesce("n_gpus", "world_size", F.lit(0)).alias("n_gpus"),
        F.coalesce("n_nodes", F.size("nodes")).alias("n_nodes"),
        "nodes",
        F.coalesce("lineage_id", "job_id").alias("lineage_id"),
        "attempt",
        cause.alias("cause"),
        config_value(VERSION_KEYS).alias("version"),
        ((F.col("state") == "NODE_FAIL") | ((F.col("state") == "FAILED") & is_critical)).alias("is_infrastructure"),
        "top_node",
        "event_node",
        config_value(SAVE_KEYS).try_cast("double").alias("save_interval"),
        config_value(("exclude", "excluded_nodes")).alias("excluded"),
    )


def step_rows(iterations: DataFrame) -> DataFrame:
    """Progress of each job: first and last iteration, when the first was printed, the usual step time."""
    timed = iterations.groupBy("job_id").agg(
        F.min("iteration").alias("first_iteration"),
        F.max("iteration").alias("last_iteration"),
        F.min(seconds("occurred_at")).alias("first_iteration_at"),
        F.percentile_approx(F.when(~F.isnan("step_time_s"), F.col("step_time_s")), 0.5).alias("step_time_s"),
    )
    return timed


def as_run(row: dict[str, Any]) -> Run:
    """A row of run_rows as a Run."""
    fields = (
        "job_id",
        "state",
        "started_at",
        "ended_at",
        "submitted_at",
        "lineage_id",
        "attempt",
        "cause",
        "version",
        "is_infrastructure",
    )
    return Run(
        **{k: row[k] for k in fields}, n_gpus=row["n_gpus"] or 0, n_nodes=row["n_nodes"] or 0, nodes=tuple(row["nodes"] or ())
    )


def node_inputs(runs: DataFrame, node_events: DataFrame, window: tuple[float, float]) -> DataFrame:
    """One row a machine: its work and failures in the window, the features, its events and the starts of jobs on it."""
    begin, finish = window
    inside = runs.where((F.col("ended_at") > begin) & (F.col("started_at") < finish) & F.col("started_at").isNotNull())
    placed = inside.withColumn("node", F.explode("nodes"))
    ran = F.least(F.col("ended_at"), F.lit(finish)) - F.greatest(F.col("started_at"), F.lit(begin))
    is_failed = F.col("state").isin("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")
    named = is_failed & ((F.col("top_node") == F.col("node")) | (F.col("event_node") == F.col("node")))
    node_fail = (F.col("state") == "NODE_FAIL") | (named & F.col("is_infrastructure"))
    is_single = F.col("n_nodes") == 1
    work = placed.groupBy("node").agg(
        F.count(F.lit(1)).alias("n_jobs"),
        F.sum(F.greatest(ran, F.lit(0.0)) / 86400).alias("exposure_days"),
        F.count_if(F.coalesce(named, F.lit(False))).alias("n_failures"),
        F.sort_array(F.collect_list(F.when(named, F.col("job_id")))).alias("jobs"),
        F.sort_array(F.collect_list("started_at")).alias("starts"),
        F.count_if(F.coalesce(node_fail & ~is_single & (named | (F.col("state") == "NODE_FAIL")), F.lit(False)))
        .cast("double")
        .alias("multi_node_node_fails"),
        F.count_if(F.coalesce(node_fail & is_single, F.lit(False))).cast("double").alias("single_node_node_fails"),
        (F.count_if(F.coalesce(node_fail & is_single, F.lit(False))) / F.greatest(F.count_if(is_single), F.lit(1))).alias(
            "single_node_node_failure_rate"
        ),
    )
    shunned = inside.withColumn("node", F.explode(F.split("excluded", "[,\\s\\[\\]'\"]+"))).where("node <> ''")
    excluded = shunned.groupBy("node").agg(F.count_distinct("job_id").cast("double").alias("excl_jobid_count"))
    told = node_events.where("node IS NOT NULL AND occurred_at IS NOT NULL").withColumn("at", seconds("occurred_at"))
    seen = told.where(F.col("at").between(begin, finish)).dropDuplicates(["node", "at", "kind", "device", "message"])
    events = seen.groupBy("node").agg(
        F.count_if(F.col("kind").isin("xid", "sxid")).cast("double").alias("xid_cnt"),
        F.count_if((F.col("kind") == "health_check") & (F.col("severity") != "info")).cast("double").alias("tickets"),
        F.count_if(F.col("kind").isin("drain", "reboot")).cast("double").alias("out_count"),
        F.sort_array(F.collect_list(F.struct("at", "kind", "severity", "device"))).alias("events"),
    )
    return work.join(events, "node", "left").join(excluded, "node", "left")


def fleet_maker(window: tuple[float, float]) -> Callable[[pa.Table], pa.Table]:
    """A function from machines (as JSON) to rows of reliability_nodes and of machine figures, as (kind, row as JSON)."""

    def make(rows: pa.Table) -> pa.Table:
        machines = [
            {"events": [], "starts": [], "jobs": [], **{k: v for k, v in json.loads(text).items() if v is not None}}
            for text in rows["payload"].to_pylist()
        ]
        features = ("excl_jobid_count", "xid_cnt", "tickets", "out_count")
        nodes, faults = node_rows([{**dict.fromkeys(features, 0.0), **m} for m in machines], window)
        out = [("node", json.dumps(row, default=lambda at: at.isoformat())) for row in nodes]
        out += [("figure", json.dumps(row)) for row in machine_figures(nodes, faults, window)]
        return pa.table(
            [[k for k, _ in out], [r for _, r in out]], schema=pa.schema([("kind", pa.string()), ("payload", pa.string())])
        )

    return make


def figure_maker(rows: pa.Table) -> pa.Table:
    """Rows of (kind: run, lineage or straggler; payload as JSON) to the fleet's figures as (kind, row as JSON)."""
    given: dict[str, list[dict[str, Any]]] = {"run": [], "lineage": [], "straggler": []}
    for kind, payload in sorted(zip(rows["kind"].to_pylist(), rows["payload"].to_pylist())):
        given[kind].append(json.loads(payload))
    runs = [as_run(row) for row in given["run"]]
    known = [Lineage(r["lineage_id"], r["n_nodes"], r["wall_s"], r["running_s"] - r["lost_s"]) for r in given["lineage"]]
    stragglers = [(r["job_id"], r["slowdown"], r["gpu_hours"] or 0.0) for r in given["straggler"]]
    out = [json.dumps(row) for row in fleet_figures(runs, known, stragglers)]
    return pa.table([["figure"] * len(out), out], schema=pa.schema([("kind", pa.string()), ("payload", pa.string())]))
