"""Healthy jobs of others, split by job, and faults put into copies of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from jobs.adapters.base import FileContext, Rows
from jobs.adapters.metrics_csv import MetricsCsv
from ml.machines.grid import to_grid

Array = np.ndarray
SKIPPED = {"flops_dp", "flops_any"}
"""Constant zero, and a copy of flops_sp."""


@dataclass(frozen=True)
class HealthyJob:
    """A job (or a part of one that counts as one): metrics as machines × points. `part` is train, calibrate or test."""

    name: str
    family: str
    part: str
    period_s: float
    metrics: dict[str, Array]

    @property
    def days(self) -> float:
        """Length in days."""
        return next(iter(self.metrics.values())).shape[1] * self.period_s / 86400


def healthy_jobs(data: Path) -> list[HealthyJob]:
    """power64 and clustercockpit, split by job where there are several and by hosts or hours where there is only one.

    gpt3-1: half of its hosts train, the other half calibrates; gpt3-3 tests. llama: a run each. clustercockpit is one job
    of a day: eight hours each.
    """
    power = {p.name.split(".")[0]: _power(p) for p in sorted((data / "power64").glob("*.csv.gz"))}
    first, third = power["gpt3-5849-1"], power["gpt3-5849-3"]
    llamas = [power[f"llama2_70b_lora-5730-{n}"] for n in (3, 8, 9)]
    jobs = [
        HealthyJob("gpt3-1/a", "power64", "train", 2.0, {"power": first[::2]}),
        HealthyJob("gpt3-1/b", "power64", "calibrate", 2.0, {"power": first[1::2]}),
        HealthyJob("gpt3-3", "power64", "test", 2.0, {"power": third}),
    ]
    for values, part in zip(llamas, ("train", "calibrate", "test"), strict=True):
        jobs.append(HealthyJob(f"llama/{part}", "power64", part, 2.0, {"power": values}))
    day = _cockpit(data / "clustercockpit" / "1403244" / "data.json.gz")
    for number, part in enumerate(("train", "calibrate", "test")):
        metrics = {name: values[:, number * 480 : (number + 1) * 480] for name, values in day.items()}
        jobs.append(HealthyJob(f"cockpit/{part}", "clustercockpit", part, 60.0, metrics))
    return jobs


def rehearsal_jobs(data: Path) -> list[HealthyJob]:
    """The training and calibration parts split once more into all three: everything is tried out on these."""
    jobs = {job.name: job for job in healthy_jobs(data) if job.part != "test"}
    half = jobs["gpt3-1/b"].metrics["power"]
    found = [jobs["gpt3-1/a"], replace(jobs["gpt3-1/b"], metrics={"power": half[::2]}),
             HealthyJob("gpt3-1/c", "power64", "test", 2.0, {"power": half[1::2]})]  # fmt: skip
    early, late = jobs["cockpit/train"].metrics, jobs["cockpit/calibrate"].metrics
    day = {name: np.concatenate([early[name], late[name]], axis=1) for name in early}
    for number, part in enumerate(("train", "calibrate", "test")):
        metrics = {name: values[:, number * 320 : (number + 1) * 320] for name, values in day.items()}
        found.append(HealthyJob(f"rehearsal/{part}", "clustercockpit", part, 60.0, metrics))
    return found


def _power(path: Path) -> Array:
    columns: dict[str, list[object]] = {}
    with gzip.open(path) as stream:
        for batch in MetricsCsv().parse(stream, FileContext("bench", path.name)):
            if isinstance(batch, Rows):
                for name, values in batch.columns.items():
                    columns.setdefault(name, []).extend(values)
    return np.array(to_grid(pa.table(columns))["values"].to_pylist(), dtype=np.float64)


def _cockpit(path: Path) -> dict[str, Array]:
    with gzip.open(path) as stream:
        raw = json.load(stream)
    return {
        name: np.array([s["data"] for s in scopes["node"]["series"]], dtype=np.float64)
        for name, scopes in raw.items()
        if name not in SKIPPED
    }


@dataclass(frozen=True)
class Fault:
    """What is done to which machines of one metric, from `start` for `length` points. `dose` in sd of the metric."""

    kind: str
    dose: float
    minutes: float
    scope: str
    metric: str
    machines: tuple[int, ...]
    start: int
    length: int


DOSED = ("shift", "slow drift", "noise")
UNDOSED = ("drop to idle", "stuck value", "missing data")
DOSES = (0.5, 1.0, 2.0, 3.0, 4.0)
MINUTES = (1.0, 4.0, 8.0, 15.0, 30.0)


def faults(job: HealthyJob, seed: int, repeats: int) -> Iterator[Fault]:
    """Every kind, dose, length and scope, at drawn places: one machine, two machines, all machines."""
    draw = np.random.default_rng(seed)
    cases = [(k, d, m, "one") for k in DOSED for d in DOSES for m in MINUTES] * repeats
    cases += [(k, 0.0, m, "one") for k in UNDOSED for m in MINUTES] * repeats
    cases += [("shift", d, m, "two") for d in (2.0, 3.0, 4.0) for m in MINUTES[1:]] * repeats
    cases += [(k, 3.0, m, "all") for k in DOSED for m in MINUTES[1:]]
    cases += [(k, 0.0, m, "all") for k in UNDOSED for m in MINUTES[1:]]
    names = sorted(job.metrics)
    for kind, dose, minutes, scope in cases:
        metric = names[int(draw.integers(len(names)))]
        n_machines, n_points = job.metrics[metric].shape
        length = max(round(minutes * 60 / job.period_s), 1)
        start = int(draw.integers(n_points // 4, n_points - length))
        n_hit = {"one": 1, "two": 2, "all": n_machines}[scope]
        machines = tuple(sorted(draw.choice(n_machines, n_hit, replace=False).tolist()))
        yield Fault(kind, dose, minutes, scope, metric, machines, start, length)


def inject(values: Array, fault: Fault, seed: int) -> Array:
    """A copy with the fault. Doses are in standard deviations of the metric over the job, all machines and times."""
    draw = np.random.default_rng([seed, fault.start, fault.length])
    changed = values.copy()
    sd = float(np.nanstd(values))
    span = slice(fault.start, fault.start + fault.length)
    side = float(draw.choice([-1.0, 1.0]))
    for machine in fault.machines:
        own = changed[machine, span]
        if fault.kind == "shift":
            own += side * fault.dose * sd
        elif fault.kind == "slow drift":
            # Reaches its dose half way, so that half of the time it stands at the dose.
            own += side * fault.dose * sd * np.minimum(np.linspace(0, 2, fault.length), 1)
        elif fault.kind == "noise":
            own += fault.dose * sd * draw.standard_normal(fault.length)
        elif fault.kind == "drop to idle":
            own[:] = np.nanquantile(values, 0.001)
        elif fault.kind == "stuck value":
            known = values[machine, : fault.start + 1]
            own[:] = known[np.isfinite(known)][-1]
        elif fault.kind == "missing data":
            own[:] = np.nan
    return changed
