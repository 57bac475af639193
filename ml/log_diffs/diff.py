"""One job's logs on all three axes: the rows of `log_findings`, `node_findings` and `onsets`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ml.log_diffs import course, onset, origins, progress
from ml.log_diffs.evidence import Evidence, JobDiff
from ml.log_diffs.peers import node_findings
from ml.log_diffs.telling import template_findings
from ml.log_diffs.topology import Finding
from ml.log_diffs.utterances import words_of


def diff_job(evidence: Evidence) -> JobDiff:
    """All findings of one job. A completed job has no origin to look for: only its course and its templates are compared."""
    job = evidence.job
    is_failed = job.state != "COMPLETED"
    said = origins.all_findings(job, evidence.utterances, dict(evidence.last_at)) if is_failed else []
    nodes = node_findings(evidence)
    onsets = onset_findings(evidence, said)
    templates = template_findings(evidence)
    return JobDiff(tuple(templates), (*said, *evidence.phase_findings), tuple(nodes), tuple(onsets))


def onset_findings(evidence: Evidence, said: Sequence[Finding]) -> list[Finding]:
    """The temporal axis: course, progress, silence, and the onset chosen from them."""
    job, steps, iterations = evidence.job, evidence.steps, evidence.iterations
    is_failed = job.state != "COMPLETED"
    times = (
        progress.step_times(steps)
        if not steps.empty
        else course.iteration_times(iterations)
        if not iterations.empty
        else pd.DataFrame()
    )
    found = course.slowdown_findings(times)
    if not steps.empty and any(f.kind in ("single_pause", "step_pauses") for f in found):
        found += progress.late_findings(job, steps, course.overlong_steps(times))
    if not iterations.empty:
        found += course.non_finite_findings(iterations) + course.loss_jump_findings(iterations)
    progress_at, step = onset.last_progress(iterations, steps)
    words = words_of(job, evidence.utterances) if is_failed else None
    failed_at = words.first_failure_at if words else None
    if is_failed:
        left_out = progress.left_out_findings(job, steps)
        behind = progress.behind_findings(job, steps)
        found += left_out + [replace(f, is_echo=True) if left_out else f for f in behind]
        found += onset.silence_findings(job, progress_at, failed_at or _told_at(said), _usual_pace(times, iterations), step)
    has_stepped = step is not None and _has_stepped(steps, iterations)
    if has_stepped or _has_trained(evidence):
        found.append(
            Finding(
                "logs",
                "temporal",
                "progressed",
                f"the job made steps up to {step}" if has_stepped else "the job printed a loss, so it had begun to train",
                0.0,
                at=progress_at,
                iteration=step,
                phase="train",
                subject="progress",
                table="onsets",
            )
        )
    chosen = onset.choose_onset([*said, *found], progress_at, step, failed_at) if is_failed or found else None
    if chosen is not None and (is_failed or chosen.method in onset.DEPARTURES):
        found.append(
            Finding(
                "logs",
                "temporal",
                "onset",
                chosen.statement,
                0.0,
                at=chosen.started_at,
                iteration=chosen.iteration,
                phase=chosen.phase,
                subject=chosen.method,
                table="onsets",
            )
        )
    return [replace(f, table="onsets") for f in found]


def _told_at(said: Sequence[Finding]) -> float | None:
    """When the launchers of a job that nothing had broken were told to end it."""
    return min((f.at for f in said if f.kind == "launcher_terminated" and f.at is not None), default=None)


def _has_stepped(steps: pd.DataFrame, iterations: pd.DataFrame) -> bool:
    """Whether a whole step was made: a progress line was printed, or some rank went on to a second step."""
    return not iterations.empty or (not steps.empty and steps["step"].nunique() > 1)


def _has_trained(evidence: Evidence) -> bool:
    """Whether lines of training progress were printed where neither steps nor iteration numbers are known."""
    if not evidence.steps.empty or not evidence.iterations.empty:
        return False
    return any(c.template_id.startswith("training.") for c in evidence.counts) or any(
        u.phase in ("train", "evaluate", "checkpoint") for u in evidence.utterances
    )


def _usual_pace(times: pd.DataFrame, iterations: pd.DataFrame) -> float | None:
    """Seconds between signs of life: the step time, or the time between printed lines where that is longer."""
    pace = [float(times["step_time_s"].median())] if not times.empty else []
    if not iterations.empty and iterations["iteration"].nunique() > 2:
        gaps = iterations.groupby("iteration", sort=True)["occurred_at"].median().diff().dropna()
        if times.empty and len(gaps):
            pace.append(float(gaps.median()))
    return max(pace) if pace else None
