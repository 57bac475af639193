"""The stages, their inputs and outputs: declared here once.

The order of the command line, the order of the DAG (through `dags/plan.json`) and `docs/tables.md` follow from
this list. A stage reads tables and writes tables; stages never import each other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One program of the night.

    `task` is the Airflow task in which it runs: the stages of a task share one Spark session.
    `settings` are the site's settings that it looks at, `knows_now` says whether its results depend on `--as-of`: a stage sees
    no others, and only their change recomputes it.
    `module` has `run(context: StageContext) -> None`.
    """

    name: str
    task: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    summary: str
    needs_archive: bool = False
    settings: tuple[str, ...] = ()
    knows_now: bool = False

    @property
    def module(self) -> str:
        """Import path of the stage's program."""
        return f"jobs.{self.name}.job"


FINDINGS = (
    "log_findings", "node_findings", "onsets", "stack_findings", "operation_findings", "collective_findings",
    "straggler_reports", "machine_scores",
)  # fmt: skip

STAGES: tuple[Stage, ...] = (
    Stage(
        "ingest", "ingest", (),
        ("training_jobs", "ranks", "log_records", "iterations", "stack_samples", "operations", "collectives",
         "machine_metrics", "node_events", "clock_offsets", "quarantine", "ingested_files"),
        "reads the archive's new and changed jobs into bronze and silver tables", needs_archive=True, settings=("settle_s",),
    ),
    Stage(
        "templates", "normal", ("training_jobs", "log_records"),
        ("templates", "template_aliases", "message_templates", "log_events", "job_templates"),
        "gives every log event its template and counts templates by job, role and node", settings=("template_rules",),
    ),
    Stage(
        "library", "normal", ("training_jobs", "ranks", "job_templates", "templates"), ("normal_templates",),
        "learns which templates are normal from the fleet's successful jobs", settings=("normal_min_jobs",),
    ),
    Stage(
        "baselines", "normal", ("training_jobs", "job_templates", "templates", "iterations"),
        ("config_index", "baselines"),
        "finds the successful jobs whose configuration matches", settings=("key_classes",),
    ),
    Stage(
        "log_diffs", "evidence",
        ("training_jobs", "ranks", "log_events", "job_templates", "templates", "normal_templates", "baselines",
         "iterations", "operations", "clock_offsets"),
        ("log_findings", "node_findings", "onsets"),
        "compares logs across jobs, ranks and time",
    ),
    Stage(
        "stacks", "evidence", ("training_jobs", "ranks", "stack_samples", "iterations", "log_records"),
        ("stack_findings", "stack_tries"),
        "merges stacks and tells waiters from the one that never came",
    ),
    Stage(
        "collectives", "evidence", ("training_jobs", "ranks", "collectives"), ("collective_findings",),
        "matches collectives by group and sequence number",
    ),
    Stage(
        "operations", "evidence", ("training_jobs", "ranks", "operations", "iterations", "baselines"),
        ("operation_findings", "straggler_reports"),
        "finds slow ranks, operations and steps, and what they cost",
    ),
    Stage(
        "machine_models", "evidence", ("training_jobs", "ranks", "machine_metrics"), ("machine_models",),
        "learns from successful jobs what healthy machines look like",
        settings=("machine_training_jobs", "machine_false_alarms_per_job_day", "machine_seed"),
    ),
    Stage(
        "machine_scores", "evidence", ("training_jobs", "ranks", "machine_metrics", "machine_models", "node_events"),
        ("machine_scores", "machine_drift"),
        "scores each machine against its peers", knows_now=True,
    ),
    Stage(
        "diagnoses", "verdicts",
        ("training_jobs", "ranks", "normal_templates", "node_events", "baselines", *FINDINGS),
        ("diagnoses",),
        "fuses a job's findings into ranked candidates", settings=("cause_rules",),
    ),
    Stage(
        "similarity", "verdicts", ("training_jobs", "job_templates", "templates", "normal_templates", "diagnoses",
                                   "collective_findings", "node_events", "config_index"),
        ("job_fingerprints", "job_similarity", "failure_families", "config_separators"),
        "finds past failures that look alike", settings=("key_classes",),
    ),
    Stage(
        "reliability", "verdicts", ("training_jobs", "node_events", "diagnoses", "straggler_reports", "iterations"),
        ("reliability_figures", "reliability_nodes", "reliability_lineages", "reliability_attributions"),
        "computes the fleet's reliability figures", knows_now=True,
    ),
    Stage(
        "reports", "verdicts",
        ("training_jobs", "ranks", "diagnoses", "ingested_files", "quarantine", "dq_results", "log_events", "job_templates",
         "templates", "normal_templates", "iterations", "operations", "machine_metrics", "machine_scores",
         "stack_tries", "straggler_reports", "node_events", "job_similarity", "failure_families",
         "reliability_figures", "reliability_nodes"),
        (),
        "writes the pages", settings=("webhook_url", "report_url"),
    ),
)  # fmt: skip


def stage(name: str) -> Stage:
    """The stage of that name; raises KeyError when there is none."""
    return {s.name: s for s in STAGES}[name]


def tasks() -> dict[str, list[Stage]]:
    """Airflow tasks in order, each with its stages in order."""
    grouped: dict[str, list[Stage]] = {}
    for each in STAGES:
        grouped.setdefault(each.task, []).append(each)
    return grouped


def upstream(task: str) -> list[str]:
    """The tasks whose tables a task reads, in order."""
    reads = {table for each in tasks()[task] for table in each.reads}
    return [
        name for name, members in tasks().items() if name != task and reads & {table for each in members for table in each.writes}
    ]
