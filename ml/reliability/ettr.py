"""Effective training time ratio: productive time over wall-clock, measured by lineage and expected from the failure rate.

Source of the formulas: "Revisiting reliability in large-scale machine learning research clusters" (arXiv 2410.21680):
E[ETTR] ≈ (1 − N·r_f·(u0 + Δt/2)) / (1 + w/Δt), Δt* = sqrt(2·w / (N·r_f)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ml.reliability.outcomes import Outcome, Run

MINUTES_PER_DAY = 1440.0
RESTART_MIN = 5.0
"""Assumed time from a restart to the first iteration, where the logs do not tell it."""

CHECKPOINT_MIN = 60.0
"""Assumed minutes between checkpoints, where the logs do not tell it."""


def expected_ettr(
    n_nodes: float, failures_per_node_day: float, checkpoint_min: float, restart_min: float = RESTART_MIN, write_min: float = 0.0
) -> float:
    """The ratio that a rate of failures leaves: each failure costs the restart and half an interval, each interval one write.

    >>> round(expected_ettr(2000, 6.5e-3, 60), 5)
    0.68403
    """
    failures_per_min = n_nodes * failures_per_node_day / MINUTES_PER_DAY
    if checkpoint_min <= 0:
        return math.nan
    return max(1 - failures_per_min * (restart_min + checkpoint_min / 2), 0.0) / (1 + write_min / checkpoint_min)


def optimal_checkpoint_min(n_nodes: float, failures_per_node_day: float, write_min: float) -> float:
    """The interval between checkpoints that costs least (Young and Daly); infinite when nothing fails.

    >>> round(optimal_checkpoint_min(1500, 6.5e-3, 5), 3)
    38.431
    """
    failures_per_min = n_nodes * failures_per_node_day / MINUTES_PER_DAY
    return math.inf if failures_per_min <= 0 else math.sqrt(2 * write_min / failures_per_min)


@dataclass(frozen=True)
class Steps:
    """What the logs of one attempt say of its progress: iterations, when the first was printed, seconds a step."""

    first_iteration: int | None = None
    last_iteration: int | None = None
    first_iteration_at: float | None = None
    step_time_s: float | None = None


@dataclass(frozen=True)
class Measured:
    """The time of a lineage: wall = queue + running; lost is that part of running which made no lasting progress."""

    n_attempts: int
    n_failures: int
    queue_s: float
    running_s: float
    lost_s: float
    ettr: float
    is_censored: bool
    is_progress_known: bool

    @property
    def wall_s(self) -> float:
        """Queue and running time."""
        return self.queue_s + self.running_s


def measured_ettr(
    attempts: Sequence[Run], steps: dict[str, Steps], restart_min: float = RESTART_MIN, checkpoint_min: float = CHECKPOINT_MIN
) -> Measured:
    """Productive time over wall-clock of the attempts of one lineage.

    Lost: the time before an attempt's first iteration, and the iterations that the next attempt repeats. Where the logs tell
    no iterations, `restart_min` and half of `checkpoint_min` are assumed for each attempt that failed, never more than it ran.
    Time between an attempt's end and the next one's submission is the users', and counts nowhere.
    """
    ordered = sorted((a for a in attempts if a.running_s > 0), key=lambda a: (a.started_at or 0.0, a.job_id))
    queue = lost = 0.0
    is_known = bool(ordered)
    for number, attempt in enumerate(ordered):
        start = attempt.started_at or 0.0
        if attempt.submitted_at is not None:
            queue += max(start - attempt.submitted_at, 0.0)
        own = steps.get(attempt.job_id, Steps())
        later = steps.get(ordered[number + 1].job_id, Steps()) if number + 1 < len(ordered) else None
        wasted = _wasted_s(attempt, own, later)
        if wasted is None:
            is_known = False
            failed = attempt.outcome is Outcome.FAILURE
            wasted = (restart_min + (checkpoint_min / 2 if failed else 0.0)) * 60
        lost += min(wasted, attempt.running_s)
    running = sum(a.running_s for a in ordered)
    wall = queue + running
    return Measured(
        len(ordered),
        sum(a.outcome is Outcome.FAILURE for a in ordered),
        queue,
        running,
        lost,
        (running - lost) / wall if wall > 0 else math.nan,
        bool(ordered) and ordered[-1].outcome is Outcome.CENSORED,
        is_known,
    )


def _wasted_s(attempt: Run, own: Steps, later: Steps | None) -> float | None:
    """Seconds of an attempt without lasting progress by its logs; None when they do not tell."""
    if own.first_iteration_at is None or own.last_iteration is None or attempt.started_at is None:
        return None
    first = own.first_iteration if own.first_iteration is not None else own.last_iteration
    step = own.step_time_s
    if step is None:
        n_steps = max(own.last_iteration - first, 1)
        step = max((attempt.ended_at or 0.0) - own.first_iteration_at, 0.0) / n_steps
    start_up = max(own.first_iteration_at - attempt.started_at - step, 0.0)
    if later is None or later.first_iteration is None:
        lost_steps = own.last_iteration - first + 1 if attempt.outcome is Outcome.FAILURE and later is not None else 0
    else:
        lost_steps = max(own.last_iteration - later.first_iteration + 1, 0)
    return start_up + lost_steps * step
