"""Suspects against the band of their peers, from series on one grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from jobs.reports.svg.charts import Band
from jobs.reports.words import moment


def thin(values: Sequence[float | None], points: int) -> list[float | None]:
    """A series of at most `points` values: means of neighbours, None where all of them are missing."""
    series = np.array([np.nan if v is None else v for v in values], dtype=float)
    if len(series) <= points:
        return _known(series)
    edges = np.linspace(0, len(series), points + 1).astype(int)
    filled, present = np.nan_to_num(series), ~np.isnan(series)
    sums, counts = np.add.reduceat(filled, edges[:-1]), np.add.reduceat(present, edges[:-1])
    return _known(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def peer_band(rows: Sequence[Mapping[str, Any]], suspects: Mapping[str, float]) -> Band | None:
    """The 10th, 50th and 90th percentile of the peers at each grid point, and the suspects' own lines (three at most).

    `rows`: node, device, grid_start_at, step_s (seconds between values), values. None when no series has a time.
    """
    timed = [row for row in rows if moment(row["grid_start_at"]) and row["values"]]
    if not timed:
        return None
    longest = max(timed, key=lambda row: len(row["values"]))
    start, n = moment(longest["grid_start_at"]), len(longest["values"])
    if start is None:
        return None
    grid = np.full((len(timed), n), np.nan)
    for i, row in enumerate(timed):
        grid[i, : len(row["values"])] = [np.nan if v is None else v for v in row["values"]]
    accused = np.array([row["node"] in suspects for row in timed])
    peers = grid[~accused] if (~accused).any() else grid
    known = ~np.isnan(peers).all(axis=0)
    low, middle, high = (np.full(n, np.nan) for _ in range(3))
    if known.any():
        low[known], middle[known], high[known] = np.nanpercentile(peers[:, known], [10, 50, 90], axis=0)
    order = sorted(
        (i for i in range(len(timed)) if accused[i]),
        key=lambda i: (-suspects[timed[i]["node"]], timed[i]["node"], str(timed[i]["device"])),
    )
    lines = {_label(timed[i]): _known(grid[i]) for i in order[:3]}
    times = [start + timedelta(seconds=float(longest["step_s"]) * i) for i in range(n)]
    return Band(times, _known(low), _known(middle), _known(high), lines, int((~accused).sum()))


def _label(row: Mapping[str, Any]) -> str:
    return str(row["node"]) + (f" device {row['device']}" if row.get("device") not in (None, "") else "")


def _known(values: Iterable[float]) -> list[float | None]:
    return [None if np.isnan(v) else float(v) for v in values]
