"""Machine scores of the lab's jobs: `python -m bench.machines_lab`. Part (c) of the accuracy figures.

Models learn from the successful jobs, as the stage does; every job is then scored, the successful ones too. Of machines whose
fault is known the place among the job's machines is printed, and whether it is named; on a healthy job nobody may be named.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from jobs.adapters.archive import read_job
from ml.machines.harvest import harvest_job, harvest_unexplained
from ml.machines.joint import fit_companion, sample_of
from ml.machines.levels import by_role
from ml.machines.model import MachineModel
from ml.machines.score import score_job
from ml.machines.series import Series
from ml.machines.train import Wanted, fit_metric, is_held_out

SEED = 7
N_ROWS = 3000


def series_of(metrics: pa.Table) -> list[Series]:
    """Rows of `machine_metrics` as series."""
    return [
        Series(row["node"], row["device"], row["metric"], row["unit"], round(row["grid_start_at"].timestamp() * 1e6), row["period_s"],
               np.array(row["values"], dtype=np.float64))
        for row in metrics.to_pylist()
    ]  # fmt: skip


def first_host(ranks: pa.Table) -> str | None:
    """The host of rank 0."""
    return next((row["node"] for row in ranks.to_pylist() if row["rank"] == 0), None)


def models_of(healthy: dict[str, tuple[list[Series], str | None]]) -> dict[str, MachineModel]:
    """Models of all metrics of the healthy jobs."""
    harvested = {job: harvest_job(job, series, {}, first, SEED) for job, (series, first) in sorted(healthy.items())}
    levels = {job: by_role([each for _, each in found]) for job, found in harvested.items()}
    draw = np.random.default_rng(SEED)
    samples = [sample_of(own, N_ROWS, draw) for job in levels if not is_held_out(job) for own in levels[job]]
    harvests = [h for found in harvested.values() for own, _ in found for h in own]
    names = sorted({h.metric for h in harvests})
    companions = {name: made for name in names if (made := fit_companion(name, samples, SEED)) is not None}
    for job in filter(is_held_out, levels):
        harvests += [h for own in levels[job] for h in harvest_unexplained(job, own, companions, healthy[job][1], SEED)]
    wanted = Wanted(n_metrics=len(names), seed=SEED)
    return {name: fit_metric([h for h in harvests if h.metric == name], wanted, companion=companions.get(name)) for name in names}


def main() -> None:
    """Read, train, score, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    lab = parser.parse_args().data / "lab"
    truths = {path.stem: json.loads(path.read_text()) for path in sorted((lab / "truth").glob("*.json"))}
    jobs = {}
    for name in truths:
        tables = read_job(lab / "archive" / name)
        jobs[name] = (series_of(tables["machine_metrics"]), first_host(tables["ranks"]))
    models = models_of({name: jobs[name] for name, truth in truths.items() if truth["fault"] == "none"})
    print("| job | fault | symptom | faulty machine's place | its score | named |")
    print("|---|---|---|---|---|---|")
    for name, truth in truths.items():
        series, first = jobs[name]
        rows = score_job(series, {}, models, first).rows
        places = list(dict.fromkeys(row.node for row in rows))
        named = {row.node for row in rows if row.score >= 0.5}
        faulty = [node for node in truth["faulty_nodes"] if node in places]
        place = ", ".join(f"{places.index(node) + 1} of {len(places)}" for node in faulty) or "–"
        score = max((row.score for row in rows if row.node in faulty), default=0.0)
        words = [("the faulty one" if node in faulty else "**another one**") for node in sorted(named)]
        print(f"| {name} | {truth['fault']} | {truth['symptom']} | {place} | {score:.2f} | {', '.join(words) or 'nobody'} |")


if __name__ == "__main__":
    main()
