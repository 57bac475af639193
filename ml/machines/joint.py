"""What a metric should read, given the machine's other metrics: one small network a metric, learnt from healthy jobs.

Machines of a job pass through the same phases at slightly different times, and a metric alone cannot tell a fault from
being a minute late. Its companions can: power, memory traffic and instructions of one machine move together. The part of a
metric that the machine's other metrics do not explain is several times quieter than the metric itself, so that a few
samples a minute apart are enough. A fault that moves all metrics of a machine as a phase would is left to the other aspects.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ml.machines.evidence import MetricEvidence, measure_unexplained
from ml.machines.levels import MIN_METRICS, Together
from ml.machines.medians import lower_medians_turned
from ml.machines.peers import others_median

Array = np.ndarray

LAGS = (-1, 0, 1)
"""Neighbouring bins are looked at too: exporters sample metrics at different instants."""
EDGE = max(LAGS)
N_HIDDEN = 16
MAX_ITER = 60
CLIP = 6.0
SEEN = 0.005
"""Share of healthy places at either end beyond which a feature counts as never seen."""
MIN_ROWS = 2000
"""Healthy rows (a machine in a bin) below which no companion is learnt."""


@dataclass(frozen=True)
class Companion:
    """The network of one metric as plain arrays. `inputs` are the other metrics, in the order of its features; `lows` and
    `highs` bound each feature by what training saw: beyond it the network knows nothing, and is not asked."""

    inputs: tuple[str, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    hidden: tuple[tuple[float, ...], ...]
    hidden_bias: tuple[float, ...]
    out: tuple[float, ...]
    out_bias: float

    @staticmethod
    def from_plain(raw: Mapping[str, Any]) -> Companion:
        """From what JSON gives back. Raises ValueError when the shapes do not fit one another."""
        made = Companion(
            tuple(str(name) for name in raw["inputs"]), tuple(float(low) for low in raw["lows"]),
            tuple(float(high) for high in raw["highs"]), tuple(tuple(float(w) for w in row) for row in raw["hidden"]),
            tuple(float(b) for b in raw["hidden_bias"]), tuple(float(w) for w in raw["out"]), float(raw["out_bias"]),
        )  # fmt: skip
        width = len(made.hidden_bias)
        if len(made.lows) != len(made.hidden) or len(made.highs) != len(made.hidden):
            raise ValueError("the companion's bounds do not fit its hidden layer")
        if len(made.hidden) != _n_features(len(made.inputs)) or any(len(row) != width for row in made.hidden):
            raise ValueError(f"the companion's hidden layer does not fit {len(made.inputs)} inputs")
        if len(made.out) != width:
            raise ValueError("the companion's layers do not fit each other")
        return made


def _n_features(n_inputs: int) -> int:
    return 2 * len(LAGS) * n_inputs + 1


@dataclass(frozen=True)
class Features:
    """Scaled metrics of one job: in units of the job's own spread, as they are and as differences to the peers.

    `padded` is (metrics × [difference, as it is]) × nodes × bins with unknown values at zero and an edge of LAGS, which
    repeats the outermost bins; `away` the unclipped difference to the peers, metrics × nodes × bins with NaN; `centres` the
    peers' course, metrics × bins; `scales` a spread each.
    """

    padded: Array
    away: Array
    centres: Array
    scales: Array

    def at(self, rows: Array, bins: Array) -> Array:
        """What neighbouring bins say at some places: places × metrics × (2 lags)."""
        lagged = np.array([self.padded[:, rows, bins + lag + EDGE] for lag in LAGS])
        own = lagged.reshape(len(LAGS), len(self.away), 2, len(rows)).transpose(3, 1, 2, 0)
        return own.reshape(len(rows), len(self.away), 2 * len(LAGS))


def features(job: Together) -> Features:
    """Features of all metrics of a job; scaling is by the job's own median and upper quartile of deviations."""
    n_metrics, n_nodes, n_bins = job.values.shape
    padded = np.empty((2 * n_metrics, n_nodes, n_bins + 2 * EDGE), dtype=np.float32)
    away = np.empty(job.values.shape, dtype=np.float32)
    centres = np.empty((n_metrics, n_bins), dtype=np.float32)
    scales = np.empty(n_metrics)
    for number, values in enumerate(job.values):
        known = values[np.isfinite(values)]
        middle = float(np.median(known)) if len(known) else 0.0
        spread = float(np.quantile(np.abs(known - middle), 0.75)) if len(known) else 0.0
        scales[number] = max(spread, 1e-3 * abs(middle), 1e-9)
        scaled = (values - middle) / float(scales[number])
        difference = scaled - others_median(scaled)
        away[number] = difference
        centres[number] = np.clip(np.nan_to_num(_course(scaled)), -CLIP, CLIP)
        for form, own in enumerate((difference, scaled)):
            padded[2 * number + form, :, EDGE:-EDGE] = np.nan_to_num(np.clip(own, -CLIP, CLIP))
    padded[:, :, :EDGE] = padded[:, :, EDGE : EDGE + 1]
    padded[:, :, -EDGE:] = padded[:, :, -EDGE - 1 : -EDGE]
    return Features(padded, away, centres, scales)


