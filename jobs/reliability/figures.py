"""The fleet's figures from its runs: each with interval, exposure, censored runs and source rows. No Spark here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ml.reliability import goodput, rates, shares
from ml.reliability.outcomes import Outcome, Run, category_of
from ml.reliability.rates import Estimate

MAX_SOURCES = 100
LARGE_JOB_GPUS = 128
"""The published failure rate is over jobs with more than 128 GPUs."""

PROJECTED_SIZES = (1024, 4096, 16384, 131072)


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

    def add(
        self,
        figure: str,
        unit: str,
        estimate: Estimate,
        source: Source,
        method: str,
        scope: Scope | None = None,
        basis: str = "measured",
        exposure_unit: str = "node-days",
    ) -> None:
        """One figure; values that are not finite become null."""
        where, ids = scope or Scope(), sorted(set(source.rows))
        self.rows.append(
            {
                "figure": figure,
                "scope_kind": where.kind,
                "scope": where.name,
                "basis": basis,
                "value": finite(estimate.value),
                "low": finite(estimate.low),
                "high": finite(estimate.high),
                "unit": unit,
                "n_events": int(estimate.n_events),
                "n_censored": source.n_censored,
                "exposure": finite(estimate.exposure),
                "exposure_unit": exposure_unit,
                "is_small": estimate.is_small,
                "method": method,
                "source_table": source.table,
                "source_rows": ids[:MAX_SOURCES],
                "n_source_rows": len(ids),
            }
        )


def finite(value: float) -> float | None:
    """The value, or None when it is infinite or not a number."""
    return float(value) if math.isfinite(value) else None


def failures(runs: Iterable[Run]) -> list[Run]:
    """The runs that failed by themselves."""
    return [r for r in runs if r.outcome is Outcome.FAILURE]


def source_of(runs: Sequence[Run], of: Sequence[Run]) -> Source:
    """These runs as source rows, with the number of runs among `of` that were cut short."""
    return Source([r.job_id for r in runs], n_censored=sum(r.outcome is Outcome.CENSORED for r in of))


def node_rate(runs: Sequence[Run], infrastructure_only: bool = False) -> Estimate:
    """Failures per node-day; runs that were cut short add exposure only."""
    failed = [r for r in failures(runs) if r.is_infrastructure or not infrastructure_only]
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
        figures.add("failures_per_node_day", "per node-day", node_rate(group), source_of(failures(group), group), method, scope)
        if scope.kind == "fleet" or scope.name.startswith("more"):
            caused = [r for r in failures(group) if r.is_infrastructure]
            method = "NODE_FAIL, or FAILED with a critical event of one of its nodes between 10 minutes before its end and 5 after."
            figures.add(
                "infrastructure_failures_per_node_day",
                "per node-day",
                node_rate(group, True),
                source_of(caused, group),
                method,
                scope,
            )


def times_to_failure(figures: Figures, runs: Sequence[Run]) -> None:
    """MTTF as measured by job size, and projected from the fleet's rate: two figures, never mixed."""
    fleet = node_rate(runs)
    large = [r for r in runs if r.n_gpus > LARGE_JOB_GPUS]
    base, named = (node_rate(large), f"jobs with more than {LARGE_JOB_GPUS} GPUs") if failures(large) else (fleet, "all jobs")
    per_node = gpus_per_node(runs)
    sizes = by_size(runs)
    for size, group in sizes.items():
        measured = rates.measured_mttf(len(failures(group)), sum(r.running_s for r in group) / 3600)
        method = "Running hours over failures of jobs of this size; runs cut short add hours only."
        figures.add(
            "mttf_h",
            "h",
            measured,
            source_of(failures(group), group),
            method,
            Scope("n_gpus", str(size)),
            exposure_unit="job-hours",
        )
    for size in sorted({*sizes, *PROJECTED_SIZES}):
        if math.isnan(base.value):
            break
        method = (
            f"1 / (nodes × rate) with {per_node:g} GPUs a node and the rate of {named}: assumes that every node fails at that rate."
        )
        source = source_of(failures(large if base is not fleet else runs), runs)
        figures.add(
            "mttf_h", "h", rates.projected_mttf(base, size, per_node), source, method, Scope("n_gpus", str(size)), "projected"
        )


def gpus_per_node(runs: Sequence[Run]) -> float:
    """Accelerators a node over all runs; eight where nothing is known."""
    nodes, gpus = sum(r.n_nodes for r in runs if r.n_gpus), sum(r.n_gpus for r in runs if r.n_nodes)
    return gpus / nodes if nodes and gpus else float(rates.GPUS_PER_NODE)


def who_takes_part(figures: Figures, runs: Sequence[Run]) -> None:
    """Shares of states, of causes, and of the taxonomy's categories, by count and by GPU time."""
    failed = failures(runs)
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
        figures.add(
            "lost_goodput_gpu_h",
            "GPU-hours",
            Estimate(hours, low, high, len(failed), total),
            Source(failed),
            method,
            Scope("cause_class", cause),
            exposure_unit="GPU-hours",
        )
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
        figures.add(
            "lost_goodput_gpu_h",
            "GPU-hours",
            Estimate(hours, low, high, len(ids), total),
            Source(ids),
            said,
            Scope("preemption", name),
            exposure_unit="GPU-hours",
        )
