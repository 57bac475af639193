"""Diagnoses of runs that left nothing but a log file: glm130b (with labels), mlperf and bigscience (successes).

    python bench/diagnose_files.py --data ../shared/data [--misses]

Every file becomes a job folder of its own that holds nothing else: no job.json, no topology, no baseline.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.diagnose_lab import bundle, read, with_templates
from jobs.diagnoses.assemble import case_of, diagnosis_row
from jobs.log_diffs.assemble import diff_rows
from ml.fusion.types import Case

OUTCOMES = {"COMPLETED": "finished", "FAILED": "failed", "OUT_OF_MEMORY": "failed", "NODE_FAIL": "failed"}


def diagnose_file(path: Path) -> tuple[dict[str, Any], Case]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / path.stem
        (folder / "logs").mkdir(parents=True)
        shutil.copyfile(path, folder / "logs" / path.name)
        tables = read(folder, None)
    logs = with_templates(tables)
    packed = bundle(tables, logs, [], Counter())
    rows = diff_rows(packed)
    findings = [{**r, "table": t} for t, part in zip(("log_findings", "node_findings", "onsets"), rows) for r in part]
    case = case_of(
        {
            "job": packed["job"],
            "ranks": packed["ranks"],
            "findings": findings,
            "baselines": [],
            "node_events": [],
            "has_library": False,
        }
    )
    return json.loads(diagnosis_row(case)["document"]), case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--misses", action="store_true")
    given = parser.parse_args()
    labels = list(csv.DictReader((given.data / "glm130b" / "labels.csv").open()))
    outcome = raised = rank = n_failed = n_rank = 0
    for label in labels:
        found, case = diagnose_file(given.data / "glm130b" / "logs" / label["file"])
        said = OUTCOMES.get(found["state"], "incomplete")
        outcome += said == label["outcome_auto"]
        kinds = [f.statement.split(" raised ", 1)[1].split(":")[0] for f in case.of("rank_exception")]
        first = min((f for f in case.of("rank_exception")), key=lambda f: (f.refs[0][1] or 0) if f.refs else 0, default=None)
        kind = first.statement.split(" raised ", 1)[1].split(":")[0] if first else ""
        ranks = [r for c in found["candidates"][:1] for r in c["ranks"]]
        firsts = [r for f in case.of("first_exit") for r in f.ranks]
        if label["first_exception"]:
            n_failed += 1
            raised += kind == label["first_exception"]
        if label["root_rank_torchelastic"]:
            n_rank += 1
            rank += int(label["root_rank_torchelastic"]) in (ranks or firsts)[:1]
        if given.misses and (
            said != label["outcome_auto"]
            or (label["first_exception"] and kind != label["first_exception"])
            or (label["root_rank_torchelastic"] and int(label["root_rank_torchelastic"]) not in (ranks or firsts)[:1])
        ):
            print(
                label["file"],
                "outcome",
                said,
                label["outcome_auto"],
                "raised",
                kind,
                kinds[:4],
                label["first_exception"],
                "rank",
                ranks,
                firsts,
                label["root_rank_torchelastic"],
                found["symptom"],
                found["cause_class"],
            )
    print(f"glm130b: outcome {outcome}/{len(labels)}, first exception {raised}/{n_failed}, first failing rank {rank}/{n_rank}")
    for name, pattern in (("mlperf", "**/*.log"), ("bigscience", "*.out")):
        accused, n = [], 0
        for path in sorted((given.data / name).glob(pattern)):
            n += 1
            found, _ = diagnose_file(path)
            if [c for c in found["candidates"] if c["score"] >= 0.5]:
                accused.append(path.name)
            if given.misses:
                print(
                    name,
                    path.name,
                    found["state"],
                    found["symptom"],
                    found["cause_class"],
                    [(c["nodes"], c["ranks"], c["score"]) for c in found["candidates"][:2]],
                )
        print(f"{name}: {len(accused)}/{n} accused {accused}")


if __name__ == "__main__":
    main()
