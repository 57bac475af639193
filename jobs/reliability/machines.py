"""Machines over the window: their record, their fault intervals, and the fleet's figures about them. No Spark here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jobs.reliability.figures import MAX_SOURCES, Figures, Source
from ml.reliability.intervals import Fault, history, merged
from ml.reliability.lemons import FEATURES, WINDOW_DAYS, Lemon, NodeRecord, judge
from ml.reliability.rates import Estimate, bootstrap, poisson_interval, quantile_interval, rate, share

DAY_S = 86400.0
OPENING = frozenset({"link_down", "drain", "lockup", "power"})
"""Kinds of events that put a machine out of service until it is mended or runs a job again."""


def faults_of(node: str, events: Sequence[tuple[float, str, str, str]], starts: Sequence[float]) -> list[Fault]:
    """Fault intervals (days since 1970) of a machine from (time, kind, severity, device) events and starts of later jobs on it.

    An interval opens with a critical event that takes the machine out, or with a drain; it closes with the link's return, a
    reboot, or the next job that starts there.
    """
    found: list[Fault] = []
    ordered = sorted(events)
    for at, kind, severity, device in ordered:
        if kind not in OPENING or (severity != "critical" and kind != "drain"):
            continue
        ends = [t for t in starts if t > at]
        ends += [
            t for t, k, _, d in ordered if t > at and (k == "reboot" or (k == "link_up" and kind == "link_down" and d == device))
        ]
        found.append(Fault(node, at / DAY_S, min(ends) / DAY_S if ends else None, kind))
    return found


def node_rows(machines: Sequence[Mapping[str, Any]], window: tuple[float, float]) -> tuple[list[dict[str, Any]], list[Fault]]:
    """Rows of reliability_nodes, and all fault intervals.

    `machines`: node, exposure_days, n_jobs, n_failures, jobs, events (at, kind, severity, device), starts, and the features.
    """
    records = [
        NodeRecord(
            str(m["node"]),
            float(m["exposure_days"]),
            int(m["n_failures"]),
            {n: float(m[n] or 0.0) for n in FEATURES},
            int(m["n_jobs"]),
            tuple(m["jobs"]),
        )
        for m in machines
    ]
    by_node = {str(m["node"]): m for m in machines}
    rows, faults = [], []
    # Without a single event of any machine, nobody watched: that is not the same as never having been down.
    has_events = any(m["events"] for m in machines)
    span = (window[0] / DAY_S, window[1] / DAY_S)
    for verdict in judge(records):
        machine = by_node[verdict.record.node]
        own = faults_of(
            verdict.record.node,
            [(e["at"], e["kind"], e["severity"], e["device"] or "") for e in machine["events"]],
            machine["starts"],
        )
        faults += own
        rows.append(_row(verdict, own, span) | ({} if has_events else {"availability": None}))
    return rows, faults


def _row(verdict: Lemon, own: Sequence[Fault], span: tuple[float, float]) -> dict[str, Any]:
    record = verdict.record
    spans = merged(own, span).get(record.node, [])
    down, length = sum(end - start for start, end in spans), span[1] - span[0]
    known = not math.isnan(verdict.rate.value)
    return {
        "node": record.node,
        "window_start_at": moment(span[0] * DAY_S),
        "window_end_at": moment(span[1] * DAY_S),
        "n_jobs": record.n_jobs,
        "exposure_days": record.exposure_days,
        "n_failures": record.n_failures,
        "failures_per_day": verdict.rate.value if known else None,
        "low": verdict.rate.low if known else None,
        "high": verdict.rate.high if known else None,
        "features": dict(record.features),
        "fired": list(verdict.fired),
        "p_value": verdict.p_value,
        "q_value": verdict.q_value,
        "is_lemon": verdict.is_lemon,
        "n_intervals": len(spans),
        "down_days": down,
        "availability": min(max(1 - down / length, 0.0), 1.0) if length > 0 else None,
        "source_rows": sorted(record.jobs)[:MAX_SOURCES],
    }


def moment(at: float) -> datetime:
    """Seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at, UTC)


