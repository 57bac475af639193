"""One job's operations and facts, as Arrow tables, to one row: its findings and its report."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.operations.report import report_row
from ml.operations.finding import Finding
from ml.operations.job import Expected, JobOperations, Place, analyse_job, analyse_sums, time_findings
from ml.operations.patterns import expected_shares
from ml.operations.profile import usual
from ml.operations.step_times import StepTimes, step_times
from schemas import operation_findings, straggler_reports

OPERATION_COLUMNS = (
    "node", "rank", "step", "kind", "layer", "name", "started_us", "duration_us", "n_calls", "parent", "group", "stage",
    "dp_rank", "micro_batch", "sequence", "source", "file",
)  # fmt: skip
_ROW = pa.schema(
    [
        pa.field("job_id", pa.string()),
        pa.field("findings", pa.list_(pa.struct([pa.field(c.name, c.type) for c in operation_findings.TABLE.columns]))),
        pa.field("report", pa.struct([pa.field(c.name, c.type) for c in straggler_reports.TABLE.columns])),
    ]
)
_SECONDS = pa.map_(pa.string(), pa.float64())
_RANGE = pa.struct([pa.field("low", pa.float64()), pa.field("high", pa.float64())])
USUAL = pa.schema(
    [
        pa.field("job_id", pa.string()),
        pa.field("step_s", pa.float64()),
        pa.field("transfer_s", _SECONDS),
        pa.field("layers_s", _SECONDS),
        pa.field("shares", pa.map_(pa.string(), _RANGE)),
    ]
)
"""What is usual in a baseline: see `ml.operations.profile`."""
_COMPUTES = ("forward", "backward", "optimizer", "loss")


def analyse(operations: pa.Table, facts: pa.Table) -> pa.Table:
    """At most one row, as `_ROW` says; none for a job that left neither operations nor printed iterations."""
    if not len(facts):
        return _ROW.empty_table()
    known = facts.to_pylist()[0]
    job_id = known["job_id"]
    place = _place(known)
    rows = operations.to_pandas() if len(operations) else pd.DataFrame(columns=list(OPERATION_COLUMNS))
    source, rows = _best_source(rows)
    found: JobOperations | None = None
    if source == "timeline":
        found = analyse_job(_on_devices(rows, known), place, _expected(known))
    elif source == "kineto":
        found = analyse_sums(rows, place)
    times, printed = _times(found, known)
    if not len(rows) and times is None:
        return _ROW.empty_table()
    extra = time_findings(times, np.arange(0)) if printed and times is not None else []
    report = report_row(job_id, source, rows, found, times, known)
    all_found = [*(found.findings if found else ()), *extra, *_limits(report)]
    named = rows[["rank", "file"]].dropna().drop_duplicates().sort_values(["rank", "file"])
    files: dict[int, list[str]] = {}
    for rank, file in zip(named["rank"], named["file"], strict=True):
        files.setdefault(int(rank), []).append(str(file))
    return pa.Table.from_pylist(
        [{"job_id": job_id, "findings": [_finding_row(job_id, f, files) for f in all_found], "report": report}], schema=_ROW
    )


def _limits(report: Mapping[str, Any]) -> list[Finding]:
    """What was repaired, left out or refused, as notes on the job's coverage: they accuse nobody."""
    said = list(report["notes"])
    if report["refused"] and report["method"]:
        said.append(f"no straggler what-if: {report['refused']}")
    return [Finding("coverage_note", "temporal", 0.0, f"operations: {text}", text, is_echo=True, is_global=True) for text in said]


def usual_of(operations: pa.Table) -> pa.Table:
    """At most one row, as `USUAL` says: what is usual in one job, a baseline of others."""
    rows = operations.to_pandas()
    found = usual(rows) if len(rows) else None
    if found is None:
        return USUAL.empty_table()
    shares = [(name, {"low": low, "high": high}) for name, (low, high) in sorted(found.shares.items())]
    row = {"job_id": rows["job_id"].iloc[0], "step_s": found.step_s, "transfer_s": sorted(found.transfer_s.items()),
           "layers_s": sorted(found.layers_s.items()), "shares": shares}  # fmt: skip
    return pa.Table.from_pylist([row], schema=USUAL)


def _best_source(rows: pd.DataFrame) -> tuple[str | None, pd.DataFrame]:
    """The rows of one source: what was recorded in full (a what-if trace, a time line) before what was summed."""
    for source in ("whatif", "timeline", "kineto"):
        of_source = rows[rows["source"] == source]
        if len(of_source):
            return source, of_source
    return None, rows.iloc[:0]


