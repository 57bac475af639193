"""What one healthy job says about each of its metrics: small, so that jobs are read where they lie and only this travels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ml.machines.evidence import Aspect, MetricEvidence, measure
from ml.machines.joint import Companion, features, unexplained
from ml.machines.levels import Levels, Together, levels_of
from ml.machines.medians import MIN_PEERS
from ml.machines.peers import band, floor_of, others_median
from ml.machines.series import MetricTable, Series, tables_of
from ml.machines.windows import FILTER_POINTS

Array = np.ndarray

N_TOP = 40
"""Largest block maxima that a harvest keeps: enough for the tail of one job."""
N_WINDOWS = 48
"""Healthy windows that a harvest keeps for the embedding."""
N_HALVES = 4
"""Random halves of a job's machines that are harvested beside the whole."""
LEAST_HALVED = 16


@dataclass(frozen=True)
class Harvest:
    """What one healthy job says about one metric.

    `tops` maps `aspect|seconds|host` (host: `first` or `other`) to the largest block maxima, largest first; `blocks` to how
    many blocks there were. `offsets` is each machine's usual difference as a share of the metric's level. `is_whole` is
    false for what a part of the machines says, and for what is said beside another harvest of the same job.
    """

    job_id: str
    metric: str
    unit: str | None
    job_days: float
    tops: Mapping[str, tuple[float, ...]]
    blocks: Mapping[str, int]
    offsets: Mapping[str, float]
    windows: tuple[tuple[float, ...], ...]
    is_whole: bool = True


def harvest_job(
    job_id: str, series: Iterable[Series], roles: Mapping[str, str], first_host: str | None, seed: int
) -> list[tuple[list[Harvest], Levels]]:
    """Harvests of a successful job, and its levels, by metric and role; metrics with fewer than three peers give none."""
    tables = [table for table in tables_of(series, roles) if len(table.members) > MIN_PEERS]
    return [_harvested(job_id, table, first_host, seed) for table in tables]


def _harvested(job_id: str, table: MetricTable, first_host: str | None, seed: int) -> tuple[list[Harvest], Levels]:
    values = table.matrix()
    evidence = measure(values, table.period_s, table.unit)
    days = table.n_points * table.period_s / 86400
    is_first = np.array([node == first_host for node, _ in table.members])
    tops, blocks = _block_maxima(evidence, is_first)
    found = [Harvest(job_id, table.metric, table.unit, days, tops, blocks, _offsets_of(table, values),
                     _windows_of(job_id, table, values, seed))]  # fmt: skip
    for rows in _halves(len(table.members), f"{seed}|{job_id}|{table.metric}|{table.role}"):
        tops, blocks = _block_maxima(measure(values[rows], table.period_s, table.unit), is_first[rows])
        found.append(Harvest(job_id, table.metric, table.unit, days / 2, tops, blocks, {}, (), is_whole=False))
    return found, levels_of(table, evidence)


def harvest_unexplained(
    job_id: str, job: Together, companions: Mapping[str, Companion], first_host: str | None, seed: int
) -> list[Harvest]:
    """Harvests of what companions leave unexplained, one a metric that has one, and of halves of the machines."""
    found = []
    days = job.values.shape[2] * job.bin_s / 86400
    parts = [np.arange(len(job.nodes)), *_halves(len(job.nodes), f"{seed}|{job_id}|{job.role}")]
    for rows in parts:
        own = replace(job, nodes=tuple(job.nodes[row] for row in rows), values=job.values[:, rows])
        made = features(own)
        is_first = np.array([node == first_host for node in own.nodes])
        share = len(rows) / len(job.nodes)
        for metric, unit in zip(job.metrics, job.units, strict=True):
            if metric in companions and set(companions[metric].inputs) <= set(job.metrics):
                tops, blocks = _block_maxima(unexplained(own, made, metric, companions[metric]), is_first)
                found.append(Harvest(job_id, metric, unit, days * share, tops, blocks, {}, (), is_whole=False))
    return found


def _halves(n_machines: int, name: str) -> list[Array]:
    """Random halves of the machines, drawn by name: with fewer peers the band is less certain, and thresholds must hold."""
    if n_machines < LEAST_HALVED:
        return []
    digest = hashlib.sha256(name.encode()).digest()
    draw = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return [np.sort(draw.choice(n_machines, n_machines // 2, replace=False)) for _ in range(N_HALVES)]


def _block_maxima(evidence: MetricEvidence, is_first: Array) -> tuple[dict[str, tuple[float, ...]], dict[str, int]]:
    """Largest differences a machine and block, a block being one window long, so that one event counts once."""
    tops: dict[str, tuple[float, ...]] = {}
    blocks: dict[str, int] = {}
    for each in evidence.differences:
        width = max(round(each.length_s / evidence.windows.bin_s), 1)
        magnitude = np.nan_to_num(np.abs(each.values))
        pad = -magnitude.shape[1] % width
        maxima = np.pad(magnitude, ((0, 0), (0, pad))).reshape(len(magnitude), -1, width).max(axis=2)
        for host, rows in (("first", is_first), ("other", ~is_first)):
            own = maxima[rows].ravel()
            key = f"{each.aspect}|{each.length_s:g}|{host}"
            tops[key] = tuple(np.sort(own)[::-1][:N_TOP].tolist())
            blocks[key] = len(own)
            if each.aspect is Aspect.LEVEL:
                # A constant offset fills all blocks of its machine: it is one event a machine and job.
                whole = maxima[rows].max(axis=1)
                tops[f"{key}|whole"] = tuple(np.sort(whole)[::-1][:N_TOP].tolist())
                blocks[f"{key}|whole"] = len(whole)
    return tops, blocks


def _offsets_of(table: MetricTable, values: Array) -> dict[str, float]:
    """Each member's median difference to its peers over the job, as a share of the metric's median size."""
    known = np.abs(values[np.isfinite(values)])
    size = float(np.median(known)) if len(known) else 0.0
    if size == 0.0:
        return {}
    away = values - others_median(values)
    return {
        node if device is None else f"{node}|{device}": float(np.median(own[np.isfinite(own)])) / size
        for (node, device), own in zip(table.members, away, strict=True)
        if np.isfinite(own).any()
    }


def _windows_of(job_id: str, table: MetricTable, values: Array, seed: int) -> tuple[tuple[float, ...], ...]:
    """A few windows of differences to the peers, in units of the peers' spread, drawn by seed and job."""
    n_points, floor = table.n_points, floor_of(values, table.unit)
    if n_points < 2 * FILTER_POINTS or floor == 0.0:
        return ()
    away = values - others_median(values)
    away = np.clip(away / band(away, 8 * FILTER_POINTS, floor), -8, 8)
    digest = hashlib.sha256(f"{seed}|{job_id}|{table.metric}|{table.role}".encode()).digest()
    draw = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    starts = draw.integers(0, n_points - FILTER_POINTS + 1, N_WINDOWS)
    rows = draw.integers(0, len(values), N_WINDOWS)
    windows = np.array([away[row, start : start + FILTER_POINTS] for row, start in zip(rows, starts, strict=True)])
    windows = windows[np.isfinite(windows).all(axis=1)].round(6)
    return tuple(tuple(window) for window in windows.tolist())
