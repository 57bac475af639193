"""DataFrames of the `operations` stage: a row of facts a job beside its operations, analysed job by job."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from jobs.core.tables import spark_schema
from jobs.operations.analysis import OPERATION_COLUMNS, USUAL, analyse, usual_of
from schemas import operation_findings, straggler_reports

MOST_BASELINES = 5

_FINDINGS = spark_schema(operation_findings.TABLE)
_REPORT = spark_schema(straggler_reports.TABLE)
_ANALYSED = StructType(
    [
        StructField("job_id", _REPORT["job_id"].dataType),
        StructField("findings", ArrayType(_FINDINGS)),
        StructField("report", _REPORT),
    ]
)


def chosen_baselines(baselines: DataFrame) -> DataFrame:
    """The best baselines of each job: job_id, baseline_job_id."""
    return baselines.where((F.col("position") >= 1) & (F.col("position") <= MOST_BASELINES)).select("job_id", "baseline_job_id")


def of_baselines(rows: DataFrame, baselines: DataFrame) -> DataFrame:
    """The rows of all jobs that serve as a baseline."""
    wanted = baselines.select(F.col("baseline_job_id").alias("job_id")).distinct()
    return rows.join(F.broadcast(wanted), "job_id", "left_semi")


def operation_profiles(operations: DataFrame) -> DataFrame:
    """What is usual in each job, a job a group: job_id, step_s, transfer_s and layers_s by name, range of shares by function."""
    timed = operations.where(F.col("source").eqNullSafe("timeline") & F.col("step").isNotNull() & F.col("started_us").isNotNull())
    return timed.select("job_id", *OPERATION_COLUMNS).groupBy("job_id").applyInArrow(usual_of, from_arrow_schema(USUAL))


def iteration_times(iterations: DataFrame) -> DataFrame:
    """Printed progress of each job, in order: job_id, iterations (array of iteration, step_time_s, at)."""
    return (
        iterations.groupBy("job_id", "iteration")
        .agg(F.percentile_approx("step_time_s", 0.5).alias("step_time_s"), F.min("occurred_at").alias("at"))
        .groupBy("job_id")
        .agg(F.sort_array(F.collect_list(F.struct("iteration", "step_time_s", "at"))).alias("iterations"))
    )


def typical_iterations(iterations: DataFrame) -> DataFrame:
    """job_id, printed_s: the median of the printed step times."""
    return iterations.groupBy("job_id").agg(F.percentile_approx("step_time_s", 0.5).alias("printed_s"))


def expected(baselines: DataFrame, profiles: DataFrame, printed: DataFrame) -> DataFrame:
    """For each job what its baselines make expect: job_id, expected (array of step_s, printed_s, transfer_s, layers_s, shares)."""
    usual = profiles.join(printed, "job_id", "full").withColumnRenamed("job_id", "baseline_job_id")
    return (
        baselines.join(usual, "baseline_job_id")
        .groupBy("job_id")
        .agg(
            F.collect_list(F.struct("baseline_job_id", "step_s", "printed_s", "transfer_s", "layers_s", "shares")).alias("expected")
        )
    )


def facts(training_jobs: DataFrame, ranks: DataFrame, iterations: DataFrame, expected_rows: DataFrame) -> DataFrame:
    """One row a job with all that its analysis needs beside its operations."""
    places = ranks.groupBy("job_id").agg(
        F.sort_array(F.collect_list(F.struct("rank", "node", "role", "device", F.map_entries("groups").alias("groups")))).alias(
            "ranks"
        )
    )
    jobs = training_jobs.select("job_id", "n_gpus", "world_size", "started_at", "ended_at", "config")
    return jobs.join(places, "job_id", "left").join(iterations, "job_id", "left").join(expected_rows, "job_id", "left")


def analysed(operations: DataFrame, facts_rows: DataFrame) -> DataFrame:
    """One row a job that has operations or printed iterations: its findings and its report."""
    rows = operations.select("job_id", *OPERATION_COLUMNS).groupBy("job_id")
    return rows.cogroup(facts_rows.groupBy("job_id")).applyInArrow(analyse, _ANALYSED)


def findings(analysed_rows: DataFrame) -> DataFrame:
    """Rows of operation_findings."""
    return analysed_rows.select(F.explode("findings").alias("f")).select("f.*")


def reports(analysed_rows: DataFrame) -> DataFrame:
    """Rows of straggler_reports."""
    return analysed_rows.where(F.col("report").isNotNull()).select("report.*")
