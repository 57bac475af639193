"""Which node or rank writes unlike its peers: robust distance, isolation forest, and who lacks what all others have.

Rows are peers of one role, columns are templates, values are counts. Ranks print different things by design (rank 0
speaks for all), so only templates that are news to the fleet, or alerts, may accuse; normal ones count for `missing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import IsolationForest

from ml.log_diffs.topology import is_nearly_all

Floats = npt.NDArray[np.float64]

MIN_FOR_FOREST = 8
"""Below eight peers an isolation forest returns noise."""
N_TREES = 200
SEED = 20_230_517
N_SEPARATING = 5
USUAL = 2.0
"""Robust distances up to this are everyday spread."""
FLOOR = 0.35
"""Scale below which differences of log counts are rounding: half of log(2)."""


@dataclass(frozen=True)
class Outlier:
    """One peer that writes unlike the others: `score` in [0, 1], its distances, and the columns that separate it, best first."""

    index: int
    score: float
    distance: float
    forest_score: float | None
    separating: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """Peers compared: outliers best first, columns that nearly all peers show, and who lacks them."""

    outliers: tuple[Outlier, ...]
    global_columns: tuple[int, ...]
    missing: tuple[tuple[int, tuple[int, ...]], ...]


def distances(counts: Floats) -> Floats:
    """Robust distance of each row: |log counts − median| over the median absolute deviation (floored), largest columns first.

    The mean of a row's three largest columns: one loud template is enough, but one count more is not.
    """
    parts = column_distances(counts)
    top = np.sort(parts, axis=1)[:, ::-1][:, :3]
    weights = np.array([0.6, 0.25, 0.15])[: top.shape[1]]
    return np.asarray(top @ weights / weights.sum())


def column_distances(counts: Floats) -> Floats:
    """Robust distance of each value in its column, on log counts."""
    logs = np.log1p(np.asarray(counts, float))
    middle = np.median(logs, axis=0)
    spread = np.median(np.abs(logs - middle), axis=0) * 1.4826
    return np.abs(logs - middle) / np.maximum(spread, FLOOR)


def forest_scores(counts: Floats, seed: int = SEED) -> Floats:
    """Isolation-forest anomaly of each row in [0, 1], 0.5 is average; a fixed seed, contamination not assumed.

    The forest sees how far each column is off, without the usual spread and without what is small beside the largest
    difference: it splits columns at random whatever their scale, and would isolate the extremes of noise as readily as
    a real outlier.
    """
    beyond = np.maximum(column_distances(counts) - USUAL, 0.0)
    beyond = np.where(beyond < 0.5 * beyond.max(), 0.0, beyond) if beyond.size else beyond
    forest = IsolationForest(n_estimators=N_TREES, contamination="auto", random_state=seed, n_jobs=1).fit(beyond)
    return np.asarray(-forest.score_samples(beyond))


def compare_peers(counts: Floats, may_accuse: Sequence[bool]) -> Comparison:
    """Compare the rows of one role.

    `may_accuse` says which columns are news or alerts. A column that nearly all rows show is global: it accuses nobody,
    and the few rows without it are reported as missing.
    """
    counts = np.asarray(counts, float)
    n_peers, n_columns = counts.shape
    shown = (counts > 0).sum(axis=0)
    is_global = np.array([is_nearly_all(int(n), n_peers) for n in shown], bool) if n_columns else np.zeros(0, bool)
    lacking = (
        [(row, tuple(int(c) for c in np.nonzero(is_global & (counts[row] == 0))[0])) for row in range(n_peers)]
        if n_peers >= 3
        else []
    )
    missing = tuple((row, columns) for row, columns in lacking if columns)
    accusing = np.nonzero(np.asarray(may_accuse, bool) & ~is_global)[0] if n_columns else np.zeros(0, int)
    outliers = _outliers(counts[:, accusing], accusing) if n_peers >= 3 and len(accusing) else ()
    return Comparison(outliers, tuple(int(c) for c in np.nonzero(is_global)[0]), missing)


def _outliers(counts: Floats, columns: npt.NDArray[np.int_]) -> tuple[Outlier, ...]:
    n_peers = len(counts)
    parts = column_distances(counts)
    distance = distances(counts)
    forest = forest_scores(counts) if n_peers >= MIN_FOR_FOREST else None
    found = []
    for row in np.argsort(-distance, kind="stable"):
        rest = np.median(np.delete(distance, row))
        margin = float(distance[row] - rest)
        agrees = forest is None or forest[row] >= np.quantile(forest, 0.75)
        score = float(1 - np.exp(-max(0.0, margin - 0.5) / 2.0)) * (1.0 if agrees else 0.6)
        if score < 0.3:
            continue
        best = np.argsort(-parts[row], kind="stable")[:N_SEPARATING]
        separating = tuple(int(columns[c]) for c in best if parts[row, c] > 1.0)
        found.append(Outlier(int(row), score, float(distance[row]), None if forest is None else float(forest[row]), separating))
    if len(found) > max(1, n_peers // 3):
        return ()
    return tuple(sorted(found, key=lambda o: (-o.score, o.index)))
