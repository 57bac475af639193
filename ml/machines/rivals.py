"""Other ways to find the odd machine, on the same windows: measured beside the project's own, never used in a verdict.

Each takes a metric (machines × grid points) and gives a score a machine and window: machines × windows, higher is odder.
`standing` then asks, as Minder (NSDI '25) does, that one machine be the oddest without a break for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from ml.machines.embedding import MlpEmbedding, PcaEmbedding, WindowEmbedding
from ml.machines.peers import band, floor_of, others_median

Array = np.ndarray
N_FIT = 4000


def windows_of(values: Array, width: int) -> Array:
    """Machines × windows × samples, neighbours apart; missing samples take the point's median over machines."""
    n_windows = values.shape[1] // width
    kept = values[:, : n_windows * width]
    ordered = np.sort(kept, axis=0)
    count = np.isfinite(ordered).sum(axis=0)
    centre = ordered[((count - 1) // 2).clip(0), np.arange(kept.shape[1])]
    filled = np.where(np.isfinite(kept), kept, np.nan_to_num(centre))
    return filled.reshape(len(values), n_windows, width)


def scaled(values: Array) -> Array:
    """Min-max over all machines and times of the job, robustly: the 0.5 and 99.5 percentiles become 0 and 1."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, (0.005, 0.995)) if len(known) else (0.0, 1.0)
    return np.clip((values - low) / max(high - low, 1e-12), -1, 2)


def z_across(score: Array) -> Array:
    """Each window's scores as Z over machines."""
    spread = score.std(axis=0)
    return (score - score.mean(axis=0)) / np.where(spread > 0, spread, np.inf)


def plain_z(values: Array, width: int) -> Array:
    """Absolute Z-score of the window's mean over machines."""
    return np.abs(z_across(windows_of(values, width).mean(axis=2)))


def features(windows: Array) -> Array:
    """Machines × windows × (mean, sd, skewness, kurtosis), as Minder's Mahalanobis peer has them."""
    mean = windows.mean(axis=2)
    sd = windows.std(axis=2)
    unit = (windows - mean[..., None]) / np.where(sd > 0, sd, np.inf)[..., None]
    return np.stack([mean, sd, (unit**3).mean(axis=2), (unit**4).mean(axis=2)], axis=2)


def mahalanobis(values: Array, width: int) -> Array:
    """Mahalanobis distance of a window's features from the machines' mean, covariance over machines, slightly ridged."""
    table = features(windows_of(values, width))
    away = table - table.mean(axis=0)
    covariance = np.einsum("iwa,iwb->wab", away, away) / len(values)
    ridge = 1e-6 * np.trace(covariance, axis1=1, axis2=2) + 1e-12
    inverse = np.linalg.pinv(covariance + ridge[:, None, None] * np.eye(table.shape[2]))
    return np.sqrt(np.maximum(np.einsum("iwa,wab,iwb->iw", away, inverse, away), 0))


def distance_sums(embedded: Array) -> Array:
    """Sum over the other machines of squared distances, machines × windows, in closed form.

    With n machines, mean m and x in any space: sum over j of |x_i - x_j|² = n |x_i - m|² + sum over j of |x_j - m|².
    Linear in the number of machines, and equal to the pairwise sums (a test holds them together).
    """
    away = ((embedded - embedded.mean(axis=0)) ** 2).sum(axis=2)
    return len(embedded) * away + away.sum(axis=0)


def raw_distance(values: Array, width: int) -> Array:
    """Z over machines of the distance sums of the windows as they are."""
    return z_across(distance_sums(windows_of(scaled(values), width)))


@dataclass(frozen=True)
class Embedded:
    """Z over machines of the distance sums of denoised windows: Minder's way with another embedding."""

    embedding: WindowEmbedding

    def __call__(self, values: Array, width: int) -> Array:
        """Machines × windows."""
        windows = windows_of(scaled(values), width)
        denoised = self.embedding.denoise(windows.reshape(-1, width)).reshape(windows.shape)
        return z_across(distance_sums(denoised))


@dataclass(frozen=True)
class Outliers:
    """A scikit-learn outlier detector on the features of windows as differences to the peers."""

    detector: IsolationForest | LocalOutlierFactor
    scale: Array

    def __call__(self, values: Array, width: int) -> Array:
        """Machines × windows."""
        table = difference_features(values, width) / self.scale
        return -self.detector.score_samples(table.reshape(-1, table.shape[2])).reshape(table.shape[:2])


def difference_features(values: Array, width: int) -> Array:
    """Features of windows of differences to the peers' median in units of the peers' spread."""
    away = np.nan_to_num(values - others_median(values))
    spread = band(away, 8 * width, max(floor_of(values, None), 1e-12))
    return features(windows_of(np.clip(np.nan_to_num(away / spread), -20, 20), width))


Rival = Callable[[Array, int], Array]


def fit_rivals(training: Sequence[Array], width: int, seed: int = 0) -> dict[str, Rival]:
    """All peers of one metric, those that learn fitted on healthy jobs (each machines × points), drawn by seed."""
    draw = np.random.default_rng(seed)
    windows = _some(np.concatenate([windows_of(scaled(v), width).reshape(-1, width) for v in training]), draw)
    table = _some(np.concatenate([difference_features(v, width).reshape(-1, 4) for v in training]), draw)
    scale = np.maximum(table.std(axis=0), 1e-9)
    forest = IsolationForest(n_estimators=100, random_state=seed).fit(table / scale)
    factor = LocalOutlierFactor(n_neighbors=35, novelty=True).fit(table / scale)
    n_components = min(3, width)
    return {
        "plain Z-score": plain_z,
        "Mahalanobis": mahalanobis,
        "raw distance": raw_distance,
        "PCA distance": Embedded(PcaEmbedding(n_components=n_components).fit(windows)),
        "auto-encoder distance": Embedded(MlpEmbedding(n_hidden=min(4, width), random_state=seed).fit(windows)),
        "isolation forest": Outliers(forest, scale),
        "local outlier factor": Outliers(factor, scale),
    }


def _some(rows: Array, draw: np.random.Generator) -> Array:
    return rows[np.sort(draw.permutation(len(rows))[:N_FIT])]


def standing(score: Array, n_windows: int) -> Array:
    """For how odd a machine has been the oddest: its least score over the last `n_windows`, zero if another was odder."""
    top = np.where(score >= score.max(axis=0) - 1e-12, score, 0.0)
    least = top.copy()
    for back in range(1, n_windows):
        earlier = np.zeros_like(top)
        earlier[:, back:] = top[:, :-back]
        least = np.minimum(least, earlier)
    return least
