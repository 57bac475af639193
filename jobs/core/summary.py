"""What a night found, in a few lines that a person can read: from the Delta tables, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.compute as pc

from jobs.core import lake as tables
from ml.fusion.evaluate import ACCUSED
from ml.reliability.outcomes import Outcome, outcome_of


def closing_table(lake: str, report: str, seconds: Mapping[str, float]) -> str:
    """Jobs read, failed (as reliability counts them), diagnosed, quarantined rows and seconds a stage; where the report lies."""
    jobs = tables.rows(lake, "training_jobs", ["job_id", "state"])
    states = Counter(jobs["state"].to_pylist())
    diagnosed = tables.rows(lake, "diagnoses", ["job_id", "symptom"])
    n_quarantined = pc.sum(tables.rows(lake, "quarantine", ["n_records"])["n_records"]).as_py() or 0
    failed = sum(n for state, n in states.items() if outcome_of(state) is Outcome.FAILURE)
    busy = "  ".join(f"{stage} {spent:.1f}" for stage, spent in seconds.items())
    counts = f"{len(jobs):,} jobs read, {failed:,} failed, {len(diagnosed):,} diagnosed, {n_quarantined:,} rows in quarantine"
    lines = [counts, *([f"seconds: {busy}"] if busy else []), *verdict_lines(lake)]
    return "\n".join([*lines, f"report: {_report_line(lake, report)}"])


def _report_line(lake: str, report: str) -> str:
    """Where the pages begin, or how to get them."""
    if "://" in report:
        return f"{report.rstrip('/')}/index.html"
    page = Path(report).resolve() / "index.html"
    return str(page) if page.is_file() else f"none in {page.parent}; `fleetdiff reports --lake {lake} --report DIR` writes one"


def verdict_lines(lake: str, limit: int = 8) -> list[str]:
    """One line a job with a symptom: job, symptom, where, since when; the rest is counted."""
    found = tables.rows(lake, "diagnoses", ["job_id", "symptom", "top_node", "top_score", "onset_iteration"])
    shown = [row for row in sorted(found.to_pylist(), key=lambda row: row["job_id"]) if row["symptom"] != "none"]
    lines = [f"  {_verdict(row)}" for row in shown[:limit]]
    if len(shown) > limit:
        lines.append(f"  … and {len(shown) - limit:,} more")
    return lines


def _verdict(row: Mapping[str, object]) -> str:
    """`job-7: hang, candidate n1 (0.93), since iteration 60`."""
    score = row["top_score"]
    named = isinstance(score, float) and score >= ACCUSED and row["top_node"]
    place = f"candidate {row['top_node']} ({score:.2f})" if named else "no node stands out"
    since = f", since iteration {row['onset_iteration']}" if row["onset_iteration"] is not None else ""
    return f"{row['job_id']}: {row['symptom']}, {place}{since}"
