"""Precision of the first baseline and of look-alikes, on jobs whose truth is known.

    python bench/baseline_accuracy.py --data ../shared/data --scratch FOLDER [--lake LAKE | --quick]

One archive is made of three sources (jobs of the lab; 80 runs of GLM-130B, one log each; MLPerf runs of several
benchmarks, most of them repeats), run through every stage, and the tables are held against the truth:

With --quick no stage runs: folders are read, indexed and matched by the same functions, and only baselines are measured.

- first baseline: is it of the same configuration family? Lab: the same task (name in job.json). MLPerf: the same
  benchmark and system (the files' folder and name). GLM-130B has no configuration to speak of, so a refusal is right.
- look-alikes: is a failure of the same kind among the first three? Lab: the same fault, where another job has it, and
  the same symptom. GLM-130B: the same first exception. Only kinds that at least two jobs show can be found.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from jobs.adapters.archive import read_job
from jobs.baselines import lookup
from jobs.baselines.index import index_row
from jobs.baselines.transform import baseline_rows
from jobs.core import lake
from ml.configs.classes import default_classes
from ml.templates.alerts import alerts_of


def build(data: Path, archive: Path) -> None:
    """Copy the lab's jobs and put each log of the others into a folder of its own with the least of a job.json."""
    shutil.copytree(data / "lab/archive", archive / "lab")
    with (data / "glm130b/labels.csv").open() as labels:
        for row in csv.DictReader(labels):
            if row["outcome_auto"] in ("finished", "failed"):
                state = "COMPLETED" if row["outcome_auto"] == "finished" else "FAILED"
                put(archive / "glm130b", "glm-" + row["file"].removesuffix(".log"), state, data / "glm130b/logs" / row["file"])
    for log in sorted((data / "mlperf").glob("*/*.*")):
        text = log.read_text(errors="replace")
        state = "COMPLETED" if re.search(r'"run_stop".{0,80}?"status": "success"|"status": "success"', text) else "FAILED"
        put(archive / "mlperf", f"{log.parent.name}-{log.stem}", state, log)


def put(folder: Path, job_id: str, state: str, log: Path) -> None:
    home = folder / job_id
    (home / "logs").mkdir(parents=True)
    (home / "job.json").write_text(json.dumps({"job_id": job_id, "state": state}))
    shutil.copy(log, home / "logs" / log.name)


def quick(archive: Path, root: str) -> None:
    """Index and match every job without Spark: what the stage does, one job after the other."""
    classes = default_classes()
    lake.create_missing(root)
    rows = [index_row(facts(read_job(folder)), classes) for folder in sorted(archive.glob("*/*"))]
    schema = lake.arrow_schema("config_index")
    write_deltalake(lake.table_path(root, "config_index"), pa.Table.from_pylist(rows, schema=schema), mode="overwrite")
    found = [row for job in rows for row in baseline_rows(job["job_id"], lookup.of_job(root, job["job_id"], classes))]
    schema = lake.arrow_schema("baselines")
    write_deltalake(lake.table_path(root, "baselines"), pa.Table.from_pylist(found, schema=schema), mode="overwrite")


