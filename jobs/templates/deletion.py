"""Forgetting a job: its rows in every table, and what only it had brought into the template library. Without Spark.

    >>> forget("/data/lake", "job-7107")  # doctest: +SKIP
    {'log_records': 5210, 'job_templates': 61, …}

Tables about the whole fleet (the normal library, reliability, similarity) are made anew by their stages.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from jobs.core.lake import arrow_schema, open_table, rows, table_path
from schemas import tables
from schemas.templates import EXAMPLE_CHARACTERS

LIBRARY = ("templates", "template_aliases", "message_templates")


def _reference_columns(name: str) -> list[str]:
    """Columns that name a job: `job_id`, `baseline_job_id` …"""
    return [c.name for c in tables()[name].columns if c.name.endswith("job_id") and c.type == pa.string()]


def forget(lake: str, job_id: str) -> dict[str, int]:
    """Delete a job from every table, counts included; rows deleted, by table. Deleting it again finds nothing.

    A row of another job that names it (as a baseline, as a look-alike) goes too.
    """
    deleted: dict[str, int] = {}
    quoted = job_id.replace("'", "''")
    for name in tables():
        columns = [] if name in LIBRARY else _reference_columns(name)
        if columns:
            found = open_table(lake, name).delete(" OR ".join(f"{column} = '{quoted}'" for column in columns))
            if found["num_deleted_rows"]:
                deleted[name] = int(found["num_deleted_rows"])
    deleted.update(_prune_library(lake, job_id))
    return deleted


def _prune_library(lake: str, job_id: str) -> dict[str, int]:
    """Drop messages that no remaining job printed, templates without messages, their aliases; count templates anew."""
    printed = pc.unique(rows(lake, "log_records", ["message_key"])["message_key"].combine_chunks())
    messages = rows(lake, "message_templates")
    kept_messages = messages.filter(pc.is_in(messages["message_key"], value_set=printed))
    used = pc.unique(kept_messages["template_id"].combine_chunks())
    aliases, templates = rows(lake, "template_aliases"), rows(lake, "templates")
    kept = {
        "message_templates": kept_messages,
        "template_aliases": aliases.filter(pc.is_in(aliases["template_id"], value_set=used)),
        "templates": _recounted(templates.filter(pc.is_in(templates["template_id"], value_set=used)), lake, job_id),
    }
    before = {"message_templates": messages, "template_aliases": aliases, "templates": templates}
    for name, table in kept.items():
        if not table.equals(before[name]):
            path = open_table(lake, name).table_uri
            write_deltalake(path, table.cast(arrow_schema(name)), mode="overwrite")
    return {name: before[name].num_rows - kept[name].num_rows for name in kept if before[name].num_rows != kept[name].num_rows}


def _recounted(templates: pa.Table, lake: str, job_id: str) -> pa.Table:
    """Templates with counts over the jobs that remain, and an example that one of them printed."""
    counts: dict[str, list[dict[str, object]]] = {}
    columns = ["job_id", "template_id", "n_events", "first_at", "last_at", "example_file", "example_line"]
    for row in rows(lake, "job_templates", columns).to_pylist():
        counts.setdefault(row["template_id"], []).append(row)
    fresh = []
    for template in templates.to_pylist():
        mine = counts.get(template["template_id"], [])
        firsts = sorted((str(row["first_at"] or "9"), str(row["job_id"])) for row in mine)
        lasts = sorted((str(row["last_at"] or ""), str(row["job_id"])) for row in mine)
        template |= {
            "n_events": sum(int(str(row["n_events"])) for row in mine),
            "n_jobs": len({row["job_id"] for row in mine}),
            "first_seen_at": min((row["first_at"] for row in mine if row["first_at"]), default=None),  # type: ignore[type-var]
            "last_seen_at": max((row["last_at"] for row in mine if row["last_at"]), default=None),  # type: ignore[type-var]
            "first_job_id": firsts[0][1] if firsts else None,
            "last_job_id": lasts[-1][1] if lasts else None,
        }
        if template["example_job_id"] == job_id:
            template |= _example(lake, mine)
        fresh.append(template)
    return pa.Table.from_pylist(fresh, schema=templates.schema)


def _example(lake: str, mine: list[dict[str, object]]) -> dict[str, object]:
    """The first event of the first job that remains."""
    for row in sorted(mine, key=lambda row: (str(row["first_at"] or "9"), str(row["job_id"]))):
        place = [("job_id", "=", row["job_id"]), ("file", "=", row["example_file"]), ("line", "=", row["example_line"])]
        found = rows(lake, "log_events", ["message"], place).to_pylist()
        if found:
            return {"example": found[0]["message"][:EXAMPLE_CHARACTERS], "example_job_id": row["job_id"]}
    return {"example": None, "example_job_id": None}


RETENTION = "delta.logRetentionDuration"


def vacuum(lake: str) -> None:
    """Remove the old files and the old log of every table, so that nothing of a deleted job stays on disk.

    The log holds the smallest and largest values of columns: it goes too, behind a checkpoint.
    """
    for name in tables():
        before = open_table(lake, name).metadata().configuration.get(RETENTION, "interval 30 days")
        open_table(lake, name).alter.set_table_properties({RETENTION: "interval 0 seconds"})
        open_table(lake, name).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        open_table(lake, name).create_checkpoint()
        open_table(lake, name).cleanup_metadata()
        # Spark's checksums of past versions hold the same values; the protocol lets them be absent.
        for checksum in Path(table_path(lake, name), "_delta_log").glob("*.crc"):
            checksum.unlink()
        open_table(lake, name).alter.set_table_properties({RETENTION: before})
