"""The `reports` stage: tables in, a folder of static pages out.

Pages of jobs are made and written inside Spark's workers, one job a group; only those whose inputs changed since the folder
was last written. The driver keeps a row a job for the search, and small aggregates for the fleet's pages.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.lake import version
from jobs.core.runner import StageContext
from jobs.reports import folder, notify
from jobs.reports import transform as t
from jobs.reports.fleet import fleet_rows
from jobs.reports.page import code_key
from jobs.reports.pages.fleet import families_page, library_page, machines_page, quality_page
from jobs.reports.pages.night import Night, night_page
from jobs.reports.pages.reliability import reliability_page
from jobs.reports.render import PART_SCHEMA, SUMMARY_SCHEMA, WRITTEN_SCHEMA, page_writer, summarise, thin_metrics

MAX_JOBS = 20_000
"""Jobs that get a page and a row in the search, newest first."""


def run(context: StageContext) -> None:
    """Write the pages into the report folder; does nothing when the run names none."""
    if not context.report:
        return
    target = folder.resolved(context.report)
    code = code_key()
    before = folder.read_state(target).get("pages", {})
    summaries, keys, n_left_out = job_summaries(context, code)
    stale = sorted(job for job, key in keys.items() if before.get(job) != key)
    if stale:
        write_job_pages(context, stale, target)
    write_fleet_pages(context, summaries, n_left_out, target)
    folder.write(target, folder.STATE, json.dumps({"code": code, "pages": keys}, indent=0, sort_keys=True))


def job_summaries(context: StageContext, code: str) -> tuple[list[dict[str, Any]], dict[str, str], int]:
    """A row a job for the newest MAX_JOBS jobs, the key of each one's page, and how many jobs were left out."""
    jobs = context.read("training_jobs")
    newest = jobs.orderBy(F.desc_nulls_last("ended_at"), "job_id").limit(MAX_JOBS)
    told = newest.select("job_id", F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("job"))
    alike = (
        t.similar_part(context.read("job_similarity"))
        .groupBy("job_id")
        .agg(F.sort_array(F.collect_list("payload")).cast("string").alias("extra"))
    )
    documents = context.read("diagnoses").select("job_id", "document")
    rows = told.join(documents, "job_id", "left").join(alike, "job_id", "left").select("job_id", "job", "document", "extra")
    found = rows.mapInArrow(summarise(code), SUMMARY_SCHEMA).collect()
    found.sort(key=lambda row: row["job_id"])
    n_left_out = jobs.count() - len(found) if len(found) == MAX_JOBS else 0
    return [json.loads(row["summary"]) for row in found], {row["job_id"]: row["page_key"] for row in found}, n_left_out


def job_parts(context: StageContext, stale: list[str]) -> DataFrame:
    """Every part of the pages of these jobs."""

    def rows(name: str) -> DataFrame:
        return context.of_jobs(context.read(name), stale)

    named = t.named_templates(rows("diagnoses"))
    scored = t.metric_rows(rows("machine_metrics"), t.scored_metrics(rows("machine_scores")))
    parts = [
        t.job_part(rows("training_jobs")),
        t.diagnosis_part(rows("diagnoses")),
        t.rank_part(rows("ranks")),
        t.phase_part(rows("log_events")),
        t.iteration_part(rows("iterations")),
        t.activity_part(rows("log_events"), rows("training_jobs")),
        t.work_part(rows("operations")),
        t.template_place_part(rows("job_templates"), named),
        t.template_baseline_part(context.read("job_templates"), named),
        t.node_event_part(rows("node_events")),
        t.quarantine_part(rows("quarantine")),
        t.similar_part(rows("job_similarity")),
        context.of_jobs(t.family_part(context.read("failure_families")), stale),
        t.trie_part(rows("stack_tries")),
        t.straggler_part(rows("straggler_reports")),
        scored.mapInArrow(thin_metrics, PART_SCHEMA),
    ]
    whole = parts[0]
    for each in parts[1:]:
        whole = whole.unionByName(each)
    return whole


def write_job_pages(context: StageContext, stale: list[str], target: str) -> int:
    """Write the pages of these jobs from the workers; returns the bytes written."""
    versions = {name: version(context.lake.root, name) for name in context.stage.reads}
    write_page = page_writer(target, versions, context.lake.root, t.N_BINS)
    written = job_parts(context, stale).groupBy("job_id").applyInArrow(write_page, WRITTEN_SCHEMA)
    total = written.agg(F.sum("n_bytes").alias("n_bytes")).first()
    return int(total["n_bytes"] or 0) if total else 0


def write_fleet_pages(context: StageContext, summaries: list[dict[str, Any]], n_left_out: int, target: str) -> None:
    """Write the night, machines, families, reliability, library and data quality; tell the webhook when one is set."""
    fleet = fleet_rows(context.read)
    night = Night(summaries, fleet.families, fleet.family_of, fleet.counts(), n_left_out)
    pages = [
        night_page(night),
        machines_page(summaries, fleet.nodes),
        families_page(fleet.families, summaries, fleet.family_of),
        reliability_page(fleet.figures, fleet.nodes),
        library_page(fleet.library, fleet.growth, fleet.newest_templates),
        quality_page(fleet.expectations, fleet.files, fleet.quarantine, fleet.coverage),
    ]
    for page in pages:
        folder.write_all(target, page.files())
    notify.announce(night, target, context.settings)
