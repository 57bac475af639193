"""The whole chain on the lab's jobs in plain Python: read, compare, diagnose, evaluate. Seconds instead of a Spark night.

    python bench/diagnose_lab.py --data ../shared/data/lab [--job job-1] [--cache DIR] [--json]

It calls the same pure functions as the stages, on tables as ingest reads them; templates are grouped by the key of
their masked text, baselines are the completed jobs of the same name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pickle
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.diagnoses.assemble import case_of, diagnosis_row
from jobs.log_diffs.assemble import diff_rows
from ml.fusion.evaluate import evaluate
from ml.log_diffs.cross_job import job_diff
from ml.templates.alerts import alerts_of
from ml.templates.masking import masked_messages
from ml.templates.predefined import predefined_of

Tables = dict[str, pa.Table]


def read(folder: Path, cache: Path | None) -> Tables:
    from jobs.adapters.archive import read_job

    kept = cache / f"{folder.name}.pickle" if cache else None
    if kept and kept.exists():
        return pickle.loads(kept.read_bytes())
    tables = read_job(folder)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(tables))
    return tables


def with_templates(tables: Tables) -> pd.DataFrame:
    """log_records with template_id, template and alert."""
    logs = tables["log_records"].to_pandas()
    keys = logs.drop_duplicates("message_key")
    masked = masked_messages(keys["message"].tolist()) if len(keys) else []
    by_key = dict(zip(keys["message_key"], masked))
    alert = dict(zip(keys["message_key"], alerts_of(keys["message"].tolist()))) if len(keys) else {}
    told = {k for k, name in alert.items() if name}
    fixed = {k: f.template_id for k, f in zip(keys["message_key"], predefined_of(masked)) if f is not None and k not in told}
    logs["template_id"] = [fixed.get(k) or f"{k & 0xFFFFFFFFFFFFFFFF:016x}" for k in logs["message_key"]]
    logs["template"] = [by_key[k] for k in logs["message_key"]]
    logs["alert"] = [alert[k] for k in logs["message_key"]]
    return logs


def exposures(tables: Tables) -> dict[str, float]:
    job = tables["training_jobs"].to_pylist()[0]
    ranks = float(job["world_size"] or len(tables["ranks"]) or 1)
    hours = (job["ended_at"] - job["started_at"]).total_seconds() / 3600 if job["ended_at"] and job["started_at"] else 0.0
    last = tables["iterations"]["iteration"].to_pandas().max() if len(tables["iterations"]) else 0
    return {"hours": hours * ranks, "ranks": ranks, "iterations": float(last or 0)}


def bundle(
    tables: Tables, logs: pd.DataFrame, baselines: list[tuple[str, Tables, pd.DataFrame]], library: Counter[str]
) -> dict[str, Any]:
    """What `jobs.log_diffs` bundles in Spark, made here with pandas."""
    counts = Counter(logs["template_id"])
    diff = (
        job_diff(counts, exposures(tables), [(Counter(b["template_id"]), exposures(t)) for _, t, b in baselines])
        if baselines
        else pd.DataFrame()
    )
    change = dict(zip(diff["template_id"], diff["change"])) if len(diff) else {}
    alert = logs["alert"].notna()
    known = logs["template_id"].map(lambda t: library[t] >= 2 or change.get(t) == "same")
    notable = logs[alert | ~known | (logs["level"].isin(["ERROR", "CRITICAL"]))].copy()
    notable["is_normal"] = known[notable.index]
    keys = ["template_id", "node", "rank", "stream"]
    notable["n_total"] = notable.groupby(keys, dropna=False)["message"].transform("size")
    notable = notable.sort_values(["occurred_at", "file", "line"], kind="stable").groupby(keys, dropna=False).head(8)
    grouped = logs.groupby(["template_id", "role", "node"], dropna=False)
    steps = pd.DataFrame()
    if len(tables["operations"]):
        ops = tables["operations"].to_pandas()
        ops = ops[(ops["source"] == "timeline") & ops["step"].notna() & ops["started_us"].notna()]
        ops = ops.assign(started_at=ops["started_us"] / 1e6, ended_at=(ops["started_us"] + ops["duration_us"]) / 1e6)
        steps = ops.groupby(["rank", "step", "name"], as_index=False).agg(
            n_calls=("n_calls", "sum"), started_at=("started_at", "min"), ended_at=("ended_at", "max")
        )
    return {
        "job": tables["training_jobs"].to_pylist()[0],
        "ranks": tables["ranks"].to_pylist(),
        "events": records(notable),
        "counts": [
            {
                "template_id": k[0],
                "role": k[1] if isinstance(k[1], str) else None,
                "node": k[2] if isinstance(k[2], str) else None,
                "n_events": len(g),
                "ranks": sorted({int(r) for r in g["rank"].dropna()}),
            }
            for k, g in grouped
        ],
        "diffs": diff.to_dict("records") if len(diff) else [],
        "iterations": tables["iterations"].to_pylist(),
        "steps": steps.to_dict("records") if len(steps) else [],
        "offsets": tables["clock_offsets"].to_pylist() if "clock_offsets" in tables else [],
        "last_seen": records(logs.groupby("node", as_index=False).agg(last_at=("occurred_at", "max"))),
        "n_baselines": len(baselines),
        "has_library": bool(library),
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def other_findings(tables: Tables, peers: list[Tables]) -> list[dict[str, Any]]:
    """Findings of the other packages, as far as they can be had without Spark (see bench/others.py)."""
    try:
        others = importlib.import_module("bench.diagnose_others")
    except ModuleNotFoundError:
        return []
    return others.findings(tables, peers)


def diagnose_all(
    folders: list[Path],
    cache: Path | None,
    *,
    with_baselines: bool = True,
    wanted: set[str] | None = None,
    without: frozenset[str] = frozenset(),
) -> dict[str, dict[str, Any]]:
    """Documents by job. `without` names tables that are emptied: what is each kind of evidence worth?"""
    tables = {f.name: {n: t.slice(0, 0) if n in without else t for n, t in read(f, cache).items()} for f in folders}
    logs = {name: with_templates(t) for name, t in tables.items()}
    facts = {name: t["training_jobs"].to_pylist()[0] for name, t in tables.items()}
    completed = [n for n in tables if facts[n]["state"] == "COMPLETED"]
    found = {}
    for name in tables:
        if wanted and name not in wanted:
            continue
        others = [n for n in completed if n != name]
        library: Counter[str] = Counter()
        if with_baselines:
            for n in others:
                library.update(set(logs[n]["template_id"]))
        base = [n for n in others if facts[n]["name"] == facts[name]["name"]][:5] if with_baselines else []
        packed = bundle(tables[name], logs[name], [(n, tables[n], logs[n]) for n in base], library)
        rows = diff_rows(packed)
        more = other_findings(tables[name], [tables[n] for n in others])
        case = case_of(
            {
                "job": packed["job"],
                "ranks": packed["ranks"],
                "findings": [
                    *({**r, "table": t} for t, part in zip(("log_findings", "node_findings", "onsets"), rows) for r in part),
                    *more,
                ],
                "baselines": [{"baseline_job_id": n, "score": 1.0, "differing": []} for n in base],
                "node_events": tables["node_events"].to_pylist() if "node_events" in tables else [],
                "has_library": bool(library),
            }
        )
        found[facts[name]["job_id"]] = json.loads(diagnosis_row(case)["document"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lab"))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--job", action="append")
    parser.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--without", action="append", default=[], help="empty this table first")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    folders = sorted(p for p in (given.data / "archive").iterdir() if p.is_dir())
    found = diagnose_all(
        folders, given.cache, with_baselines=not given.no_baselines, wanted=set(given.job or ()), without=frozenset(given.without)
    )
    truths = [
        json.loads(p.read_text()) for p in sorted((given.data / "truth").glob("*.json")) if not given.job or p.stem in given.job
    ]
    if given.json:
        print(json.dumps(found, indent=1))
        return
    figures = evaluate(truths, found)
    fault = {t["job_id"]: t.get("fault") for t in truths}
    for row in figures.pop("jobs"):
        marks = "".join(
            "-" if row[k] is None else "." if row[k] else "X"
            for k in ("symptom_right", "node_top1", "node_top3", "rank_top1", "template_top5", "onset_within_5")
        ) + ("F" if row["is_falsely_accusing"] else "")
        said = found.get(row["job_id"], {})
        top = [(c["nodes"], c["ranks"], c["score"]) for c in said.get("candidates", [])[:3]]
        print(
            f"{row['job_id']} {fault[row['job_id']]:<16} {marks:<7} {row['symptom']}({row['true_symptom']}) onset {row['onset_iteration']}({row['true_onset_iteration']}) {said.get('cause_class')} {said.get('spatial_signal')} {top} true {row['true_nodes']} {row['true_ranks']}"
        )
    for name, value in figures.items():
        print(f"{name:<24} {value['value']}  {value['numerator']}/{value['denominator']}")
    print(f"{time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
