"""Machines that fail again and again: seven features over 28 days, exposure-normalised rates, corrected for their number.

Source of the features: arXiv 2410.21680. There, thresholds were set by hand on each feature's distribution; here a feature
fires above the fleet's 95th percentile and at or above a least count, and a machine is only called a lemon when, besides,
its failures exceed what the rest of the fleet's rate explains (exact Poisson, Benjamini and Hochberg).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ml.reliability.rates import Estimate, corrected, excess_p, rate

WINDOW_DAYS = 28.0
FEATURES = (
    "excl_jobid_count", "xid_cnt", "tickets", "out_count", "multi_node_node_fails", "single_node_node_fails",
    "single_node_node_failure_rate",
)  # fmt: skip
LEAST = {
    "excl_jobid_count": 2.0, "xid_cnt": 2.0, "tickets": 2.0, "out_count": 2.0, "multi_node_node_fails": 2.0,
    "single_node_node_fails": 2.0, "single_node_node_failure_rate": 0.2,
}  # fmt: skip
QUANTILE = 0.95
Q_LIMIT = 0.05


@dataclass(frozen=True)
class NodeRecord:
    """One machine over the window: days of work, failures that point at it, features by name, and the jobs behind them."""

    node: str
    exposure_days: float
    n_failures: int
    features: Mapping[str, float] = field(default_factory=dict)
    n_jobs: int = 0
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lemon:
    """A machine's verdict: which features fired, its rate, the chance of it (p), corrected (q)."""

    record: NodeRecord
    fired: tuple[str, ...]
    rate: Estimate
    p_value: float
    q_value: float
    is_lemon: bool


def thresholds(records: Sequence[NodeRecord]) -> dict[str, float]:
    """Each feature's threshold: the fleet's 95th percentile, at least the least count."""
    found = {}
    for name in FEATURES:
        values = [float(r.features.get(name, 0.0)) for r in records]
        found[name] = max(float(np.quantile(values, QUANTILE, method="higher")) if values else math.inf, LEAST[name])
    return found


def judge(records: Sequence[NodeRecord]) -> list[Lemon]:
    """A verdict for each machine, in order of its name. Each one's failures are held against the rate of all the others."""
    ordered = sorted(records, key=lambda r: r.node)
    limits = thresholds(ordered)
    all_failures, all_days = sum(r.n_failures for r in ordered), sum(r.exposure_days for r in ordered)
    chances = []
    for record in ordered:
        others = all_days - record.exposure_days
        # Half a failure keeps the rest of a small, healthy fleet from having a rate of nothing.
        background = (all_failures - record.n_failures + 0.5) / others if others > 0 else math.inf
        chances.append(excess_p(record.n_failures, background * record.exposure_days))
    q_values = corrected(chances)
    verdicts = []
    for record, p, q in zip(ordered, chances, q_values):
        fired = tuple(n for n in FEATURES if float(record.features.get(n, 0.0)) >= limits[n])
        verdicts.append(Lemon(record, fired, rate(record.n_failures, record.exposure_days), p, q, q <= Q_LIMIT and bool(fired)))
    return verdicts
