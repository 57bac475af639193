"""Work that failures throw away, by cause; pre-emptions that restarts of failed jobs bring on others stand apart.

Source of the estimate: arXiv 2410.21680: one failed or pre-empted job loses min(running time, 30 minutes) × GPUs, as an
hour between checkpoints loses half of it on average.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ml.reliability.outcomes import Outcome, Run

LOST_S = 1800.0
BEFORE_S = 60.0
AFTER_S = 600.0
"""A restart pre-empts a job when it starts on one of its nodes between a minute before and ten minutes after its end."""


@dataclass(frozen=True)
class LostGoodput:
    """GPU-hours lost: by cause for jobs that failed, first-order pre-emption, and pre-emption by restarts of failed jobs."""

    by_cause: dict[str, float]
    preempted: float
    second_order: float
    jobs_by_cause: dict[str, tuple[str, ...]]
    preempted_jobs: tuple[str, ...]
    second_order_jobs: tuple[tuple[str, str], ...]
    """Pairs of the job that was pre-empted and the restart that took its place."""

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self.by_cause.values()) + self.preempted + self.second_order


def lost_gpu_h(run: Run) -> float:
    """GPU-hours that one failure or pre-emption loses."""
    return min(run.running_s, LOST_S) / 3600 * run.n_gpus


def lost_goodput(runs: Sequence[Run]) -> LostGoodput:
    """Lost work of failed and pre-empted runs."""
    by_cause: dict[str, float] = defaultdict(float)
    jobs: dict[str, list[str]] = defaultdict(list)
    restarts = _restarts(runs)
    first, second = 0.0, 0.0
    plain: list[str] = []
    pairs: list[tuple[str, str]] = []
    for run in sorted(runs, key=lambda r: r.job_id):
        if run.outcome is Outcome.FAILURE:
            by_cause[run.cause] += lost_gpu_h(run)
            jobs[run.cause].append(run.job_id)
        elif run.state == "PREEMPTED":
            taker = _taker(run, restarts)
            if taker is None:
                first += lost_gpu_h(run)
                plain.append(run.job_id)
            else:
                second += lost_gpu_h(run)
                pairs.append((run.job_id, taker))
    kept = {cause: tuple(ids) for cause, ids in sorted(jobs.items())}
    return LostGoodput(dict(sorted(by_cause.items())), first, second, kept, tuple(plain), tuple(pairs))


def _restarts(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """By node: the runs that follow a failed attempt of their lineage."""
    by_lineage: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.lineage_id and run.started_at is not None:
            by_lineage[run.lineage_id].append(run)
    on_node: dict[str, list[Run]] = defaultdict(list)
    for attempts in by_lineage.values():
        attempts.sort(key=lambda r: (r.started_at or 0.0, r.job_id))
        for before, after in itertools.pairwise(attempts):
            if before.outcome is Outcome.FAILURE:
                for node in after.nodes:
                    on_node[node].append(after)
    return on_node


def _taker(run: Run, restarts: dict[str, list[Run]]) -> str | None:
    if run.ended_at is None:
        return None
    near = {
        other.job_id
        for node in run.nodes
        for other in restarts.get(node, ())
        if other.lineage_id != run.lineage_id
        and other.started_at is not None
        and -BEFORE_S <= other.started_at - run.ended_at <= AFTER_S
    }
    return min(near) if near else None
