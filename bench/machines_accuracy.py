"""Accuracy of machine scores beside other methods, in one table: `python -m bench.machines_accuracy`.

Healthy jobs of others are split by job into training, calibration and test. All thresholds are set on the calibration part
and frozen; then faults are put into copies of the test part. Everybody gets the same windows, metrics and faults, and the
same rule for thresholds; what is not the project's own must see one machine as the oddest for as long as a fault must
last (four minutes), as Minder does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.machines_data import Fault, HealthyJob, faults, healthy_jobs, inject, rehearsal_jobs
from ml.machines.evidence import measure
from ml.machines.harvest import harvest_job, harvest_unexplained
from ml.machines.joint import Companion, features, fit_companion, sample_of, unexplained
from ml.machines.levels import Together, by_role, levels_of
from ml.machines.model import MachineModel
from ml.machines.rivals import fit_rivals, standing
from ml.machines.score import MOST_MACHINES, ratios
from ml.machines.series import MetricTable, Series
from ml.machines.train import SAFETY, Wanted, fit_metric
from ml.machines.windows import required_continuity_s

Array = np.ndarray
OURS = "fleetdiff"
ALONE = "fleetdiff, each metric by itself"
MOST_ROWS = 20_000
TEST_SEED = 20261201
"""Faults of the test part; drawn once, after everything else was settled."""
REHEARSAL_SEED = 11
WINDOW_S = 16.0
SEED = 7


@dataclass(frozen=True)
class Alerts:
    """Machines that a method names in one metric, with the time (points) at which it first could."""

    first_at: dict[int, int]
    strength: dict[int, float]


Method = Callable[[dict[str, Array], str | None, float], Alerts]
"""From a job's metrics, the one to look at (all if None) and seconds between points to the machines that are named."""


def width_of(period_s: float) -> int:
    """Samples of the peers' windows: 16 s, at least two samples."""
    return max(round(WINDOW_S / period_s), 2)


def series_of(job: HealthyJob) -> list[Series]:
    """A job's metrics as series."""
    return [
        Series(f"n{row:03d}", None, name, None, 0, job.period_s, own)
        for name, values in job.metrics.items()
        for row, own in enumerate(values)
    ]


def together_of(job: HealthyJob) -> list[Together]:
    """A job's metrics put together, as the stage does it."""
    return by_role([levels for _, levels in harvest_job(job.name, series_of(job), {}, None, SEED)])


def our_models(jobs: Sequence[HealthyJob]) -> dict[str, MachineModel]:
    """Models of one family's metrics."""
    training = [j for j in jobs if j.part == "train"]
    held_out = [j for j in jobs if j.part == "calibrate"]
    draw = np.random.default_rng(SEED)
    samples = [sample_of(own, MOST_ROWS, draw) for job in training for own in together_of(job)]
    names = sorted({m for job in jobs for m in job.metrics})
    companions = {name: made for name in names if (made := fit_companion(name, samples, SEED)) is not None}
    harvests = [
        h for job in jobs if job.part != "test" for own, _ in harvest_job(job.name, series_of(job), {}, None, SEED) for h in own
    ]
    for job in held_out:
        for own in together_of(job):
            harvests += harvest_unexplained(job.name, own, companions, None, SEED)
    wanted = Wanted(n_metrics=len(names), seed=SEED, calibration_jobs=frozenset(j.name for j in held_out))
    return {name: fit_metric([h for h in harvests if h.metric == name], wanted, companion=companions.get(name)) for name in names}


def ours(models: dict[str, MachineModel], *, is_joint: bool = True) -> Method:
    """The project's own method: models with frozen thresholds; hosts are unknown, so usual offsets are not used.

    A metric by itself, and (with `is_joint`) all metrics of the job against what their companions let expect.
    """

    def alerts(metrics: dict[str, Array], wanted: str | None, period_s: float) -> Alerts:
        found, levels = [], []
        plain = np.zeros(len(next(iter(metrics.values()))), dtype=bool)
        bin_points = 1
        for name, values in metrics.items():
            model = models[name]
            evidence = measure(values, period_s, None, weights=np.array(model.weights) if model.weights else None)
            bin_points = evidence.windows.bin_points
            nodes = tuple((f"n{row:03d}", None) for row in range(len(values)))
            levels.append(levels_of(MetricTable(name, None, "", nodes, 0, period_s, values), evidence))
            if wanted in (None, name):
                found += [own for _, own in ratios(evidence, model, plain)]
        for job in by_role(levels) if is_joint else []:
            made = features(job)
            for name in job.metrics:
                companion = models[name].companion
                if companion is not None:
                    rest = unexplained(job, made, name, Companion.from_plain(companion))
                    found += [own for _, own in ratios(rest, models[name], plain)]
        return _named(np.max(found, axis=0), bin_points)

    return alerts


