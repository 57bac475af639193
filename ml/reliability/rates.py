"""Rates of rare events with exact intervals, comparisons, and correction for many comparisons.

Sources: exact Poisson limits (Garwood 1936), exact binomial limits (Clopper and Pearson 1934), comparison of two Poisson
rates by the conditional binomial (Przyborowski and Wilenski 1940), false discovery rate (Benjamini and Hochberg 1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
SMALL = 10
"""Counts below this are small: the interval says more than the value."""

HOURS_PER_DAY = 24.0
GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval. `high` is infinite where nothing bounds it; all are NaN without exposure."""

    value: float
    low: float
    high: float
    n_events: int
    exposure: float

    @property
    def is_small(self) -> bool:
        """Fewer than ten events."""
        return self.n_events < SMALL

    def scaled(self, factor: float) -> Estimate:
        """The same in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.n_events, self.exposure)


NOTHING = Estimate(math.nan, math.nan, math.nan, 0, 0.0)


def poisson_interval(n_events: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact limits of a Poisson mean of which `n_events` were seen.

    >>> [round(x, 4) for x in poisson_interval(10)]
    [4.7954, 18.3904]
    """
    tail = (1 - confidence) / 2
    low = 0.0 if n_events == 0 else float(stats.chi2.ppf(tail, 2 * n_events) / 2)
    return low, float(stats.chi2.ppf(1 - tail, 2 * n_events + 2) / 2)


def rate(n_events: int, exposure: float) -> Estimate:
    """Events over exposure, with the exact interval.

    >>> rate(419, 54 * 2048).value * 1000       # unexpected interruptions per 1,000 node-days  # doctest: +ELLIPSIS
    3.788...
    """
    if exposure <= 0:
        return Estimate(math.nan, math.nan, math.nan, n_events, max(exposure, 0.0))
    low, high = poisson_interval(n_events)
    return Estimate(n_events / exposure, low / exposure, high / exposure, n_events, exposure)


def share(n_part: int, n_whole: int) -> Estimate:
    """A share with its exact binomial interval; exposure is the whole."""
    if n_whole <= 0:
        return NOTHING
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if n_part == 0 else float(stats.beta.ppf(tail, n_part, n_whole - n_part + 1))
    high = 1.0 if n_part == n_whole else float(stats.beta.ppf(1 - tail, n_part + 1, n_whole - n_part))
    return Estimate(n_part / n_whole, low, high, n_part, float(n_whole))


def projected_mttf_h(failures_per_node_day: float, n_gpus: float, gpus_per_node: float = GPUS_PER_NODE) -> float:
    """Hours to failure of a job of that size if every node fails at this rate: 1 / (nodes × rate).

    >>> round(projected_mttf_h(6.5e-3, 16384), 4)
    1.8029
    """
    nodes = n_gpus / gpus_per_node
    return math.inf if failures_per_node_day * nodes == 0 else HOURS_PER_DAY / (nodes * failures_per_node_day)


def projected_mttf(failures_per_node_day: Estimate, n_gpus: float, gpus_per_node: float = GPUS_PER_NODE) -> Estimate:
    """The same with the interval of the rate turned over."""
    value, low, high = (
        projected_mttf_h(r, n_gpus, gpus_per_node)
        for r in (failures_per_node_day.value, failures_per_node_day.high, failures_per_node_day.low)
    )
    return Estimate(value, low, high, failures_per_node_day.n_events, failures_per_node_day.exposure)


def measured_mttf(n_failures: int, running_h: float) -> Estimate:
    """Running hours over failures. Runs that were cut short add hours and no failure (the exponential estimate under censoring).

    Without a failure the value is infinite and the lower limit is what the hours can exclude.
    """
    per_hour = rate(n_failures, running_h)
    if math.isnan(per_hour.value):
        return per_hour
    turned = [math.inf if r == 0 else 1 / r for r in (per_hour.value, per_hour.high, per_hour.low)]
    return Estimate(turned[0], turned[1], turned[2], n_failures, running_h)


@dataclass(frozen=True)
class Comparison:
    """The ratio of two rates (second over first), its exact interval, and the two-sided probability under equality."""

    ratio: Estimate
    p_value: float


def compare(first: tuple[int, float], second: tuple[int, float]) -> Comparison:
    """Compare (events, exposure) of two periods: given all events, the second's are binomial by exposure."""
    (n1, e1), (n2, e2) = first, second
    if e1 <= 0 or e2 <= 0 or n1 + n2 == 0:
        return Comparison(Estimate(math.nan, math.nan, math.nan, n1 + n2, max(e1, 0) + max(e2, 0)), 1.0)
    of_second = share(n2, n1 + n2)

    def odds(p: float) -> float:
        return math.inf if p >= 1 else p / (1 - p) * e1 / e2

    p_value = float(stats.binomtest(n2, n1 + n2, e2 / (e1 + e2)).pvalue)
    return Comparison(Estimate(odds(of_second.value), odds(of_second.low), odds(of_second.high), n1 + n2, e1 + e2), p_value)


def excess_p(n_events: int, expected: float) -> float:
    """Chance of that many events or more when so many are expected."""
    return 1.0 if n_events == 0 else float(stats.poisson.sf(n_events - 1, expected))


def corrected(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's q of each p, in the order given.

    >>> [round(q, 3) for q in corrected([0.01, 0.5, 0.02])]
    [0.03, 0.5, 0.03]
    """
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i], i))
    q_values, least = [1.0] * len(p_values), 1.0
    for position in range(len(order), 0, -1):
        i = order[position - 1]
        least = min(least, p_values[i] * len(order) / position)
        q_values[i] = least
    return q_values


def bootstrap(numerators: Sequence[float], denominators: Sequence[float] | None = None, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of a sum (or of a ratio of two sums) over jobs, by a Poisson bootstrap with a fixed seed.

    NaN with fewer than two jobs: nothing can be said of how another set of jobs would have come out.
    """
    top = np.asarray(numerators, dtype=float)
    if len(top) < 2:
        return math.nan, math.nan
    below = None if denominators is None else np.asarray(denominators, dtype=float)
    source = np.random.default_rng(seed)
    drawn = []
    for _ in range(1000 if len(top) <= 20_000 else 200):
        weights = source.poisson(1.0, len(top))
        whole = 1.0 if below is None else float(weights @ below)
        if whole > 0:
            drawn.append(float(weights @ top) / whole)
    if not drawn:
        return math.nan, math.nan
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def quantile_interval(values: Sequence[float], q: float) -> tuple[float, float]:
    """The 95 % interval of a quantile from order statistics: no assumption on the distribution. NaN where too few values bound it.

    >>> quantile_interval(list(range(1, 21)), 0.5)
    (6.0, 15.0)
    """
    ordered = sorted(values)
    n, tail = len(ordered), (1 - CONFIDENCE) / 2
    if not n:
        return math.nan, math.nan
    first, last = int(stats.binom.ppf(tail, n, q)), int(stats.binom.ppf(1 - tail, n, q)) + 1
    return (float(ordered[first - 1]) if first >= 1 else math.nan), (float(ordered[last - 1]) if last <= n else math.nan)
