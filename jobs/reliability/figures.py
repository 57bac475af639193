"""The fleet's figures from its runs: each with interval, exposure, censored runs and source rows. No Spark here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ml.reliability import ettr, goodput, rates, shares, trend
from ml.reliability.outcomes import Outcome, Run, category_of
from ml.reliability.rates import Estimate

MAX_SOURCES = 100
LARGE_JOB_GPUS = 128
"""The published failure rate is over jobs with more than 128 GPUs."""

PROJECTED_SIZES = (1024, 4096, 16384, 131072)
CHECKPOINT_WRITE_MIN = 5.0
MAX_VERSIONS = 20


@dataclass(frozen=True)
class Scope:
    """What a figure is of."""

    kind: str = "fleet"
    name: str = "all"


@dataclass(frozen=True)
class Source:
    """The rows behind a figure."""

    rows: Sequence[str] = ()
    table: str = "training_jobs"
    n_censored: int = 0


@dataclass
class Figures:
    """Collects rows of reliability_figures."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, figure: str, unit: str, estimate: Estimate, source: Source, method: str, scope: Scope | None = None, basis: str = "measured",
            exposure_unit: str = "node-days") -> None:  # fmt: skip
        """One figure; values that are not finite become null."""
        where, ids = scope or Scope(), sorted(set(source.rows))
        self.rows.append({
            "figure": figure, "scope_kind": where.kind, "scope": where.name, "basis": basis, "value": finite(estimate.value),
            "low": finite(estimate.low), "high": finite(estimate.high), "unit": unit, "n_events": int(estimate.n_events),
            "n_censored": source.n_censored, "exposure": finite(estimate.exposure), "exposure_unit": exposure_unit,
            "is_small": estimate.is_small, "method": method, "source_table": source.table, "source_rows": ids[:MAX_SOURCES],
            "n_source_rows": len(ids),
        })  # fmt: skip


def finite(value: float) -> float | None:
    """The value, or None when it is infinite or not a number."""
    return float(value) if math.isfinite(value) else None


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


def _failed(runs: Iterable[Run]) -> list[Run]:
    return [r for r in runs if r.outcome is Outcome.FAILURE]


def _source(runs: Sequence[Run], of: Sequence[Run]) -> Source:
    return Source([r.job_id for r in runs], n_censored=sum(r.outcome is Outcome.CENSORED for r in of))


def node_rate(runs: Sequence[Run], infrastructure_only: bool = False) -> Estimate:
    """Failures per node-day; runs that were cut short add exposure only."""
    failed = [r for r in _failed(runs) if r.is_infrastructure or not infrastructure_only]
    return rates.rate(len(failed), sum(r.node_days for r in runs))


def size_of(run: Run) -> int:
    """The job size's bucket: the next power of two."""
    return 1 << max(run.n_gpus - 1, 0).bit_length()


def by_size(runs: Sequence[Run]) -> dict[int, list[Run]]:
    """Runs by size bucket, smallest first; runs without accelerators are left out."""
    sizes: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        if run.n_gpus:
            sizes[size_of(run)].append(run)
    return dict(sorted(sizes.items()))


def failure_rates(figures: Figures, runs: Sequence[Run]) -> None:
    """Failures per node-day: of the fleet, of large jobs, by size; and those that infrastructure caused."""
    scopes = [
        (Scope(), list(runs)),
        (Scope("n_gpus", f"more than {LARGE_JOB_GPUS}"), [r for r in runs if r.n_gpus > LARGE_JOB_GPUS]),
    ]
    scopes += [(Scope("n_gpus", str(size)), group) for size, group in by_size(runs).items()]
    for scope, group in scopes:
        if not group:
            continue
        method = (
            "Failed runs over nodes times days, exact Poisson interval; cancelled, timed-out and pre-empted runs add exposure only."
        )
        figures.add("failures_per_node_day", "per node-day", node_rate(group), _source(_failed(group), group), method, scope)
        if scope.kind == "fleet" or scope.name.startswith("more"):
            caused = [r for r in _failed(group) if r.is_infrastructure]
            method = "NODE_FAIL, or FAILED with a critical event of one of its nodes between 10 minutes before its end and 5 after."
            figures.add(
                "infrastructure_failures_per_node_day",
                "per node-day",
                node_rate(group, True),
                _source(caused, group),
                method,
                scope,
            )


