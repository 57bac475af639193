"""Machines that are a little off in every job they serve: a fleet-level score a machine, over weeks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

MIN_JOBS = 3
"""Jobs that a machine must have served before anything is said about its habit."""
NOTABLE = 1.0
"""Difference, in units of the spread between peers, from which a job counts as off."""
LARGEST = 10.0
FULL_SCORE_AT = 5.0


@dataclass(frozen=True)
class JobDifference:
    """A machine's usual difference to its peers in one metric of one job, in units of the spread between peers."""

    node: str
    metric: str
    job_id: str
    exposure_s: float
    difference: float


@dataclass(frozen=True)
class Drift:
    """A machine's habit in one metric. `same_side_share` is the share of its time in jobs in which it was off that way."""

    node: str
    metric: str
    score: float
    mean_difference: float
    same_side_share: float
    n_jobs: int
    exposure_s: float


def drift_of(differences: Iterable[JobDifference]) -> list[Drift]:
    """Habits of machines, sorted by machine and metric.

    Every job counts by the time that the machine served in it, so a machine with many jobs is not more suspect than one
    with few, beyond the certainty that more jobs give (`n / (n + 2)`). The score reaches 0.5 for a machine that is off
    by about three spreads to the same side in all of its jobs.
    """
    grouped: dict[tuple[str, str], dict[str, JobDifference]] = {}
    for each in differences:
        grouped.setdefault((each.node, each.metric), {})[each.job_id] = each
    return [_drift(node, metric, list(jobs.values())) for (node, metric), jobs in sorted(grouped.items()) if len(jobs) >= MIN_JOBS]


def _drift(node: str, metric: str, jobs: list[JobDifference]) -> Drift:
    jobs.sort(key=lambda j: j.job_id)
    exposure = np.array([max(j.exposure_s, 1.0) for j in jobs])
    away = np.clip(np.array([j.difference for j in jobs]), -LARGEST, LARGEST)
    share = exposure / exposure.sum()
    mean = float((away * share).sum())
    side = float(share[(np.abs(away) >= NOTABLE) & (np.sign(away) == np.sign(mean))].sum())
    score = side**2 * min(abs(mean) / FULL_SCORE_AT, 1.0) * len(jobs) / (len(jobs) + 2)
    return Drift(node, metric, round(score, 6), round(mean, 6), round(side, 6), len(jobs), float(exposure.sum()))
