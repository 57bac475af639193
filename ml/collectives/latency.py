"""Latency matrices, source × destination: a hot cell is a link, a hot row a sender, a hot column a receiver.

The idea is C4's (arXiv 2406.04594); the decision rule is our own. Every cell is compared with the matrix's median; a
row or column is hot when most of its cells are, a cell when it is hot and neither its row nor its column is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

HOT_RATIO = 2.0
HOT_SHARE = 0.6
MIN_CELLS = 4


class HotKind(StrEnum):
    """What is slow."""

    LINK = "link"
    SENDER = "sender"
    RECEIVER = "receiver"


@dataclass(frozen=True)
class HotSpot:
    """One slow link, sender or receiver; `ratio` is its median against that of the matrix."""

    kind: HotKind
    source: int | None
    destination: int | None
    ratio: float


def latency_matrix(
    sources: NDArray[np.int64], destinations: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[list[int], NDArray[np.float64]]:
    """Ranks in order and the median value from each to each, NaN where nothing was measured."""
    ranks = sorted({int(r) for r in np.r_[sources, destinations]})
    index = {rank: i for i, rank in enumerate(ranks)}
    cells: dict[tuple[int, int], list[float]] = {}
    for source, destination, value in zip(sources, destinations, values):
        if np.isfinite(value):
            cells.setdefault((index[int(source)], index[int(destination)]), []).append(float(value))
    matrix = np.full((len(ranks), len(ranks)), np.nan)
    for cell, found in cells.items():
        matrix[cell] = float(np.median(found))
    return ranks, matrix


def hot_spots(ranks: list[int], matrix: NDArray[np.float64]) -> list[HotSpot]:
    """Hot senders and receivers, then hot links outside of their rows and columns; hottest first.

    Nothing is named in a matrix with fewer than four measured cells, nor a row or column with a single one.
    """
    measured = np.isfinite(matrix)
    if measured.sum() < MIN_CELLS:
        return []
    usual = float(np.median(matrix[measured]))
    if usual <= 0:
        return []
    hot = measured & (np.where(measured, matrix, 0.0) >= HOT_RATIO * usual)
    rows, columns = _hot_lines(hot, measured), _hot_lines(hot.T, measured.T)
    found = [HotSpot(HotKind.SENDER, ranks[i], None, _ratio(matrix[i], usual)) for i in sorted(rows)]
    found += [HotSpot(HotKind.RECEIVER, None, ranks[j], _ratio(matrix[:, j], usual)) for j in sorted(columns)]
    for i, j in np.argwhere(hot):
        if int(i) not in rows and int(j) not in columns:
            found.append(HotSpot(HotKind.LINK, ranks[i], ranks[j], float(matrix[i, j] / usual)))
    return sorted(found, key=lambda one: (-one.ratio, one.kind, one.source or 0, one.destination or 0))


def _ratio(values: NDArray[np.float64], usual: float) -> float:
    return float(np.nanmedian(values) / usual)


def _hot_lines(hot: NDArray[np.bool_], measured: NDArray[np.bool_]) -> set[int]:
    n_measured = measured.sum(axis=1)
    share = hot.sum(axis=1) / np.maximum(1, n_measured)
    lines = {int(i) for i in np.flatnonzero((n_measured >= 2) & (share >= HOT_SHARE))}
    return lines if len(lines) * 2 <= len(measured) else set()
