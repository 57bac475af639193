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
    ids = sorted({*counts, *(t for other, _ in baselines for t in other)})
    rows: dict[str, object] = {"template_id": ids}
    for k, (events, lengths) in enumerate([(counts, exposures), *baselines]):
        rows[f"n_{k}"] = [float(events.get(t, 0.0)) for t in ids]
        rows |= {f"{x}_{k}": [float(lengths.get(x, 0.0))] * len(ids) for x in EXPOSURES}
    return compare(pooled(pd.DataFrame(rows)))


def pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """The input of `compare` from rows that hold each side by itself, as a set-based query makes them.

    `n_0` are the job's events, `n_1 …` those of its baselines (NaN or null for none), `x_0`, `x_1 …` their exposures: a
    side without exposures does not exist. Other columns stay.
    """
    places = sorted(int(c[2:]) for c in map(str, rows.columns) if c.startswith("n_") and c[2:].isdigit() and c != "n_0")
    present = np.column_stack([rows[f"hours_{k}"].notna().to_numpy() for k in places])
    n = np.where(present, np.nan_to_num(np.column_stack([rows[f"n_{k}"].to_numpy(float) for k in places])), 0.0)
    keys = [c for c in ("job_id", "template_id") if c in rows]
    frame = rows[keys].assign(
        n_events=np.nan_to_num(rows["n_0"].to_numpy(float)),
        n_baseline_events=n.sum(axis=1),
        n_baselines=present.sum(axis=1),
        n_baselines_with=(n > 0).sum(axis=1),
    )
    for x in EXPOSURES:
        theirs = np.where(present, np.nan_to_num(np.column_stack([rows[f"{x}_{k}"].to_numpy(float) for k in places])), 0.0)
        rates = np.where(present, n / np.where(theirs > 0, theirs, np.inf), np.nan)
        frame[x] = np.nan_to_num(rows[f"{x}_0"].to_numpy(float))
        frame[f"base_{x}"] = theirs.sum(axis=1)
        frame[f"min_{x}"], frame[f"max_{x}"] = np.nanmin(rates, axis=1), np.nanmax(rates, axis=1)
        if x == "hours":
            frame["median_hours"] = np.nanmedian(rates, axis=1)
    return frame


def compare(sides: pd.DataFrame) -> pd.DataFrame:
    """Tests and verdicts on rows that hold both sides already (as the set-based query of a whole night makes them).

    Needs `template_id, n_events, n_baseline_events, n_baselines, n_baselines_with`, and for each exposure `x` of
    `EXPOSURES`: `x`, `base_x`, `min_x`, `max_x` (the last two are rates); and `median_hours`. `q_value` is corrected within
    `job_id` where that column exists.
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
    groups = pd.factorize(result["job_id"])[0] if "job_id" in result else np.zeros(len(p), np.int64)
    result["q_value"] = grouped_q_values(groups, p)
    result["change"] = _verdicts(result, is_outside)
    return result[[c for c in ["job_id", *DIFF_COLUMNS] if c in result]]


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
