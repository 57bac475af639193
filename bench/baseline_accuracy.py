"""Precision of the first baseline and of look-alikes, on jobs whose truth is known.

    python bench/baseline_accuracy.py --data ../shared/data --scratch FOLDER [--lake LAKE]

One archive is made of three sources (jobs of the lab; 80 runs of GLM-130B, one log each; MLPerf runs of several
benchmarks, most of them repeats), run through every stage, and the tables are held against the truth:

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
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from jobs.core import lake


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
        groups["glm130b" if job.startswith("glm-") else " ".join(family.get(job, "?").split()[:2 if "mlperf" in family.get(job, "") else 1])].append(job)
    lines = ["| source | jobs | answered | first baseline of the same family | wrong | refused |", "|---|---|---|---|---|---|"]
    for name, members in sorted(groups.items()):
        answered = [job for job in members if first[job]]
        right = sum(family.get(job) == family.get(str(first[job])) and job in family for job in answered)
        lines.append(f"| {name} | {len(members)} | {len(answered)} | {right} of {len(answered)} | {len(answered) - right} | {len(members) - len(answered)} |")
    return lines


def similar_table(root: str, data: Path) -> list[str]:
    alike: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    for row in lake.rows(root, "job_similarity", ["job_id", "position", "similar_job_id", "score"]).to_pylist():
        alike[row["job_id"]].append((row["position"], row["similar_job_id"], row["score"]))
    lines = ["| truth | jobs whose kind another job shows | found in the first three | of which first | by chance |", "|---|---|---|---|---|"]
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
    given = parser.parse_args()
    root = given.lake
    if not root:
        archive, root = given.scratch / "archive", str(given.scratch / "lake")
        shutil.rmtree(archive, ignore_errors=True)
        build(given.data, archive)
        subprocess.run([sys.executable, "-m", "jobs", "run", str(archive), "--lake", root], check=True, stdout=sys.stderr)
    print("\n".join([*baseline_table(root, given.data), "", *similar_table(root, given.data)]))


if __name__ == "__main__":
    main()
