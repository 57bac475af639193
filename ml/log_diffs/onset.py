"""Where a job's progress ended, how long it was silent, and the onset that follows from all observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ml.log_diffs.topology import Finding, Job

NOTABLE_SILENCE_S = 10.0
SILENT_STEPS = 20
MAX_SILENCE_S = 14 * 86_400.0
"""A longer silence is a stamp in the wrong year or of another clock."""
DEPARTURES = frozenset(
    {"step_time_shift", "slow_stretch", "step_pauses", "single_pause", "loss_nonfinite", "loss_jump", "operation_left_out"}
)


@dataclass(frozen=True)
class Onset:
    """First window outside the job's own course, and which observation says so."""

    method: str
    statement: str
    started_at: float | None = None
    ended_at: float | None = None
    iteration: int | None = None
    phase: str | None = None
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


def last_progress(iterations: pd.DataFrame, steps: pd.DataFrame) -> tuple[float | None, int | None]:
    """Time and number of the last step that anybody made: from operations where there are any, else from printed lines."""
    at: list[float] = []
    number: list[int] = []
    if not steps.empty:
        at.append(float(steps["ended_at"].max()))
        number.append(int(steps["step"].max()))
    elif not iterations.empty:
        number.append(int(iterations["iteration"].max()))
    if not iterations.empty and iterations["occurred_at"].notna().any():
        at.append(float(iterations["occurred_at"].max()))
    return (max(at) if at else None), (max(number) if number else None)


def silence_findings(
    job: Job, progress_at: float | None, failed_at: float | None, step_time_s: float | None, step: int | None
) -> list[Finding]:
    """A long time without any progress before the first failure, or before the end when nothing failed: a hang.

    `step_time_s` is the job's usual step time; the silence must be both absolutely and relatively long.
    """
    until = failed_at if failed_at is not None else job.ended_at
    if progress_at is None or until is None:
        return []
    silent = until - progress_at
    bar = max(NOTABLE_SILENCE_S, SILENT_STEPS * (step_time_s or 0.0))
    if not bar <= silent <= MAX_SILENCE_S:
        return []
    what = "the first failure" if failed_at is not None else "the end"
    return [
        Finding(
            "logs",
            "temporal",
            "no_progress",
            f"no rank made progress for {silent:.0f} s before {what}",
            min(0.95, 0.6 + 0.1 * silent / bar),
            at=progress_at,
            iteration=step,
            phase="train",
            subject="silence",
            table="onsets",
        )
    ]


def choose_onset(findings: Sequence[Finding], progress_at: float | None, step: int | None, failed_at: float | None) -> Onset | None:
    """The earliest strong departure from the course; without one, where progress ended or the first failure was.

    Times of a watchdog have had its waiting time subtracted before (`at` is when the wait began).
    """
    departures = [f for f in findings if f.kind in DEPARTURES and f.iteration is not None]
    if departures:
        first = min(departures, key=lambda f: (f.iteration or 0, f.kind))
        return Onset(
            first.kind,
            first.statement,
            first.at,
            _later(first.at, 10.0),
            first.iteration,
            first.phase or "train",
            first.nodes,
            first.ranks,
        )
    blamed = sorted((f for f in findings if f.accuses and f.at is not None), key=lambda f: (-f.score, f.at or 0.0))
    started = progress_at if progress_at is not None else (blamed[0].at if blamed else failed_at)
    if started is None:
        return None
    if step is None:
        phase = blamed[0].phase if blamed and blamed[0].phase else "init"
        return Onset(
            "first_failure",
            "the job failed before its first iteration",
            failed_at or started,
            _later(failed_at or started, 10.0),
            None,
            phase,
        )
    phases = [f.phase for f in blamed if f.phase]
    phase = "checkpoint" if "checkpoint" in phases[:1] else "train"
    return Onset("last_progress", f"step {step} was the last that anybody worked on", started, _later(started, 10.0), step, phase)


def _later(at: float | None, seconds: float) -> float | None:
    return None if at is None else at + seconds