def _named(ratio: Array, bin_points: int) -> Alerts:
    """Machines above their threshold, unless too many are at once."""
    hit = ratio >= 1
    crowded = hit.sum(axis=0) > max(1, int(MOST_MACHINES * len(ratio)))
    hit = hit & ~crowded
    rows = np.flatnonzero(hit.any(axis=1))
    return Alerts(
        {int(r): int((hit[r].argmax() + 1) * bin_points) for r in rows}, {int(r): float(ratio[r][hit[r]].max()) for r in rows}
    )


def rivals(jobs: Sequence[HealthyJob]) -> dict[str, Method]:
    """The other methods with thresholds from the calibration part, by the same safety factor."""
    by_metric: dict[str, dict[str, tuple[Callable[[Array, int], Array], float]]] = {}
    for metric in sorted({m for job in jobs for m in job.metrics}):
        period_s = jobs[0].period_s
        width = width_of(period_s)
        fitted = fit_rivals([j.metrics[metric] for j in jobs if j.part == "train"], width, SEED)
        for name, rival in fitted.items():
            heights = [
                float(standing(rival(j.metrics[metric], width), _n_windows(j.metrics[metric], period_s)).max())
                for j in jobs if j.part == "calibrate"
            ]  # fmt: skip
            by_metric.setdefault(name, {})[metric] = (rival, SAFETY * max(heights))
    return {name: _rival_method(own) for name, own in by_metric.items()}


def _n_windows(values: Array, period_s: float) -> int:
    return max(round(required_continuity_s(values.shape[1] * period_s, period_s) / (width_of(period_s) * period_s)), 1)


def _rival_method(by_metric: dict[str, tuple[Callable[[Array, int], Array], float]]) -> Method:
    def alerts(metrics: dict[str, Array], wanted: str | None, period_s: float) -> Alerts:
        lasting = np.zeros(0)
        for metric in [wanted] if wanted else sorted(metrics):
            rival, threshold = by_metric[metric]
            width = width_of(period_s)
            own = standing(rival(metrics[metric], width), _n_windows(metrics[metric], period_s)) / max(threshold, 1e-9)
            lasting = np.maximum(lasting, own) if len(lasting) else own
        hit = lasting > 1
        rows = np.flatnonzero(hit.any(axis=1))
        return Alerts({int(r): int((hit[r].argmax() + 1) * width) for r in rows}, {int(r): float(lasting[r].max()) for r in rows})

    return alerts


@dataclass
class Tally:
    """True and false names, misses, and delays in minutes."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    delays: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally's counts."""
        self.right += other.right
        self.wrong += other.wrong
        self.missed += other.missed
        self.delays += other.delays

    @property
    def figures(self) -> tuple[float, float, float, float]:
        """Precision, recall, F1, median delay."""
        precision = self.right / max(self.right + self.wrong, 1)
        recall = self.right / max(self.right + self.missed, 1)
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        return precision, recall, f1, float(np.median(self.delays)) if self.delays else float("nan")


def judge(alerts: Alerts, fault: Fault, period_s: float) -> Tally:
    """Names against truth: a faulty machine counts when it is named not before the fault; others are wrong."""
    truth = set(fault.machines) if fault.scope != "all" else set()
    named = {m for m, at in alerts.first_at.items() if m not in truth or at >= fault.start}
    right = truth & named
    delays = [(alerts.first_at[m] - fault.start) * period_s / 60 for m in sorted(right)]
    return Tally(len(right), len(set(alerts.first_at) - truth), len(truth - right), delays)


