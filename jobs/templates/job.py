"""Reads the pending jobs' log records; mines messages that no night has seen; writes templates, events and counts.

The library is switched in one transaction, that of `message_templates`; templates are added before it and pruned
after it, so that a killed run, started again, finds the library of the night before and ends the same.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import FleetdiffError
from jobs.core.runner import StageContext
from jobs.core.tables import spark_schema
from jobs.templates import transform
from ml.templates.library import Library, Template, grown
from ml.templates.predefined import Rules, rules_of
from schemas import tables

TEMPLATE = (
    "template_id string, template string, pattern string, alert string, is_predefined boolean, name string,"
    " provenance string, example string, example_job_id string"
)


def run(context: StageContext) -> None:
    """Run the stage."""
    records = context.read_pending("log_records")
    stored = context.read("message_templates")
    known = stored if context.pending is not None else stored.limit(0)
    old = _library(context, known)
    new = {row.message_key: row.masked for row in transform.unseen_messages(records, known).collect()}
    library = grown(old, new.values(), _rules(context))
    version = library.version
    aliases = _aliases(context, library, stored, new)
    templates = _templates(context, library)
    context.write("templates", _added(context, templates, version))
    context.write("template_aliases", aliases)
    mapped = context.spark.createDataFrame(
        [(key, library.messages[masked], masked) for key, masked in sorted(new.items())],
        "message_key long, template_id string, masked string",
    )
    now = context.read("template_aliases")
    context.write("message_templates", transform.message_templates(known, now, mapped, version))
    _write_events(context, records, templates, version)


def _write_events(context: StageContext, records: DataFrame, templates: DataFrame, version: str) -> None:
    """Events and counts of pending jobs; counts of other jobs whose templates became more general; final templates."""
    messages = context.read("message_templates")
    context.write("log_events", transform.log_events(records, messages, version))
    events = context.read_pending("log_events")
    stale = _stale_jobs(context)
    partials = transform.counted(events)
    if stale:
        before = context.read("job_templates").where(F.col("job_id").isin(stale))
        past = transform.partial(transform.renamed(before, context.read("template_aliases")))
        partials = partials.unionByName(past.select(partials.columns))
    counts = transform.combined(partials, templates, version)
    pending = None if context.pending is None else [*context.pending, *stale]
    if pending != []:
        context.lake.write("job_templates", counts, pending)
    context.write(
        "templates",
        transform.templates_with_counts(templates, context.read("job_templates"), transform.examples(events), version),
    )


def _stale_jobs(context: StageContext) -> list[str]:
    """Jobs that are not pending and count a template under an id that another one stands for now."""
    if context.pending is None:
        return []
    moved = context.read("template_aliases").where("alias_id <> template_id").select(F.col("alias_id").alias("template_id"))
    jobs = context.read("job_templates").join(F.broadcast(moved), "template_id", "left_semi").select("job_id").distinct()
    return sorted({row.job_id for row in jobs.collect()} - set(context.pending))


def _rules(context: StageContext) -> Rules:
    """The package's rules, and before them those of the file that the setting `template_rules` names."""
    path = context.settings.get("template_rules")
    if not path:
        return rules_of()
    try:
        return rules_of(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise FleetdiffError(f"{path}: {error}; see docs/templates.md for the form of template rules") from error


def _library(context: StageContext, known: DataFrame) -> Library:
    """The library of the night before: the templates that its messages name, and all aliases."""
    if context.pending is None:
        return Library()
    used = known.select("template_id").distinct()
    rows = context.read("templates").join(F.broadcast(used), "template_id", "left_semi").collect()
    templates = {
        row.template_id: Template(row.template_id, row.template, row.alert, row.is_predefined, row.provenance, row.pattern or "")
        for row in rows
    }
    aliases = {row.alias_id: row.template_id for row in context.read("template_aliases").collect()}
    return Library(templates, aliases, {})


def _aliases(context: StageContext, library: Library, stored: DataFrame, new: dict[int, str]) -> DataFrame:
    """Rows of `template_aliases`: every id ever given. After mining from scratch, old ids follow their messages."""
    before = {row.alias_id: (row.template_id, row.since_version) for row in context.read("template_aliases").collect()}
    follow: dict[str, str] = {}
    if context.pending is None and before:
        for row in stored.select("message_key", "template_id").orderBy("message_key").collect():
            if row.message_key in new:
                follow.setdefault(row.template_id, library.messages[new[row.message_key]])
    rows = []
    for alias in sorted({*before, *library.aliases}):
        last, since = before.get(alias, (alias, library.version))
        rows.append((alias, library.aliases.get(alias) or follow.get(alias) or follow.get(last, last), since))
    return context.spark.createDataFrame(rows, spark_schema(tables()["template_aliases"]))


def _templates(context: StageContext, library: Library) -> DataFrame:
    """The library's templates, with the examples that they have in the lake."""
    rows = [
        (t.template_id, t.text, t.pattern, t.alert, t.is_predefined, t.template_id if t.is_predefined else None, t.provenance)
        for _, t in sorted(library.templates.items())
    ]
    schema = ", ".join(TEMPLATE.split(", ")[:7])
    fresh = context.spark.createDataFrame(rows, schema)
    if context.pending is None:
        none = F.lit(None).cast("string")
        return fresh.withColumn("example", none).withColumn("example_job_id", none)
    had = context.read("templates").select("template_id", "example", "example_job_id")
    kept = context.spark.createDataFrame(had.collect(), had.schema)
    return fresh.join(F.broadcast(kept), "template_id", "left")


def _added(context: StageContext, templates: DataFrame, version: str) -> DataFrame:
    """The table `templates` with the new ones added, counts as they stand: the old ones stay until the switch."""
    table = context.read("templates")
    new = templates.join(table.select("template_id"), "template_id", "left_anti")
    given = {"n_events": 0, "n_jobs": 0, "library_version": version}
    schema = spark_schema(tables()["templates"])
    missing = [F.lit(given.get(f.name)).cast(f.dataType).alias(f.name) for f in schema if f.name not in new.columns]
    return table.unionByName(new.select("*", *missing).select(table.columns))