def _course(values: Array) -> Array:
    """The middle machine's value a bin (the lower of two), NaN where none is known."""
    return lower_medians_turned(np.ascontiguousarray(values.T, dtype=np.float64))


@dataclass(frozen=True)
class Sample:
    """Healthy places of one job: `features` is places × metrics × (2 lags + centre), `targets` places × metrics."""

    metrics: tuple[str, ...]
    features: Array
    targets: Array

    @staticmethod
    def from_bytes(metrics: tuple[str, ...], features: bytes, targets: bytes) -> Sample:
        """From the arrays' bytes (float32)."""
        table = np.frombuffer(features, dtype=np.float32).reshape(-1, len(metrics), 2 * len(LAGS) + 1)
        return Sample(metrics, table, np.frombuffer(targets, dtype=np.float32).reshape(-1, len(metrics)))


def sample_of(job: Together, n_rows: int, draw: np.random.Generator) -> Sample:
    """Places drawn from one job, with the features and the targets (difference to peers, usual offset removed)."""
    made = features(job)
    targets = made.away - _offset(made.away)[..., None]
    usable = np.flatnonzero(np.isfinite(targets).all(axis=0).ravel())
    chosen = np.sort(draw.permutation(usable)[:n_rows])
    rows, bins = np.unravel_index(chosen, job.values.shape[1:])
    table = np.concatenate([made.at(rows, bins), made.centres[:, bins].T[:, :, None]], axis=2)
    return Sample(job.metrics, table.astype(np.float32), targets[:, rows, bins].T.astype(np.float32))


