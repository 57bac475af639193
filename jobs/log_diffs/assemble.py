"""One job's bundle of rows becomes its evidence, and its findings become rows of three tables.

A bundle is a mapping: `job` (a `training_jobs` row) and lists of rows: `ranks`; `events` (the first few events of each
template and writer that are alerts or not normal, with `n_total`, `template`, `alert`, `is_normal`); `counts` (of
`job_templates`); `diffs` (`template_id, change, …`); `iterations`; `steps` (operations summed by rank, step, name);
`offsets` (of `clock_offsets`); `last_seen` (node, last time); `phases` and `baseline_phases`; numbers `n_baselines`, `has_library`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from jobs.core.rows import distinct, job_of, listed, number, seconds
from jobs.log_diffs.evidence import log_row, node_row, onset_row, utterance
from ml.log_diffs.cross_job import phase_findings
from ml.log_diffs.diff import diff_job
from ml.log_diffs.evidence import Count, Evidence, JobDiff
from ml.log_diffs.progress import STEP_COLUMNS
from ml.log_diffs.topology import Job
from ml.log_diffs.utterances import Utterance

ITERATION_COLUMNS = ["node", "rank", "iteration", "occurred_at", "step_time_s", "loss", "grad_norm", "file", "line"]


def evidence_of(bundle: Mapping[str, Any]) -> Evidence:
    """The evidence of a bundle; node clocks are corrected here."""
    job = job_of(bundle["job"], bundle.get("ranks") or ())
    offsets = {str(r["node"]): float(r["offset_s"]) for r in bundle.get("offsets") or ()}
    phases = {r["phase"]: (seconds(r["start_at"]) or 0.0, seconds(r["end_at"]) or 0.0) for r in bundle.get("phases") or ()}
    others: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for r in bundle.get("baseline_phases") or ():
        others[r["baseline_job_id"]][r["phase"]] = (seconds(r["start_at"]) or 0.0, seconds(r["end_at"]) or 0.0)
    last = {
        str(r["node"]): (seconds(r["last_at"]) or 0.0) - offsets.get(str(r["node"]), 0.0) for r in bundle.get("last_seen") or ()
    }
    return Evidence(
        job,
        tuple(_utterances(bundle.get("events") or (), offsets)),
        tuple(_counts(bundle.get("counts") or ())),
        pd.DataFrame(list(bundle.get("diffs") or ())),
        int(bundle.get("n_baselines") or 0),
        bool(bundle.get("has_library", True)),
        phases,
        tuple(phase_findings(phases, [others[k] for k in sorted(others)])),
        iterations_frame(bundle.get("iterations") or (), offsets),
        steps_frame(_or_none(bundle.get("steps")), offsets, job),
        last,
    )


def diff_rows(bundle: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `log_findings`, `node_findings` and `onsets` of one job."""
    return rows_of(str(bundle["job"]["job_id"]), diff_job(evidence_of(bundle)))


def rows_of(job_id: str, diff: JobDiff) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Findings as rows, each id once."""
    logs = [*(log_row(job_id, f) for f in diff.templates), *(log_row(job_id, f) for f in diff.logs)]
    return distinct(logs), distinct(node_row(job_id, f) for f in diff.nodes), distinct(onset_row(job_id, f) for f in diff.onsets)


def _or_none(rows: Any) -> Any:
    """Rows, or none where the column is null; a frame has no truth value."""
    return () if rows is None else rows


def _utterances(events: Iterable[Mapping[str, Any]], offsets: Mapping[str, float]) -> list[Utterance]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in events:
        groups[row["template_id"], row.get("node"), number(row.get("rank")), row.get("stream")].append(row)
    said = []
    for _, rows in sorted(groups.items(), key=lambda item: tuple(str(part) for part in item[0])):
        ordered = sorted(
            rows, key=lambda r: (seconds(r.get("occurred_at")) or 0.0, r.get("file") or "", number(r.get("line")) or 0)
        )
        said.append(utterance(ordered, offsets, bool(ordered[0].get("is_normal"))))
    return said


def _counts(rows: Iterable[Mapping[str, Any]]) -> list[Count]:
    return [
        Count(
            r["template_id"],
            r.get("node"),
            r.get("role"),
            int(r["n_events"]),
            tuple(int(x) for x in listed(r.get("ranks"))),
        )
        for r in rows
    ]


def iterations_frame(rows: Iterable[Mapping[str, Any]], offsets: Mapping[str, float]) -> pd.DataFrame:
    """Printed progress with times in corrected seconds, and whether loss and norm were printed at all."""
    listed = list(rows)
    frame = pd.DataFrame([{c: r.get(c) for c in ITERATION_COLUMNS} for r in listed], columns=ITERATION_COLUMNS)
    if frame.empty:
        return frame
    times = [seconds(at) for at in frame["occurred_at"]]
    frame["occurred_at"] = np.array(
        [np.nan if at is None else at - offsets.get(str(n), 0.0) for at, n in zip(times, frame["node"])]
    )
    for column in ("loss", "grad_norm"):
        frame[f"is_{column}_printed"] = [r.get(column) is not None for r in listed]
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    frame["step_time_s"] = pd.to_numeric(frame["step_time_s"], errors="coerce")
    return frame.sort_values(["iteration", "rank"], kind="stable").reset_index(drop=True)


def steps_frame(rows: pd.DataFrame | Iterable[Mapping[str, Any]], offsets: Mapping[str, float], job: Job) -> pd.DataFrame:
    """Operations summed by rank, step and name, times in corrected seconds."""
    frame = rows.reindex(columns=STEP_COLUMNS) if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows), columns=STEP_COLUMNS)
    if frame.empty:
        return frame
    shift = frame["rank"].map(lambda r: offsets.get(job.node_of.get(int(r), ""), 0.0))
    for column in ("started_at", "ended_at"):
        frame[column] = frame[column].astype(float) - shift
    return frame.astype({"rank": int, "step": int})
