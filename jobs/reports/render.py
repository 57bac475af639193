"""What runs inside Spark's workers: thin series, make a job's page from its parts, write its files, say what was written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.reports import folder
from jobs.reports.page import Page
from jobs.reports.pages.job import job_page
from jobs.reports.pages.peers import thin
from jobs.reports.pages.summary import page_key, summary

PART_SCHEMA = "job_id string, part string, payload string"
WRITTEN_SCHEMA = "job_id string, page string, n_bytes long, seconds double"
SUMMARY_SCHEMA = "job_id string, summary string, page_key string"
N_POINTS = 160
"""Points of a metric's line."""


def thin_metrics(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Series of machine_metrics as parts of at most N_POINTS values; `step_s` is the seconds between these."""
    for batch in batches:
        ids, payloads = [], []
        for row in batch.to_pylist():
            series, start, period = row.pop("values") or [], row.pop("grid_start_at"), row.pop("period_s") or 0.0
            values = thin(series, N_POINTS)
            ids.append(row.pop("job_id"))
            step = period * len(series) / max(len(values), 1)
            payloads.append(
                json.dumps({**row, "grid_start_at": start.isoformat() if start else None, "step_s": step, "values": values})
            )
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, pa.string()) for c in (ids, ["metric"] * len(ids), payloads)], ["job_id", "part", "payload"]
        )


def gather(payloads: Sequence[tuple[str, str]], n_bins: int) -> dict[str, list[dict[str, Any]]]:
    """Parts by name from (part, payload) pairs; pairs of bin and value become dense rows."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, payload in sorted(payloads):
        row = json.loads(payload)
        if name == "activity":
            row["bins"] = _dense([(c["bin"], c["n"]) for c in row.pop("counts")], n_bins, 0)
        elif name == "work":
            steps = _dense([(c["bin"], c["own_ms"]) for c in row.pop("own") if c], n_bins, None)
            first, last = row["first_step"], row["last_step"]
            width = -(-(last - first + 1) // n_bins) if first is not None and last is not None else 1
            used = -(-(last - first + 1) // max(width, 1)) if first is not None and last is not None else 0
            row["steps"] = steps[:used]
        parts.setdefault(name, []).append(row)
    return complete_activity(parts, n_bins)


def _dense(pairs: Sequence[tuple[int, float]], n_bins: int, empty: float | None) -> list[float | None]:
    row: list[float | None] = [empty] * n_bins
    for place, value in pairs:
        if 0 <= place < n_bins:
            row[place] = value
    return row


def complete_activity(parts: dict[str, list[dict[str, Any]]], n_bins: int) -> dict[str, list[dict[str, Any]]]:
    """Ranks that logged nothing get an empty row; lines without a rank are left out when there are lines with one."""
    seen = [row for row in parts.get("activity", []) if row["rank"] is not None]
    if seen:
        known = {row["rank"] for row in seen}
        silent = [r for r in parts.get("rank", []) if r["rank"] not in known]
        parts["activity"] = seen + [{"rank": r["rank"], "node": r["node"], "bins": [0] * n_bins} for r in silent]
    return parts


def page_writer(target: str, versions: Mapping[str, int], lake: str, n_bins: int) -> Callable[[pa.Table], pa.Table]:
    """A function that makes and writes the page of one job: its parts in, what was written out."""

    def write_page(rows: pa.Table) -> pa.Table:
        began = time.monotonic()
        job_id = rows["job_id"][0].as_py()
        parts = gather(list(zip(rows["part"].to_pylist(), rows["payload"].to_pylist())), n_bins)
        if not parts.get("job"):
            return _written([], [], [], [])
        page = drawn(parts, versions, lake)
        n_bytes = folder.write_all(target, page.files())
        return _written([job_id], [page.name], [n_bytes], [time.monotonic() - began])

    return write_page


def drawn(parts: Mapping[str, Sequence[Mapping[str, Any]]], versions: Mapping[str, int], lake: str) -> Page:
    """The page of a job; when its pictures cannot be drawn from odd rows, the page without them, which says so.

    One job's odd data must not cost the night its pages.
    """
    try:
        return job_page(parts, versions, lake)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        job = dict(parts["job"][0])
        job["notes"] = [*(job.get("notes") or []), f"the pictures of this page could not be drawn ({type(error).__name__})"]
        return job_page({"job": [job], "diagnosis": parts.get("diagnosis") or []}, versions, lake)


def _written(ids: list[str], pages: list[str], n_bytes: list[int], seconds: list[float]) -> pa.Table:
    schema = pa.schema([("job_id", pa.string()), ("page", pa.string()), ("n_bytes", pa.int64()), ("seconds", pa.float64())])
    return pa.table([ids, pages, n_bytes, seconds], schema=schema)


def summarise(code: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function over batches of (job_id, job as JSON, document, extra): the jobs' summaries and page keys."""

    def over_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids, rows, keys = [], [], []
            for row in batch.to_pylist():
                job = json.loads(row["job"])
                ids.append(row["job_id"])
                rows.append(json.dumps(summary(job, json.loads(row["document"]) if row["document"] else None)))
                keys.append(page_key(job, row["document"], row["extra"] or "", code))
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, pa.string()) for c in (ids, rows, keys)], ["job_id", "summary", "page_key"]
            )

    return over_batches
