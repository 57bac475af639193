"""Distances of every machine to every other in every window: pairwise, in closed form, and in one fused pass.

All three give, a window, the sum over the other machines of squared Euclidean distances of embedded windows, its Z-score
over the machines, and the machine that is odd. Pairwise costs machines squared; the closed form

    sum over j of |x_i - x_j|²  =  n |x_i - m|²  +  sum over j of |x_j - m|²      (m the mean over machines)

is linear in machines, and the fused pass touches each sample twice and allocates nothing that grows with time.
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.spatial.distance import cdist

Array = np.ndarray


def pairwise_scores(values: Array, width: int, step: int, basis: Array) -> tuple[Array, Array]:
    """Odd machine and its Z-score a window, by all pairs: `values` machines × points, `basis` components × `width`."""
    starts = range(0, values.shape[1] - width + 1, step)
    top = np.empty(len(starts), dtype=np.int64)
    peak = np.empty(len(starts))
    for number, start in enumerate(starts):
        embedded = values[:, start : start + width] @ basis.T
        sums = cdist(embedded, embedded, "sqeuclidean").sum(axis=1)
        top[number], peak[number] = _oddest(sums)
    return top, peak


def minder_scores(values: Array, width: int, step: int, basis: Array) -> tuple[Array, Array]:
    """As `pairwise_scores`, with plain distances instead of squared ones: what Minder sums (no closed form)."""
    starts = range(0, values.shape[1] - width + 1, step)
    top = np.empty(len(starts), dtype=np.int64)
    peak = np.empty(len(starts))
    for number, start in enumerate(starts):
        embedded = values[:, start : start + width] @ basis.T
        top[number], peak[number] = _oddest(cdist(embedded, embedded).sum(axis=1))
    return top, peak


def closed_scores(values: Array, width: int, step: int, basis: Array) -> tuple[Array, Array]:
    """As `pairwise_scores`, in closed form, window by window in numpy."""
    starts = range(0, values.shape[1] - width + 1, step)
    top = np.empty(len(starts), dtype=np.int64)
    peak = np.empty(len(starts))
    for number, start in enumerate(starts):
        embedded = values[:, start : start + width] @ basis.T
        away = ((embedded - embedded.mean(axis=0)) ** 2).sum(axis=1)
        top[number], peak[number] = _oddest(len(away) * away + away.sum())
    return top, peak


def _oddest(sums: Array) -> tuple[int, float]:
    spread = float(sums.std())
    top = int(sums.argmax())
    return top, (float(sums[top]) - float(sums.mean())) / spread if spread > 0 else 0.0


@numba.njit(cache=True, nogil=True, fastmath=True)
def fused_scores(values: Array, width: int, step: int, basis: Array) -> tuple[Array, Array]:
    """As `pairwise_scores`, in one compiled pass. `values` is points × machines (time first), so that the inner loop runs
    over neighbours in memory."""
    n_points, n_rows = values.shape
    n_parts = basis.shape[0]
    n_windows = (n_points - width) // step + 1
    top = np.empty(n_windows, dtype=np.int64)
    peak = np.empty(n_windows)
    embedded = np.empty((n_parts, n_rows), dtype=np.float32)
    away = np.empty(n_rows, dtype=np.float32)
    for number in range(n_windows):
        start = number * step
        away[:] = 0.0
        for part in range(n_parts):
            own = embedded[part]
            own[:] = 0.0
            for point in range(width):
                weight = np.float32(basis[part, point])
                line = values[start + point]
                for row in range(n_rows):
                    own[row] += weight * line[row]
            total = 0.0
            for row in range(n_rows):
                total += own[row]
            mean = np.float32(total / n_rows)
            for row in range(n_rows):
                difference = own[row] - mean
                away[row] += difference * difference
        total, squares, best = 0.0, 0.0, 0
        for row in range(n_rows):
            total += away[row]
            squares += away[row] * away[row]
            if away[row] > away[best]:
                best = row
        mean_away = total / n_rows
        spread = np.sqrt(max(squares / n_rows - mean_away * mean_away, 0.0))
        # A constant added to all sums, and the factor n, drop out of the Z-score.
        top[number] = best
        peak[number] = (away[best] - mean_away) / spread if spread > 0 else 0.0
    return top, peak