def times_to_failure(figures: Figures, runs: Sequence[Run]) -> None:
    """MTTF as measured by job size, and projected from the fleet's rate: two figures, never mixed."""
    fleet = node_rate(runs)
    large = [r for r in runs if r.n_gpus > LARGE_JOB_GPUS]
    base, named = (node_rate(large), f"jobs with more than {LARGE_JOB_GPUS} GPUs") if _failed(large) else (fleet, "all jobs")
    per_node = _gpus_per_node(runs)
    sizes = by_size(runs)
    for size, group in sizes.items():
        measured = rates.measured_mttf(len(_failed(group)), sum(r.running_s for r in group) / 3600)
        method = "Running hours over failures of jobs of this size; runs cut short add hours only."
        figures.add(
            "mttf_h", "h", measured, _source(_failed(group), group), method, Scope("n_gpus", str(size)), exposure_unit="job-hours"
        )
    for size in sorted({*sizes, *PROJECTED_SIZES}):
        if math.isnan(base.value):
            break
        method = (
            f"1 / (nodes × rate) with {per_node:g} GPUs a node and the rate of {named}: assumes that every node fails at that rate."
        )
        source = _source(_failed(large if base is not fleet else runs), runs)
        figures.add(
            "mttf_h", "h", rates.projected_mttf(base, size, per_node), source, method, Scope("n_gpus", str(size)), "projected"
        )


def _gpus_per_node(runs: Sequence[Run]) -> float:
    nodes, gpus = sum(r.n_nodes for r in runs if r.n_gpus), sum(r.n_gpus for r in runs if r.n_nodes)
    return gpus / nodes if nodes and gpus else float(rates.GPUS_PER_NODE)


def who_takes_part(figures: Figures, runs: Sequence[Run]) -> None:
    """Shares of states, of causes, and of the taxonomy's categories, by count and by GPU time."""
    failed = _failed(runs)
    groups = (
        ("state", "state", [(r.state, r) for r in runs]),
        ("cause", "cause_class", [(r.cause, r) for r in failed]),
        ("category", "cause_category", [(category_of(r.cause), r) for r in failed]),
    )
    for name, kind, pairs in groups:
        hours = [r.gpu_hours for _, r in pairs]
        for part in shares.parts(pairs):
            source, scope = Source(part.jobs), Scope(kind, part.name)
            method = (
                "Share of runs, exact binomial interval." if name == "state" else "Share of failed runs, exact binomial interval."
            )
            figures.add(f"{name}_share_by_count", "share", part.by_count, source, method, scope, exposure_unit="jobs")
            low, high = rates.bootstrap([r.gpu_hours if n == part.name else 0.0 for n, r in pairs], hours)
            of_time = Estimate(part.share_of_gpu_time, low, high, part.by_count.n_events, sum(hours))
            method = "Share of their GPU-hours; interval by resampling jobs (Poisson bootstrap, fixed seed)."
            figures.add(f"{name}_share_by_gpu_time", "share", of_time, source, method, scope, exposure_unit="GPU-hours")


def lost_work(figures: Figures, runs: Sequence[Run]) -> None:
    """GPU-hours lost by cause; pre-emption apart, and of that what restarts of failed jobs brought on others."""
    lost = goodput.lost_goodput(runs)
    by_id = {r.job_id: r for r in runs}
    total = sum(r.gpu_hours for r in runs)
    method = "min(running time, 30 minutes) × GPUs of each failed run; interval by resampling jobs."
    for cause, hours in lost.by_cause.items():
        failed = lost.jobs_by_cause[cause]
        low, high = rates.bootstrap([goodput.lost_gpu_h(by_id[i]) for i in failed])
        figures.add("lost_goodput_gpu_h", "GPU-hours", Estimate(hours, low, high, len(failed), total), Source(failed), method, Scope("cause_class", cause),
                    exposure_unit="GPU-hours")  # fmt: skip
    second = [job for job, _ in lost.second_order_jobs]
    for name, hours, ids, said in (
        ("preempted", lost.preempted, list(lost.preempted_jobs), "min(running time, 30 minutes) × GPUs of each pre-empted run."),
        (
            "second order",
            lost.second_order,
            second,
            "The same of runs pre-empted while the restart of a failed job took one of their nodes.",
        ),
    ):
        low, high = rates.bootstrap([goodput.lost_gpu_h(by_id[i]) for i in ids])
        figures.add("lost_goodput_gpu_h", "GPU-hours", Estimate(hours, low, high, len(ids), total), Source(ids), said, Scope("preemption", name),
                    exposure_unit="GPU-hours")  # fmt: skip


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
    rate, per_node = node_rate(runs), _gpus_per_node(runs)
    if math.isnan(rate.value):
        return
    source = _source(_failed(runs), runs)
    for size in sorted({*by_size(runs), *PROJECTED_SIZES}):
        nodes, scope = size / per_node, Scope("n_gpus", str(size))
        at = [ettr.expected_ettr(nodes, r, ettr.CHECKPOINT_MIN) for r in (rate.value, rate.high, rate.low)]
        method = f"(1 − N·r·(u0 + Δt/2)) / (1 + w/Δt), u0 {ettr.RESTART_MIN:g} min, Δt {ettr.CHECKPOINT_MIN:g} min, w 0; queue left out; never below 0."
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
