"""The `reliability` stage: jobs, events and verdicts in; figures, machines, lineages and attributions out.

Everything that has a row a job is made in Spark or in one worker; the driver only learns the fleet's rate and the window.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.runner import StageContext
from jobs.core.tables import spark_schema
from jobs.reliability import transform as t
from jobs.reliability.lineages import lineages as lineage_rows
from ml.reliability.lemons import WINDOW_DAYS
from schemas import tables

PAIR = "kind string, payload string"


def run(context: StageContext) -> None:
    """Compute and write the four reliability tables, whole."""
    jobs, events = context.read("training_jobs"), context.read("node_events")
    attributed = t.attributions(t.near_events(jobs, events)).persist()
    runs = t.run_rows(jobs, context.read("diagnoses"), attributed).persist()
    try:
        rate, finish = fleet_rate(context, runs)
        lineages = lineage_rows(runs, t.step_rows(context.read("iterations")), rate).persist()
        window = (finish - WINDOW_DAYS * 86400, finish)
        machines = (
            told(t.node_inputs(runs, events, window), "machine").groupBy("kind").applyInArrow(t.fleet_maker(window), PAIR).persist()
        )
        faithful = context.read("straggler_reports").where("slowdown IS NOT NULL AND coalesce(is_faithful, true)")
        stragglers = faithful.select("job_id", "slowdown", "gpu_hours")
        facts = told(runs, "run").unionByName(told(lineages, "lineage")).unionByName(told(stragglers, "straggler"))
        figures = facts.withColumn("fleet", F.lit("all")).groupBy("fleet").applyInArrow(t.figure_maker, PAIR)
        context.write_all(
            {
                "reliability_attributions": attributed,
                "reliability_lineages": lineages,
                "reliability_nodes": rows_of(machines, "node", "reliability_nodes"),
                "reliability_figures": rows_of(figures.unionByName(machines), "figure", "reliability_figures"),
            }
        )
    finally:
        context.spark.catalog.clearCache()


def fleet_rate(context: StageContext, runs: DataFrame) -> tuple[float, float]:
    """Failures per node-day over all runs (0 without exposure), and the end of the window in seconds since 1970."""
    days = F.col("n_nodes") * F.greatest(F.col("ended_at") - F.col("started_at"), F.lit(0.0)) / 86400
    failed = F.count_if(
        F.col("state").isin("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL") & (F.col("ended_at") > F.col("started_at"))
    )
    row = runs.agg(failed.alias("n"), F.sum(days).alias("days"), F.max("ended_at").alias("last")).first()
    found = row.asDict() if row else {}
    finish = context.as_of.timestamp() if context.as_of else float(found.get("last") or 0.0)
    return (found["n"] / found["days"] if found.get("days") else 0.0), finish


def told(rows: DataFrame, kind: str) -> DataFrame:
    """(kind, payload): each row as JSON."""
    return rows.select(F.lit(kind).alias("kind"), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("payload"))


def rows_of(pairs: DataFrame, kind: str, table: str) -> DataFrame:
    """Rows of a table from (kind, payload as JSON)."""
    shape = spark_schema(tables()[table])
    return pairs.where(F.col("kind") == kind).select(F.from_json("payload", shape).alias("row")).select("row.*")