def _place(known: Mapping[str, Any]) -> Place:
    ranks = known.get("ranks") or []
    devices = {str(r["device"]) for r in ranks if r["device"]}
    return Place(
        nodes={r["rank"]: r["node"] for r in ranks if r["node"]},
        roles={r["rank"]: r["role"] for r in ranks if r["role"]},
        groups={r["rank"]: {g["key"]: list(g["value"] or []) for g in r["groups"] or []} for r in ranks},
        backend=_backend(dict(known.get("config") or []), devices),
    )


def _backend(config: Mapping[str, str], devices: set[str]) -> str:
    """The library of the collectives: as configured, else gloo for jobs on CPUs and NCCL for the others."""
    for key in sorted(config):
        if "backend" in key.lower() and config[key]:
            words = str(config[key]).lower()
            if "nccl" in words:
                return "nccl"
            if "gloo" in words:
                return "gloo"
    return "gloo" if not devices or all(d.lower().startswith("cpu") for d in devices) else "nccl"


def _on_devices(rows: pd.DataFrame, known: Mapping[str, Any]) -> pd.DataFrame:
    """Computations of jobs on accelerators run there, whoever wrote the time line."""
    devices = [str(r["device"]).lower() for r in known.get("ranks") or [] if r["device"]]
    if not devices or any(d.startswith("cpu") for d in devices):
        return rows
    return rows.assign(layer=rows["layer"].where(~rows["kind"].isin(_COMPUTES), "gpu"))


def _expected(known: Mapping[str, Any]) -> Expected:
    baselines = sorted(known.get("expected") or [], key=lambda b: b["baseline_job_id"])
    shares = [
        {name: (r["low"], r["high"]) for name, r in dict(b["shares"]).items()} for b in baselines if b.get("shares") is not None
    ]
    return Expected(
        tuple(b["step_s"] for b in baselines if b["step_s"]),
        _medians([dict(b["transfer_s"] or []) for b in baselines]),
        _medians([dict(b.get("layers_s") or []) for b in baselines]),
        expected_shares(shares),
    )


def _medians(maps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each name's values over the maps that have it."""
    names = sorted({name for values in maps for name in values})
    return {name: float(np.median([values[name] for values in maps if name in values])) for name in names}


def _times(found: JobOperations | None, known: Mapping[str, Any]) -> tuple[StepTimes | None, bool]:
    """Step times of the operations, else of the printed iterations (then True)."""
    if found is not None and found.step_times is not None:
        return found.step_times, False
    iterations = known.get("iterations") or []
    if not iterations:
        return None, False
    steps = np.array([i["iteration"] for i in iterations], dtype=np.int64)
    seconds = _printed_seconds(iterations)
    printed = tuple(b["printed_s"] for b in known.get("expected") or [] if b["printed_s"])
    return step_times(steps, seconds, sorted(printed)), True


def _printed_seconds(iterations: Sequence[Mapping[str, Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Printed step times; where none is printed, the time between neighbouring iterations' lines."""
    seconds = np.array([math.nan if i["step_time_s"] is None else i["step_time_s"] for i in iterations], dtype=np.float64)
    if np.isfinite(seconds).any():
        return seconds
    for k in range(1, len(iterations)):
        before, now = iterations[k - 1], iterations[k]
        gap = now["iteration"] - before["iteration"]
        if before["at"] and now["at"] and gap > 0:
            seconds[k] = (now["at"] - before["at"]).total_seconds() / gap
    return np.where(seconds > 0, seconds, np.nan)


def _finding_row(job_id: str, finding: Finding, files: Mapping[int, Sequence[str]]) -> dict[str, Any]:
    scope = ",".join(finding.nodes) + "|" + ",".join(map(str, finding.ranks))
    identity = f"{job_id}|{finding.kind}|{finding.subject}|{scope}"
    return {
        "job_id": job_id,
        "finding_id": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "source": "operations",
        "axis": finding.axis,
        "kind": finding.kind,
        "nodes": sorted(finding.nodes),
        "ranks": sorted(finding.ranks),
        "devices": [],
        "group_kind": finding.group_kind,
        "score": float(finding.score),
        "is_echo": finding.is_echo,
        "is_global": finding.is_global,
        "at": None if finding.at_s is None else datetime.fromtimestamp(finding.at_s, UTC),
        "iteration": finding.iteration,
        "phase": "train",
        "statement": finding.statement,
        "subject": finding.subject,
        "refs": [{"file": file, "line": None} for file in _files_of(finding, files)],
        "layer": finding.layer,
        "operation": finding.operation,
        "excess_s": finding.excess_s,
        "share_of_step": finding.share_of_step,
        "share_last": finding.share_last,
        "beyond": list(finding.beyond.items()),
    }


def _files_of(finding: Finding, files: Mapping[int, Sequence[str]]) -> list[str]:
    """Up to three files of the finding's own ranks; the first file of the job where it names none."""
    of_ranks = dict.fromkeys(file for rank in sorted(finding.ranks or files) for file in files.get(rank, ()))
    return list(of_ranks)[: 3 if finding.ranks else 1]