def false_alarms(method: Method, jobs: Sequence[HealthyJob], n_draws: int) -> tuple[int, float, int, float]:
    """False alarms and job-days on the healthy test jobs, and on draws of half of their machines."""
    draw = np.random.default_rng(SEED)
    plain, drawn, days, drawn_days = 0, 0, 0.0, 0.0
    for job in jobs:
        plain += len(method(job.metrics, None, job.period_s).first_at)
        days += job.days
        n_machines = len(next(iter(job.metrics.values())))
        for _ in range(n_draws if job.days > 0.01 else 0):
            some = np.sort(draw.choice(n_machines, n_machines // 2, replace=False))
            drawn += len(method({name: v[some] for name, v in job.metrics.items()}, None, job.period_s).first_at)
            drawn_days += job.days
    return plain, days, drawn, drawn_days


def run(data: Path, repeats: int, n_draws: int, only_ours: bool, is_rehearsal: bool) -> str:
    """The report as Markdown. A rehearsal never sees the test part: it splits the others once more, with other faults."""
    jobs = rehearsal_jobs(data) if is_rehearsal else healthy_jobs(data)
    seed = REHEARSAL_SEED if is_rehearsal else TEST_SEED
    totals: dict[str, dict[tuple[str, ...], Tally]] = {}
    alarms: dict[str, list[tuple[int, float, int, float]]] = {}
    for family in ("power64", "clustercockpit"):
        own = [job for job in jobs if job.family == family]
        models = our_models(own)
        alone = {} if only_ours and not is_rehearsal else {ALONE: ours(models, is_joint=False)}
        methods = {OURS: ours(models), **alone, **({} if only_ours else rivals(own))}
        tests = [job for job in own if job.part == "test"]
        for name, method in methods.items():
            began = time.monotonic()
            alarms.setdefault(name, []).append(false_alarms(method, tests, n_draws))
            print(family, name, "healthy", alarms[name][-1], f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for job in tests:
            if job.days < 0.01:
                continue
            for fault in faults(job, seed, repeats):
                changed = {**job.metrics, fault.metric: inject(job.metrics[fault.metric], fault, seed)}
                for name, method in methods.items():
                    verdict = judge(method(changed, fault.metric, job.period_s), fault, job.period_s)
                    if is_rehearsal and name == OURS and (verdict.wrong or verdict.missed):
                        print("not right", fault, verdict, file=sys.stderr, flush=True)
                    for key in _keys(fault, family):
                        totals.setdefault(name, {}).setdefault(key, Tally()).add(verdict)
    return report(totals, alarms)


def _keys(fault: Fault, family: str) -> list[tuple[str, ...]]:
    """The rows of the report that a fault counts in."""
    if fault.scope == "all":
        return [("all machines",)]
    keys = [("kind", fault.kind, f"{fault.dose:g}" if fault.dose else "", f"{fault.minutes:g}")]
    if fault.minutes >= 4 and (fault.dose >= 2 or fault.dose == 0):
        keys += [("aim",), ("aim", family), ("aim", family, fault.kind), ("aim", "scope", fault.scope)]
        if fault.kind in ("shift", "slow drift", "noise"):
            keys += [("aim", "dosed")]
    return keys


def report(totals: dict[str, dict[tuple[str, ...], Tally]], alarms: dict[str, list[tuple[int, float, int, float]]]) -> str:
    """Tables: the aim, by kind, by dose and length, false alarms."""
    lines = ["| method | precision | recall | F1 | delay min | one | two | power64 F1 | clustercockpit F1 | named when all moved | "
             "false alarms, healthy test | on draws of half the machines |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, rows in totals.items():
        p, r, f1, delay = rows[("aim",)].figures
        families = [rows[("aim", fam)].figures[2] for fam in ("power64", "clustercockpit")]
        scopes = [rows[("aim", "scope", s)].figures[2] for s in ("one", "two")]
        seen = alarms[name]
        plain = f"{sum(a[0] for a in seen)} in {sum(a[1] for a in seen):.2f} job-days"
        drawn = f"{sum(a[2] for a in seen)} in {sum(a[3] for a in seen):.1f} job-days"
        wrong = rows[("all machines",)].wrong
        lines.append(f"| {name} | {p:.3f} | {r:.3f} | **{f1:.3f}** | {delay:.1f} | {scopes[0]:.3f} | {scopes[1]:.3f} | "
                     f"{families[0]:.3f} | {families[1]:.3f} | {wrong} | {plain} | {drawn} |")  # fmt: skip
    lines += ["", "F1 by kind (2 sd and more or without a dose, 4 minutes and more):", ""]
    kinds = ("shift", "slow drift", "noise", "drop to idle", "stuck value", "missing data")
    for family in ("power64", "clustercockpit"):
        lines += [f"| {family} | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
        for name, rows in totals.items():
            cells = [f"{rows[('aim', family, k)].figures[2]:.2f}" for k in kinds]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"{OURS}, by kind, dose and length, both families: precision / recall / F1 / median delay in minutes", ""]
    lines += ["| kind | dose sd | 1 min | 4 min | 8 min | 15 min | 30 min |", "|---|---|---|---|---|---|---|"]
    rows = totals[OURS]
    for kind, dose in sorted({k[1:3] for k in rows if k[0] == "kind"}):
        cells = []
        for minutes in ("1", "4", "8", "15", "30"):
            p, r, f1, delay = rows[("kind", kind, dose, minutes)].figures
            cells.append(f"{p:.2f} / {r:.2f} / {f1:.2f} / {delay:.1f}")
        lines.append(f"| {kind} | {dose or '–'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--draws", type=int, default=90)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--rehearse", action="store_true", help="develop: split the training and calibration parts once more")
    given = parser.parse_args()
    print(run(given.data, given.repeats, given.draws, given.only_ours, given.rehearse))


if __name__ == "__main__":
    main()
