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

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ml.machines.evidence import MetricEvidence, measure_unexplained
from ml.machines.levels import MIN_METRICS, Together
from ml.machines.peers import others_median

Array = np.ndarray

LAGS = (-1, 0, 1)
"""Neighbouring bins are looked at too: exporters sample metrics at different instants."""
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

    `stacked` is (metrics × 2 × lags) × nodes × bins with unknown values at zero; `away` the unclipped difference to the
    peers, metrics × nodes × bins with NaN; `centres` the peers' course, metrics × bins; `scales` a spread each.
    """

    stacked: Array
    away: Array
    centres: Array
    scales: Array

    def of(self, number: int, inputs: Sequence[int], rows: Array | slice, bins: Array | slice) -> Array:
        """Feature matrix of one target metric: places × features."""
        n_lags = 2 * len(LAGS)
        chosen = np.concatenate([np.arange(i * n_lags, (i + 1) * n_lags) for i in inputs])
        own = self.stacked[chosen][:, rows, bins].reshape(len(chosen), -1)
        shape = self.away[number][rows, bins].shape
        centre = np.broadcast_to(self.centres[number][bins], shape).reshape(1, -1)
        return np.concatenate([own, centre]).T


def features(job: Together) -> Features:
    """Features of all metrics of a job; scaling is by the job's own median and upper quartile of deviations."""
    flat = job.values.reshape(len(job.values), -1)
    away, stacked, centres, scales = [], [], [], []
    for number, values in enumerate(job.values):
        known = flat[number][np.isfinite(flat[number])]
        middle = float(np.median(known)) if len(known) else 0.0
        spread = float(np.quantile(np.abs(known - middle), 0.75)) if len(known) else 0.0
        spread = max(spread, 1e-3 * abs(middle), 1e-9)
        scaled = (values - middle) / spread
        difference = scaled - others_median(scaled)
        away.append(difference)
        centres.append(np.clip(np.nan_to_num(_column_median(scaled)), -CLIP, CLIP))
        scales.append(spread)
        for form in (difference, scaled):
            filled = np.nan_to_num(np.clip(form, -CLIP, CLIP))
            stacked += [_moved(filled, lag) for lag in LAGS]
    return Features(
        np.array(stacked, dtype=np.float32), np.array(away, dtype=np.float32), np.array(centres, dtype=np.float32), np.array(scales)
    )


def _moved(values: Array, lag: int) -> Array:
    """The values `lag` bins later; the edges keep their own."""
    at = (np.arange(values.shape[1]) + lag).clip(0, values.shape[1] - 1)
    return values[:, at]


def _column_median(values: Array) -> Array:
    ordered = np.sort(values, axis=0)
    count = np.isfinite(ordered).sum(axis=0)
    middle = ordered[((count - 1) // 2).clip(0), np.arange(values.shape[1])]
    return np.where(count > 0, middle, np.nan)


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
    n_metrics, n_lags = len(job.metrics), 2 * len(LAGS)
    own = made.stacked[:, rows, bins].reshape(n_metrics, n_lags, len(chosen))
    centre = made.centres[:, bins][:, None, :]
    table = np.concatenate([own, centre], axis=1).transpose(2, 0, 1)
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


def unexplained(job: Together, made: Features, metric: str, companion: Companion) -> MetricEvidence:
    """What of a metric's difference to the peers the machine's other metrics do not explain, as evidence of two aspects.

    Zero where the metric itself is unknown: gaps are another aspect's affair.
    """
    number = job.metrics.index(metric)
    x = made.of(number, [job.metrics.index(name) for name in companion.inputs], slice(None), slice(None))
    x = np.clip(x, np.array(companion.lows, dtype=np.float32), np.array(companion.highs, dtype=np.float32))
    hidden = np.maximum(x @ np.array(companion.hidden, dtype=np.float32) + np.array(companion.hidden_bias, dtype=np.float32), 0)
    expected = (hidden @ np.array(companion.out, dtype=np.float32) + np.float32(companion.out_bias)).reshape(job.values.shape[1:])
    rest = ((made.away[number] - expected) * made.scales[number]).astype(np.float64)
    # Where all machines do what training never saw, the network knows nothing of anyone.
    is_known = (made.centres[number] >= companion.lows[-1]) & (made.centres[number] <= companion.highs[-1])
    rest = np.where(is_known, np.nan_to_num(rest), 0.0)
    course = np.nan_to_num(_column_median(job.values[number]))
    return measure_unexplained(rest, course, job.bin_s, job.lengths_s, job.floors[number])