def machine_figures(
    rows: Sequence[Mapping[str, Any]], faults: Sequence[Fault], window: tuple[float, float]
) -> list[dict[str, Any]]:
    """The fleet's figures about machines: failures over work, availability, repair times, recurrence, lemons."""
    figures = Figures()
    if not rows:
        return []
    span = (window[0] / DAY_S, window[1] / DAY_S)
    exposure = len(rows) * (span[1] - span[0])
    every = rate(sum(int(r["n_failures"]) for r in rows), sum(float(r["exposure_days"]) for r in rows))
    source = Source([str(r["node"]) for r in rows if r["n_failures"]], "reliability_nodes")
    method = f"Failures that point at a machine, over its work, last {WINDOW_DAYS:g} days; exact Poisson interval."
    figures.add("failures_per_day_of_work", "per node-day of work", every, source, method)
    _fault_figures(figures, rows, faults, span, exposure)
    lemons = Source([str(r["node"]) for r in rows if r["is_lemon"]], "reliability_nodes")
    method = "Machines with more failures than the rest's rate explains (corrected probability ≤ 0.05), and a feature that fired."
    n = len(lemons.rows)
    figures.add(
        "lemon_nodes",
        "machines",
        Estimate(float(n), *poisson_interval(n), n, float(len(rows))),
        lemons,
        method,
        exposure_unit="machines",
    )
    return figures.rows


def _fault_figures(
    figures: Figures, rows: Sequence[Mapping[str, Any]], faults: Sequence[Fault], span: tuple[float, float], exposure: float
) -> None:
    """Availability, time to repair and recurrence, from fault intervals."""
    if all(row["availability"] is None for row in rows):
        return
    found = history(faults, len(rows), span)
    source = Source(sorted({f.node for f in faults}), "reliability_nodes")

    def add(name: str, unit: str, value: float, interval: tuple[float, float], method: str) -> None:
        figures.add(name, unit, Estimate(value, *interval, found.n_faults, exposure), source, method)

    low, high = bootstrap([float(r["down_days"]) for r in rows])
    resampled = "interval by resampling machines"
    method = f"1 − days in fault over node-days; overlaps merged, open faults last to the window's end; {resampled}."
    add("availability", "share", found.availability, (1 - high / exposure, 1 - low / exposure), method)
    add("down_node_days", "node-days", found.down, (low, high), f"Days in fault, overlaps merged; {resampled}.")
    low, high = poisson_interval(found.n_merged)
    add(
        "fault_intervals",
        "intervals",
        float(found.n_merged),
        (low, high),
        "After merging overlaps; exact Poisson interval.",
    )
    begun = found.faults_per_1000_node_days
    figures.add("faults_per_1000_node_days", "per 1,000 node-days", begun, source, "Faults that began; exact Poisson interval.")
    if not found.n_faults:
        return
    repairs = [f.end - f.start for f in faults if f.end is not None]
    ended = "time from a fault's start to its end; open ones are left out"
    add(
        "repair_median_days",
        "days",
        found.repair_median,
        quantile_interval(repairs, 0.5),
        f"Median {ended}; order-statistic interval.",
    )
    add(
        "repair_mean_days",
        "days",
        found.repair_mean,
        bootstrap(repairs, [1.0] * len(repairs)),
        f"Mean {ended}; interval by resampling.",
    )
    add(
        "repair_p90_days",
        "days",
        found.repair_p90,
        quantile_interval(repairs, 0.9),
        f"90th percentile of {ended}; order-statistic interval.",
    )
    for name, part, said in (
        ("recurrence_share_top_5_percent", found.share_of_top, f"the {found.n_top} machines with the most"),
        ("recurrence_share_3_or_more", found.share_of_repeaters, f"the {found.n_repeaters} machines with three or more"),
    ):
        of_all = share(round(part * found.n_faults), found.n_faults)
        add(name, "share", part, (of_all.low, of_all.high), f"Share of faults on {said}; exact binomial interval.")
