"""Figures about time: what was productive, what stragglers cost, how the rate moves; and all of the fleet's figures together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jobs.reliability.figures import (
    PROJECTED_SIZES,
    Figures,
    Scope,
    Source,
    by_size,
    failure_rates,
    failures,
    gpus_per_node,
    lost_work,
    node_rate,
    source_of,
    times_to_failure,
    who_takes_part,
)
from ml.reliability import ettr, rates, shares, trend
from ml.reliability.outcomes import Outcome, Run
from ml.reliability.rates import Estimate

CHECKPOINT_WRITE_MIN = 5.0
"""Assumed minutes to write a checkpoint, for the optimal interval."""

MAX_VERSIONS = 20


@dataclass(frozen=True)
class Lineage:
    """What the figures need of one lineage: nodes, wall-clock and productive seconds, and whether its progress was known."""

    lineage_id: str
    n_nodes: float
    wall_s: float
    productive_s: float


def fleet_figures(
    runs: Sequence[Run], lineages: Sequence[Lineage], stragglers: Sequence[tuple[str, float, float]]
) -> list[dict[str, Any]]:
    """Rows of reliability_figures from runs, lineages and (job, S, GPU-hours) of stragglers."""
    figures = Figures()
    counted = [r for r in runs if r.running_s > 0 and r.outcome is not Outcome.UNKNOWN]
    failure_rates(figures, counted)
    times_to_failure(figures, counted)
    who_takes_part(figures, counted)
    lost_work(figures, counted)
    productive_time(figures, lineages, counted)
    straggling(figures, stragglers)
    movement(figures, counted)
    return figures.rows


def productive_time(figures: Figures, lineages: Sequence[Lineage], runs: Sequence[Run]) -> None:
    """ETTR as measured over lineages, as expected by job size, and the checkpoint interval that costs least."""
    usable = [one for one in lineages if one.wall_s > 0]
    if usable:
        wall, good = [one.wall_s for one in usable], [one.productive_s for one in usable]
        low, high = rates.bootstrap(good, wall)
        source = Source([one.lineage_id for one in usable], "reliability_lineages")
        measured = Estimate(sum(good) / sum(wall), low, high, len(usable), sum(wall) / 3600)
        method = "Productive over wall-clock time (queue and running), all lineages; interval by resampling lineages."
        figures.add("ettr", "share", measured, source, method, exposure_unit="wall-clock hours")
    rate, per_node = node_rate(runs), gpus_per_node(runs)
    if math.isnan(rate.value):
        return
    source = source_of(failures(runs), runs)
    for size in sorted({*by_size(runs), *PROJECTED_SIZES}):
        nodes, scope = size / per_node, Scope("n_gpus", str(size))
        at = [ettr.expected_ettr(nodes, r, ettr.CHECKPOINT_MIN) for r in (rate.value, rate.high, rate.low)]
        method = f"(1 − N·r·(u0 + Δt/2)) / (1 + w/Δt), u0 {ettr.RESTART_MIN:g} min, Δt {ettr.CHECKPOINT_MIN:g} min, w 0, no queue."
        figures.add("ettr", "share", Estimate(at[0], at[1], at[2], rate.n_events, rate.exposure), source, method, scope, "expected")
        best = [ettr.optimal_checkpoint_min(nodes, r, CHECKPOINT_WRITE_MIN) for r in (rate.value, rate.high, rate.low)]
        method = f"√(2·w / (N·r)) with w {CHECKPOINT_WRITE_MIN:g} min (Young and Daly)."
        figures.add(
            "optimal_checkpoint_interval_min",
            "min",
            Estimate(best[0], best[1], best[2], rate.n_events, rate.exposure),
            source,
            method,
            scope,
            "expected",
        )


def straggling(figures: Figures, stragglers: Sequence[tuple[str, float, float]]) -> None:
    """What stragglers cost, from the what-if's S of each job."""
    waste = shares.straggler_waste([(s, h) for _, s, h in stragglers])
    if not waste.n_jobs:
        return
    hours = [h for _, s, h in stragglers if s > 0]
    lost = [max(1 - 1 / s, 0.0) * h for _, s, h in stragglers if s > 0]
    source = Source([job for job, _, _ in stragglers], "straggler_reports")
    low, high = rates.bootstrap(lost, hours)
    method = "Σ GPU-hours × (1 − 1/S) over Σ GPU-hours; interval by resampling jobs."
    share = Estimate(waste.share_of_gpu_hours, low, high, waste.n_jobs, sum(hours))
    figures.add("straggler_waste_share", "share", share, source, method, exposure_unit="GPU-hours")
    low, high = rates.bootstrap(lost)
    total = Estimate(waste.wasted_gpu_hours, low, high, waste.n_jobs, sum(hours))
    figures.add("straggler_waste_gpu_h", "GPU-hours", total, source, "Σ GPU-hours × (1 − 1/S).", exposure_unit="GPU-hours")
    figures.add(
        "straggling_jobs_share", "share", waste.share_slow, source, "Share of jobs with S of 1.1 or more.", exposure_unit="jobs"
    )


def movement(figures: Figures, runs: Sequence[Run]) -> None:
    """The rate by week, its trend, and its change with each new version of the code."""
    weeks = trend.weekly(runs)
    for week in weeks:
        name = datetime.fromtimestamp(week.start, UTC).strftime("%Y-%m-%d")
        source = Source(week.failed_jobs, n_censored=week.n_censored)
        figures.add(
            "failures_per_node_day_week",
            "per node-day",
            week.rate,
            source,
            "Failures that ended in the week over its node-days.",
            Scope("week", name),
        )
    moved = trend.trend([(w.rate.n_events, w.rate.exposure) for w in weeks])
    if moved:
        source = Source([job for week in weeks for job in week.failed_jobs])
        method = f"Factor a week of a log-linear Poisson trend; probability without a trend {moved.p_value:.3g}."
        figures.add("failure_rate_factor_per_week", "×", moved.factor, source, method)
    for change in trend.version_changes(runs)[-MAX_VERSIONS:]:
        method = (
            f"Rate of the version over that of the one before; exact conditional test, corrected probability {change.q_value:.3g}."
        )
        figures.add(
            "failure_rate_ratio",
            "×",
            change.comparison.ratio,
            Source(change.jobs),
            method,
            Scope("version", f"{change.before} → {change.after}"),
        )
