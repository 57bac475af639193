"""A failed job's templates against those of several successful jobs: new, missing, changed rates, odd phases.

Counts grow with volume, so rates are compared, and a template may count by time (heartbeats), by rank (start-up
banners) or by iteration (progress lines). Which one is not known beforehand, so a rate has changed only when it has
changed in every one of these ways of counting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from ml.log_diffs.topology import Finding

Floats = npt.NDArray[np.float64]

Q_VALUE = 0.01
"""False discovery rate of the rate tests of one job."""
MIN_FACTOR = 2.0
"""A rate inside this factor of the range of the baselines has not changed in a way that a person would call a change."""
MIN_BASELINES_FOR_MISSING = 2
EXPOSURES = ("hours", "ranks", "iterations")

DIFF_COLUMNS = [
    "template_id",
    "n_events",
    "n_baseline_events",
    "n_baselines",
    "n_baselines_with",
    "rate",
    "median_rate",
    "min_rate",
    "max_rate",
    "p_value",
    "q_value",
    "change",
]


def rate_p_values(n: Floats, exposure: Floats, n_base: Floats, base_exposure: Floats) -> Floats:
    """Two-sided p-values that two Poisson rates are equal, given their sum: a binomial test with share exposure/(sum).

    Exact mid-p tails; 1 where there is no exposure or no event.
    """
    n, n_base = np.asarray(n, float), np.asarray(n_base, float)
    total = n + n_base
    both = np.asarray(exposure, float) + np.asarray(base_exposure, float)
    is_known = (total > 0) & (np.asarray(exposure) > 0) & (np.asarray(base_exposure) > 0)
    share = np.where(is_known, np.asarray(exposure, float) / np.where(both > 0, both, 1.0), 0.5)
    point = stats.binom.pmf(n, total, share)
    lower = stats.binom.cdf(n, total, share) - 0.5 * point
    return np.where(is_known, np.clip(2 * np.minimum(lower, 1 - lower), 0.0, 1.0), 1.0)


def q_values(p: Floats) -> Floats:
    """Benjamini-Hochberg: the smallest false discovery rate at which each test would be rejected."""
    p = np.asarray(p, float)
    n = len(p)
    if n == 0:
        return p
    order = np.argsort(p, kind="stable")
    scaled = p[order] * n / np.arange(1, n + 1)
    result = np.empty(n)
    result[order] = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1.0)
    return result


def grouped_q_values(groups: npt.NDArray[np.int64], p: Floats) -> Floats:
    """`q_values` within each group, all at once: equal to calling it group by group.

    >>> grouped_q_values(np.array([0, 1, 0]), np.array([0.01, 0.5, 0.04])).tolist()
    [0.02, 0.5, 0.04]
    """
    n = len(p)
    if n == 0:
        return np.asarray(p, float)
    order = np.lexsort((p, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=groups[order][0] - 1))
    sizes = np.diff(starts, append=n)
    rank = np.arange(n) - np.repeat(starts, sizes) + 1
    scaled = np.minimum(p[order] * np.repeat(sizes, sizes) / rank, 1.0)
    # The minimum from the largest p down must not leak into the next group: each group is lifted above all earlier ones.
    lifted = scaled - np.repeat(np.arange(len(starts)), sizes) * -2.0
    smallest = np.minimum.accumulate(lifted[::-1])[::-1] - np.repeat(np.arange(len(starts)), sizes) * 2.0
    result = np.empty(n)
    result[order] = smallest
    return result


def job_diff(
    counts: Mapping[str, float],
    exposures: Mapping[str, float],
    baselines: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
) -> pd.DataFrame:
    """Templates of one job against its baselines: a frame of `DIFF_COLUMNS`, one row a template of either side.

    Each side is (events by template, exposure by `hours`, `ranks`, `iterations`); `hours` are rank-hours. `change` is
    new, missing, more, fewer or same. Identical sides give `same` throughout.
    """
    both = [(counts, exposures), *baselines]
    lengths = pd.DataFrame(
        {"job_id": "", "position": range(len(both)), **{x: [float(own.get(x, 0.0)) for _, own in both] for x in EXPOSURES}}
    )
    row = np.repeat(np.arange(len(both)), [len(events) for events, _ in both])
    template_ids = np.array([template for events, _ in both for template in events], object)
    n_events = np.array([n for events, _ in both for n in events.values()], float)
    return compare(pooled(lengths, row, template_ids, n_events))[DIFF_COLUMNS]


def pooled(
    sides: pd.DataFrame, row: npt.NDArray[np.int64], template_ids: npt.NDArray[np.object_] | npt.NDArray[np.int32], n_events: Floats
) -> pd.DataFrame:
    """The input of `compare`: one row a job and template of either of its sides, by job and template.

    `sides` has a row a side: `job_id, position, hours, ranks, iterations`, where position 0 is the job and 1, 2, … are its
    baselines. The three arrays have an entry a side and template: the side's place in `sides`, the template (its id or a code
    for it), its events.
    """
    job, jobs = pd.factorize(sides["job_id"], sort=True)
    template, templates = pd.factorize(template_ids, sort=True)
    position = sides["position"].to_numpy(np.int64)
    shape = (len(jobs), int(position.max(initial=1)) + 1)
    is_there = np.zeros(shape, bool)
    is_there[job, position] = True
    lengths = {x: _placed(shape, (job, position), sides[x].to_numpy(float)) for x in EXPOSURES}
    pairs, place = np.unique(job[row] * max(len(templates), 1) + template, return_inverse=True)
    owner, what = np.divmod(pairs, max(len(templates), 1))
    n = _placed((len(pairs), shape[1]), (place, position[row]), np.asarray(n_events, float))
    present, theirs = is_there[owner, 1:], n[:, 1:]
    frame = pd.DataFrame(
        {
            "job_id": np.asarray(jobs, object)[owner],
            "template_id": np.asarray(templates, object)[what],
            "n_events": n[:, 0],
            "n_baseline_events": theirs.sum(axis=1),
            "n_baselines": present.sum(axis=1),
            "n_baselines_with": (theirs > 0).sum(axis=1),
        }
    )
    for x in EXPOSURES:
        exposure = lengths[x][owner]
        rates = np.where(present, theirs / np.where(exposure[:, 1:] > 0, exposure[:, 1:], np.inf), np.nan)
        frame[x], frame[f"base_{x}"] = exposure[:, 0], exposure[:, 1:].sum(axis=1)
        frame[f"min_{x}"] = np.where(present, rates, np.inf).min(axis=1)
        frame[f"max_{x}"] = np.where(present, rates, 0.0).max(axis=1)
        if x == "hours":
            frame["median_hours"] = _median(rates)
    return frame


def _placed(shape: tuple[int, int], where: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], values: Floats) -> Floats:
    filled = np.zeros(shape)
    filled[where] = np.nan_to_num(values)
    return filled


def _median(rates: Floats) -> Floats:
    """Median of each row's known values; the unknown sort to the end, which `nanmedian` takes far longer for."""
    ordered = np.sort(rates, axis=1)
    n = np.maximum((~np.isnan(rates)).sum(axis=1), 1)
    rows = np.arange(len(rates))
    return (ordered[rows, (n - 1) // 2] + ordered[rows, n // 2]) / 2


def compare(sides: pd.DataFrame) -> pd.DataFrame:
    """Tests and verdicts on rows that hold both sides already (as the set-based query of a whole night makes them).

    Needs `job_id, template_id, n_events, n_baseline_events, n_baselines, n_baselines_with`, and for each exposure `x` of
    `EXPOSURES`: `x`, `base_x`, `min_x`, `max_x` (the last two are rates); and `median_hours`. `q_value` is corrected within
    `job_id`.
    """
    n, n0 = sides["n_events"].to_numpy(float), sides["n_baseline_events"].to_numpy(float)
    p = np.zeros(len(sides))
    is_outside = np.ones(len(sides), bool)
    for name in EXPOSURES:
        exposure, base = sides[name].to_numpy(float), sides[f"base_{name}"].to_numpy(float)
        is_usable = (exposure > 0) & (base > 0)
        p = np.where(is_usable, np.maximum(p, rate_p_values(n, exposure, n0, base)), p)
        rate = n / np.where(is_usable, exposure, 1.0)
        low, high = sides[f"min_{name}"].to_numpy(float), sides[f"max_{name}"].to_numpy(float)
        is_outside &= ~is_usable | (rate > high * MIN_FACTOR) | (rate < low / MIN_FACTOR)
    result = sides.assign(p_value=p, rate=n / np.where(sides["hours"] > 0, sides["hours"], 1.0))
    result["median_rate"], result["min_rate"], result["max_rate"] = sides["median_hours"], sides["min_hours"], sides["max_hours"]
    result["q_value"] = grouped_q_values(pd.factorize(result["job_id"])[0], p)
    result["change"] = _verdicts(result, is_outside)
    return result[["job_id", *DIFF_COLUMNS]]


def _verdicts(rows: pd.DataFrame, is_outside: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
    n_base, n_with = rows["n_baselines"].to_numpy(), rows["n_baselines_with"].to_numpy()
    is_new = (rows["n_events"].to_numpy() > 0) & (n_with == 0) & (n_base > 0)
    is_missing = (rows["n_events"].to_numpy() == 0) & (n_with == n_base) & (n_base >= MIN_BASELINES_FOR_MISSING)
    is_changed = (rows["q_value"].to_numpy() <= Q_VALUE) & is_outside & (n_with > 0) & (rows["n_events"].to_numpy() > 0)
    is_more = rows["rate"].to_numpy() > rows["median_rate"].to_numpy()
    return np.select([is_new, is_missing, is_changed & is_more, is_changed], ["new", "missing", "more", "fewer"], "same")


def phase_findings(
    phases: Mapping[str, tuple[float, float]], baselines: Sequence[Mapping[str, tuple[float, float]]]
) -> list[Finding]:
    """Phases that are absent, much longer, or in another order than in every baseline; each phase is (start, end) in seconds."""
    if len(baselines) < MIN_BASELINES_FOR_MISSING:
        return []
    always = sorted(set.intersection(*(set(b) for b in baselines)))
    found = []
    for phase in always:
        lengths = [b[phase][1] - b[phase][0] for b in baselines]
        if phase not in phases:
            found.append(
                _phase("phase_absent", phase, f"phase {phase} never came, which all {len(baselines)} baselines have", 0.4, None)
            )
            continue
        start, end = phases[phase]
        if end - start > 2 * max(lengths) + 10.0:
            found.append(
                _phase(
                    "phase_longer",
                    phase,
                    f"phase {phase} took {end - start:.0f} s, at most {max(lengths):.0f} s in the baselines",
                    0.4,
                    start,
                )
            )
    order = [p for p in sorted(phases, key=lambda p: phases[p][0]) if p in always]
    usual = {tuple(sorted((p for p in order), key=lambda p: b[p][0])) for b in baselines}
    if len(order) > 1 and len(usual) == 1 and tuple(order) not in usual:
        found.append(
            _phase("phase_order", order[0], f"phases came in the order {', '.join(order)}, not {', '.join(usual.pop())}", 0.3, None)
        )
    return found


def _phase(kind: str, phase: str, statement: str, score: float, at: float | None) -> Finding:
    return Finding("logs", "cross_job", kind, statement, score, at=at, phase=phase, subject=phase)