def _offset(away: Array) -> Array:
    """Median over bins of known values, zero where none is known."""
    ordered = np.sort(away, axis=-1)
    count = np.isfinite(ordered).sum(axis=-1)
    middle = np.take_along_axis(ordered, ((count - 1) // 2).clip(0)[..., None], axis=-1)[..., 0]
    return np.where(count > 0, middle, 0.0)


def fit_companion(metric: str, samples: Sequence[Sample], seed: int) -> Companion | None:
    """The network of one metric from the samples of healthy jobs in a fixed order; None with too little to learn from.

    Its inputs are the commonest set of metrics among the jobs; jobs that lack one of them are left out.
    """
    sets = Counter(each.metrics for each in samples if metric in each.metrics)
    if not sets:
        return None
    chosen = min(sets, key=lambda names: (-sets[names], names))
    inputs = tuple(name for name in chosen if name != metric)
    usable = [each for each in samples if set(chosen) <= set(each.metrics)]
    n_rows = sum(len(each.targets) for each in usable)
    if len(inputs) < MIN_METRICS - 1 or n_rows < MIN_ROWS:
        return None
    x = np.concatenate([_rows_of(each, metric, inputs) for each in usable]).astype(np.float64)
    y = np.concatenate([np.clip(each.targets[:, each.metrics.index(metric)], -CLIP, CLIP) for each in usable]).astype(np.float64)
    network = MLPRegressor(hidden_layer_sizes=(N_HIDDEN,), max_iter=MAX_ITER, random_state=seed, tol=0.0, n_iter_no_change=MAX_ITER)
    with threadpool_limits(1), np.errstate(all="ignore"):
        # One thread: sums in one order, equal bytes.
        _fit_quietly(network, x, y)
    lows, highs = np.quantile(x, (SEEN, 1 - SEEN), axis=0).round(6).tolist()
    hidden, out = network.coefs_
    return Companion(
        inputs, tuple(lows), tuple(highs), tuple(tuple(row) for row in hidden.round(6).tolist()),
        tuple(network.intercepts_[0].round(6).tolist()), tuple(out[:, 0].round(6).tolist()),
        round(float(network.intercepts_[1][0]), 6),
    )  # fmt: skip


def _fit_quietly(network: MLPRegressor, x: Array, y: Array) -> None:
    with warnings.catch_warnings():
        # Few passes are meant: the map is smooth, its last digit is of no interest.
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(x, y)


def _rows_of(sample: Sample, metric: str, inputs: Sequence[str]) -> Array:
    at = [sample.metrics.index(name) for name in inputs]
    own = sample.features[:, at, : 2 * len(LAGS)].reshape(len(sample.features), -1)
    centre = sample.features[:, sample.metrics.index(metric), -1:]
    return np.concatenate([own, centre], axis=1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _expect(
    padded: Array, lined: Array, lows: Array, highs: Array, hidden: Array, begun: Array, out: Array, expected: Array
) -> None:
    """Add the network's output to `expected` (nodes × bins). `lined` says which lines of `padded` are read, at every lag;
    `begun` (bins × hidden) is what the hidden layer has from its bias and the peers' course."""
    n_nodes, n_bins = expected.shape
    begun = begun.T.copy()
    sums = np.empty_like(begun)
    own = np.empty(n_bins, dtype=np.float32)
    n_lags = padded.shape[2] - n_bins + 1
    for node in range(n_nodes):
        sums[:] = begun
        for number in range(len(lined) * n_lags):
            line = padded[lined[number // n_lags], node, number % n_lags :]
            low, high = lows[number], highs[number]
            for at in range(n_bins):
                value = line[at] if line[at] > low else low
                own[at] = value if value < high else high
            for unit in range(len(out)):
                weight, total = hidden[number, unit], sums[unit]
                for at in range(n_bins):
                    total[at] += weight * own[at]
        for unit in range(len(out)):
            weight, total = out[unit], sums[unit]
            for at in range(n_bins):
                expected[node, at] += weight * (total[at] if total[at] > 0 else np.float32(0))


def unexplained(job: Together, made: Features, metric: str, companion: Companion) -> MetricEvidence:
    """What of a metric's difference to the peers the machine's other metrics do not explain, as evidence of two aspects.

    Zero where the metric itself is unknown: gaps are another aspect's affair.
    """
    number = job.metrics.index(metric)
    lined = [2 * job.metrics.index(name) + form for name in companion.inputs for form in (0, 1)]
    plain = (companion.lows, companion.highs, companion.hidden, companion.hidden_bias, companion.out)
    lows, highs, hidden, hidden_bias, out = (np.array(each, dtype=np.float32) for each in plain)
    centre = np.clip(made.centres[number], lows[-1], highs[-1])
    expected = np.full(job.values.shape[1:], companion.out_bias, dtype=np.float32)
    _expect(made.padded, np.array(lined), lows, highs, hidden, hidden_bias + centre[:, None] * hidden[-1], out, expected)
    rest = ((made.away[number] - expected) * made.scales[number]).astype(np.float64)
    # Where all machines do what training never saw, the network knows nothing of anyone.
    is_known = (made.centres[number] >= companion.lows[-1]) & (made.centres[number] <= companion.highs[-1])
    rest = np.where(is_known, np.nan_to_num(rest), 0.0)
    course = np.nan_to_num(_course(job.values[number]))
    return measure_unexplained(rest, course, job.bin_s, job.lengths_s, job.floors[number])
