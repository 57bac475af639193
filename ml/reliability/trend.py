"""Whether the failure rate moves over the weeks, and whether it changed with a new version of the code."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from ml.reliability.outcomes import Outcome, Run
from ml.reliability.rates import Comparison, Estimate, compare, corrected, rate

WEEK_S = 7 * 86400.0
MONDAY_S = 4 * 86400.0
"""1970-01-01 was a Thursday: weeks begin on Mondays."""


@dataclass(frozen=True)
class Period:
    """Failures over node-days of one stretch; `start` in seconds since 1970."""

    start: float
    rate: Estimate
    n_censored: int
    failed_jobs: tuple[str, ...]


def weekly(runs: Sequence[Run]) -> list[Period]:
    """The failure rate by the week in which runs ended; a run's node-days are spread over the weeks in which it ran."""
    days: dict[int, float] = defaultdict(float)
    failed: dict[int, list[str]] = defaultdict(list)
    cut: dict[int, int] = defaultdict(int)
    for run in runs:
        if run.started_at is None or run.ended_at is None or run.ended_at <= run.started_at:
            continue
        last = _week(run.ended_at)
        for week in range(_week(run.started_at), last + 1):
            start = week * WEEK_S + MONDAY_S
            ran = min(run.ended_at, start + WEEK_S) - max(run.started_at, start)
            days[week] += run.node_days * max(ran, 0.0) / run.running_s
        if run.outcome is Outcome.FAILURE:
            failed[last].append(run.job_id)
        elif run.outcome is Outcome.CENSORED:
            cut[last] += 1
    return [Period(w * WEEK_S + MONDAY_S, rate(len(failed[w]), days[w]), cut[w], tuple(sorted(failed[w]))) for w in sorted(days)]


def _week(at: float) -> int:
    return int((at - MONDAY_S) // WEEK_S)


@dataclass(frozen=True)
class Trend:
    """The rate's factor per period, its interval, and the probability of such a trend when there is none."""

    factor: Estimate
    p_value: float


def trend(periods: Sequence[tuple[int, float]]) -> Trend | None:
    """A log-linear Poisson trend through (events, exposure) of consecutive periods; None when there is too little to tell.

    The probability is that of the score test given the total; it is approximate, so five events are the least.
    """
    usable = [(t, n, e) for t, (n, e) in enumerate(periods) if e > 0]
    total = sum(n for _, n, _ in usable)
    if len(usable) < 3 or total < 5:
        return None
    slope, information = 0.0, 0.0
    for _ in range(60):
        weights = [(t, e * math.exp(min(max(slope * t, -50.0), 50.0))) for t, _, e in usable]
        whole = sum(w for _, w in weights)
        mean = sum(t * w for t, w in weights) / whole
        information = total * sum((t - mean) ** 2 * w for t, w in weights) / whole
        step = sum(n * (t - mean) for t, n, _ in usable) / information if information > 0 else 0.0
        slope += min(max(step, -1.0), 1.0)
        if abs(step) < 1e-10:
            break
    exposure = sum(e for _, _, e in usable)
    flat = sum(t * e for t, _, e in usable) / exposure
    spread = total * sum((t - flat) ** 2 * e for t, _, e in usable) / exposure
    z = sum(n * (t - flat) for t, n, _ in usable) / math.sqrt(spread) if spread > 0 else 0.0
    error = 1.959964 / math.sqrt(information) if information > 0 else math.inf
    factor = Estimate(math.exp(slope), math.exp(max(slope - error, -700)), math.exp(min(slope + error, 700)), total, exposure)
    return Trend(factor, float(2 * stats.norm.sf(abs(z))))


@dataclass(frozen=True)
class VersionChange:
    """One version of the code against the one before it."""

    before: str
    after: str
    comparison: Comparison
    q_value: float
    jobs: tuple[str, ...]


def version_changes(runs: Sequence[Run]) -> list[VersionChange]:
    """Failure rates of consecutive versions, in the order in which they first ran; corrected for the number of changes."""
    first: dict[str, float] = {}
    days: dict[str, float] = defaultdict(float)
    failed: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if run.version is None or run.started_at is None:
            continue
        first[run.version] = min(first.get(run.version, math.inf), run.started_at)
        days[run.version] += run.node_days
        if run.outcome is Outcome.FAILURE:
            failed[run.version].append(run.job_id)
    order = sorted(first, key=lambda v: (first[v], v))
    steps = list(itertools.pairwise(order))
    compared = [compare((len(failed[a]), days[a]), (len(failed[b]), days[b])) for a, b in steps]
    q_values = corrected([c.p_value for c in compared])
    return [VersionChange(a, b, c, q, tuple(sorted(failed[a] + failed[b]))) for (a, b), c, q in zip(steps, compared, q_values)]
