"""Who takes part in what: failures by count and by GPU time, states, published fault tables, waste by stragglers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ml.reliability.outcomes import Outcome, Run
from ml.reliability.rates import GPUS_PER_NODE, HOURS_PER_DAY, Estimate, rate, share


@dataclass(frozen=True)
class Part:
    """One class: its number with an exact interval of its share, and its share of GPU time (hours)."""

    name: str
    by_count: Estimate
    gpu_hours: float
    share_of_gpu_time: float
    jobs: tuple[str, ...]


def parts(pairs: Sequence[tuple[str, Run]]) -> list[Part]:
    """Shares of each class among (class, run) pairs, most frequent first."""
    jobs: dict[str, list[str]] = defaultdict(list)
    hours: dict[str, float] = defaultdict(float)
    for name, run in pairs:
        jobs[name].append(run.job_id)
        hours[name] += run.gpu_hours
    total = sum(hours.values())
    found = [
        Part(n, share(len(ids), len(pairs)), hours[n], hours[n] / total if total > 0 else math.nan, tuple(sorted(ids)))
        for n, ids in jobs.items()
    ]
    return sorted(found, key=lambda p: (-p.by_count.n_events, p.name))


def failure_parts(runs: Sequence[Run]) -> list[Part]:
    """Failed runs by class of cause."""
    return parts([(run.cause, run) for run in runs if run.outcome is Outcome.FAILURE])


def state_parts(runs: Sequence[Run]) -> list[Part]:
    """All runs by how they ended."""
    return parts([(run.state, run) for run in runs])


@dataclass(frozen=True)
class FaultTable:
    """A published table of interruptions: total, shares, mean time between failures (hours), rate per node-day."""

    total: int
    shares: dict[str, float]
    mtbf: Estimate
    failures_per_node_day: Estimate

    def share_of(self, names: Sequence[str]) -> float:
        """The share of several kinds together."""
        return sum(self.shares[name] for name in names)


def fault_table(counts: Mapping[str, int], days: float, n_gpus: int) -> FaultTable:
    """Figures of a table of interruptions of one job of `n_gpus` over `days`."""
    total = sum(counts.values())
    per_hour = rate(total, days * HOURS_PER_DAY)
    mtbf = Estimate(1 / per_hour.value, 1 / per_hour.high, 1 / per_hour.low if per_hour.low else math.inf, total, per_hour.exposure)
    nodes = n_gpus / GPUS_PER_NODE
    return FaultTable(total, {k: v / total for k, v in counts.items()}, mtbf, rate(total, days * nodes))


@dataclass(frozen=True)
class StragglerWaste:
    """What stragglers cost: share of jobs with S of 1.1 or more, quantiles of waste, and the share of GPU-hours wasted."""

    n_jobs: int
    share_slow: Estimate
    waste_p50: float
    waste_p90: float
    waste_p99: float
    wasted_gpu_hours: float
    share_of_gpu_hours: float


def straggler_waste(jobs: Sequence[tuple[float, float]], slow_at: float = 1.1) -> StragglerWaste:
    """Waste of (S, GPU-hours) of each job: 1 − 1/S, weighed by GPU-hours for the fleet (arXiv 2505.05713)."""
    usable = [(s, h) for s, h in jobs if s > 0 and h >= 0 and not math.isnan(s)]
    if not usable:
        return StragglerWaste(0, share(0, 0), math.nan, math.nan, math.nan, 0.0, math.nan)
    waste = np.array([max(1 - 1 / s, 0.0) for s, _ in usable])
    hours = np.array([h for _, h in usable])
    p50, p90, p99 = (float(v) for v in np.percentile(waste, [50, 90, 99]))
    lost = float((waste * hours).sum())
    n_slow = sum(s >= slow_at for s, _ in usable)
    return StragglerWaste(
        len(usable), share(n_slow, len(usable)), p50, p90, p99, lost, lost / float(hours.sum()) if hours.sum() > 0 else math.nan
    )