def facts(tables: dict[str, pa.Table]) -> dict[str, Any]:
    """What the stage joins to a job: its alerts and how far and how fast it went."""
    job = {**dict.fromkeys(lake.arrow_schema("training_jobs").names), **tables["training_jobs"].to_pylist()[0]}
    records = tables["log_records"]
    alerts = set(zip(alerts_of(records["message"]), records["role"].to_pylist(), strict=True)) if records.num_rows else set()
    printed = tables["iterations"].to_pylist()
    done = sorted({row["iteration"] for row in printed})
    times = [row["step_time_s"] for row in printed if row["step_time_s"]]
    spent = job["ended_at"] - job["started_at"] if job["ended_at"] and job["started_at"] else None
    return {
        **job,
        "alerts": sorted({alert for alert, role in alerts if alert and role != "launcher"}),
        "launcher_alerts": sorted({alert for alert, role in alerts if alert and role == "launcher"}),
        "last_iteration": done[-1] if done else None,
        "n_planned": max((row["n_planned"] or 0 for row in printed), default=0) or None,
        "log_every": -(-(done[-1] - done[0]) // max(len(done) - 1, 1)) if done else None,
        "step_time_s": statistics.median(times) if times else None,
        "duration_s": spent.total_seconds() if spent else None,
    }


def families(data: Path) -> dict[str, str]:
    """Configuration family of each job with one."""
    found = {}
    for job in sorted((data / "lab/archive").iterdir()):
        found[job.name] = "lab " + json.loads((job / "job.json").read_text())["name"]
    for log in sorted((data / "mlperf").glob("*/*.*")):
        benchmark = log.stem.split("-")[0] if log.parent.name == "xfusion" else "bert"
        found[f"{log.parent.name}-{log.stem}"] = f"mlperf {log.parent.name} {benchmark}"
    return found


def kinds(data: Path) -> dict[str, dict[str, str]]:
    """Kind of failure of each job, by what it is called: lab fault, lab symptom, glm130b exception."""
    found: dict[str, dict[str, str]] = {"lab, same fault": {}, "lab, same symptom": {}, "glm130b, same first exception": {}}
    for truth in sorted((data / "lab/truth").glob("*.json")):
        row = json.loads(truth.read_text())
        if row["fault"] != "none":
            found["lab, same fault"][row["job_id"]] = row["fault"]
            found["lab, same symptom"][row["job_id"]] = row["symptom"]
    with (data / "glm130b/labels.csv").open() as labels:
        for row in csv.DictReader(labels):
            if row["outcome_auto"] == "failed" and row["first_exception"]:
                name = re.match(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*?Error|\w+", row["first_exception"])
                found["glm130b, same first exception"]["glm-" + row["file"].removesuffix(".log")] = name[0] if name else "?"
    return found


def baseline_table(root: str, data: Path) -> list[str]:
    family = families(data)
    first: dict[str, str | None] = {}
    for row in lake.rows(root, "baselines", ["job_id", "position", "baseline_job_id"]).to_pylist():
        if row["position"] <= 1:
            first[row["job_id"]] = row["baseline_job_id"]
    groups: dict[str, list[str]] = defaultdict(list)
    for job in sorted(first):
        source = family.get(job, "glm130b").split()
        groups[" ".join(source[: 2 if source[0] == "mlperf" else 1])].append(job)
    lines = ["| source | jobs | answered | first baseline of the same family | wrong | refused |", "|---|---|---|---|---|---|"]
    for name, members in sorted(groups.items()):
        answered = [job for job in members if first[job]]
        right = sum(family.get(job) == family.get(str(first[job])) and job in family for job in answered)
        wrong, refused = len(answered) - right, len(members) - len(answered)
        lines.append(f"| {name} | {len(members)} | {len(answered)} | {right} of {len(answered)} | {wrong} | {refused} |")
    return lines


def similar_table(root: str, data: Path) -> list[str]:
    alike: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    for row in lake.rows(root, "job_similarity", ["job_id", "position", "similar_job_id", "score"]).to_pylist():
        alike[row["job_id"]].append((row["position"], row["similar_job_id"], row["score"]))
    lines = [
        "| truth | jobs whose kind another job shows | found in the first three | of which first | by chance |",
        "|---|---|---|---|---|",
    ]
    for name, kind in kinds(data).items():
        counts = Counter(kind.values())
        asked = [job for job in sorted(kind) if counts[kind[job]] > 1]
        hits = [[kind.get(other) == kind[job] for _, other, _ in sorted(alike[job])[:3]] for job in asked]
        n = len(kind)
        chance = sum(1 - _none(n - 1, counts[kind[job]] - 1, 3) for job in asked)
        lines.append(f"| {name} | {len(asked)} | {sum(map(any, hits))} | {sum(h[:1] == [True] for h in hits)} | {chance:.1f} |")
    return lines


def _none(n: int, n_right: int, drawn: int) -> float:
    """Chance that none of `drawn` of `n` jobs is right."""
    chance = 1.0
    for k in range(min(drawn, n)):
        chance *= max(0, n - n_right - k) / (n - k)
    return chance


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--lake", help="measure this lake, made from the same archive, instead of running")
    parser.add_argument("--quick", action="store_true", help="baselines only, without Spark")
    given = parser.parse_args()
    root = given.lake
    if not root:
        archive, root = given.scratch / "archive", str(given.scratch / "lake")
        shutil.rmtree(archive, ignore_errors=True)
        build(given.data, archive)
        if given.quick:
            quick(archive, root)
            print("\n".join(baseline_table(root, given.data)))
            return
        subprocess.run([sys.executable, "-m", "jobs", "run", str(archive), "--lake", root], check=True, stdout=sys.stderr)
    print("\n".join([*baseline_table(root, given.data), "", *similar_table(root, given.data)]))


if __name__ == "__main__":
    main()
