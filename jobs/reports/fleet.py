"""The small rows behind the fleet's pages: aggregates of the large tables, the gold tables that are small by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MAX_ROWS = 2000
NEWEST = 50

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Fleet:
    """Rows for the pages about the whole fleet, plain dictionaries."""

    families: Rows
    family_of: Mapping[str, str]
    nodes: Rows
    figures: Rows
    library: Mapping[str, Any]
    growth: Rows
    newest_templates: Rows
    expectations: Rows
    files: Rows
    quarantine: Rows
    coverage: Mapping[str, float]

    def counts(self) -> dict[str, int]:
        """Counts of the data's quality for the night's page."""
        total = {key: sum(int(row[key] or 0) for row in self.files) for key in ("n_files", "n_read", "n_kept")}
        broken = sum(not row["is_success"] for row in self.expectations)
        n_bad = sum(int(row["n"]) for row in self.quarantine)
        return {**total, "n_quarantined": n_bad, "n_broken": broken, "n_expectations": len(self.expectations)}


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """Rows of a bounded DataFrame as dictionaries."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def fleet_rows(read: Callable[[str], DataFrame]) -> Fleet:
    """Collect what the fleet's pages show."""
    families, family_of = family_rows(read("failure_families"))
    templates, normal = read("templates"), read("normal_templates")
    nodes = read("reliability_nodes").orderBy(F.desc("is_lemon"), F.desc_nulls_last("failures_per_day"), "node").limit(MAX_ROWS)
    figures = read("reliability_figures").orderBy("figure", "scope_kind", "scope").limit(MAX_ROWS)
    return Fleet(
        families,
        family_of,
        collected(nodes),
        collected(figures),
        library_figures(templates, normal, read("training_jobs")),
        growth_rows(normal),
        newest_templates(templates, normal),
        collected(read("dq_results").orderBy("suite", "expectation")),
        file_rows(read("ingested_files")),
        quarantine_rows(read("quarantine")),
        coverage_shares(read("training_jobs")),
    )


def family_rows(failure_families: DataFrame) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The largest and newest families, and the family of each of their jobs."""
    rows = collected(failure_families.orderBy(F.desc("is_new"), F.desc("n_jobs"), "family_id").limit(MAX_ROWS))
    return [{k: v for k, v in row.items() if k != "job_ids"} for row in rows], {
        job: row["family_id"] for row in rows for job in row["job_ids"]
    }


def library_figures(templates: DataFrame, normal: DataFrame, training_jobs: DataFrame) -> dict[str, Any]:
    """How many templates there are, are normal, are alerts; and how many successful jobs taught them."""
    all_ = templates.agg(F.count(F.lit(1)).alias("n_templates"), F.count("alert").alias("n_alert")).crossJoin(
        normal.agg(F.count_if("is_normal").alias("n_normal"))
    )
    return collected(all_.crossJoin(training_jobs.agg(F.count_if(F.col("state") == "COMPLETED").alias("n_jobs"))))[0]


def growth_rows(normal: DataFrame) -> list[dict[str, Any]]:
    """(at, n_templates): the library's size after each day on which it grew."""
    days = (
        normal.where("is_normal AND first_seen_at IS NOT NULL")
        .groupBy(F.to_date("first_seen_at").alias("at"))
        .agg(F.count(F.lit(1)).alias("n"))
    )
    size, rows = 0, []
    for day in collected(days.orderBy("at")):
        size += day["n"]
        rows.append({"at": day["at"].isoformat(), "n_templates": size})
    return rows


def newest_templates(templates: DataFrame, normal: DataFrame) -> list[dict[str, Any]]:
    """The normal templates that were seen first most recently."""
    named = normal.where("is_normal").join(templates.select("template_id", "template"), "template_id")
    newest = named.orderBy(F.desc_nulls_last("first_seen_at"), "template_id").limit(NEWEST)
    return collected(newest.select("template", "n_jobs", F.col("first_seen_at").alias("first_at")))


def file_rows(ingested_files: DataFrame) -> list[dict[str, Any]]:
    """Files and their records by adapter and state."""
    sums = [F.sum(name).alias(name) for name in ("n_read", "n_kept", "n_quarantined", "n_understood", "size_bytes")]
    return collected(
        ingested_files.groupBy("adapter", "state").agg(F.count(F.lit(1)).alias("n_files"), *sums).orderBy("adapter", "state")
    )


def quarantine_rows(quarantine: DataFrame) -> list[dict[str, Any]]:
    """Records in quarantine by reason, with the number of jobs and one detail."""
    records = F.sum(F.greatest("n_records", F.lit(1))).alias("n")
    grouped = quarantine.groupBy("reason").agg(records, F.count_distinct("job_id").alias("n_jobs"), F.min("detail").alias("detail"))
    return collected(grouped.orderBy("reason"))


def coverage_shares(training_jobs: DataFrame) -> dict[str, float]:
    """Mean coverage of each source over all jobs."""
    shares = (
        training_jobs.select(F.explode("coverage").alias("source", "share")).groupBy("source").agg(F.avg("share").alias("share"))
    )
    return {row["source"]: float(row["share"]) for row in shares.collect() if row["share"] is not None}
