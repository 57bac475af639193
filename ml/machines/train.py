"""Learning from healthy jobs: one job's harvest, and one metric's model from the harvests of many.

A harvest is small, so that jobs are read where they lie and only harvests travel. Jobs are split by the hash of their id:
half of them give the embedding and the machines' usual offsets, the other half, held out, the thresholds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ml.machines.embedding import PcaEmbedding
from ml.machines.evidence import Aspect, MetricEvidence, measure
from ml.machines.model import CALIBRATED, DEFAULT_THRESHOLDS, FALLBACK, MachineModel
from ml.machines.peers import MIN_PEERS, band, floor_of, others_median
from ml.machines.series import MetricTable, Series, tables_of
from ml.machines.windows import FILTER_POINTS, LADDER_S

Array = np.ndarray

LENGTHS_S = tuple(sorted({step * 2**n for step in LADDER_S for n in range(6) if step * 2**n <= 1920} | {LADDER_S[-1]}))
"""Every window length that `windows.cut` gives on the ladder."""
N_TOP = 40
"""Largest block maxima that a harvest keeps: enough for the tail of one job."""
N_WINDOWS = 48
"""Healthy windows that a harvest keeps for the embedding."""
MIN_BLOCKS = 200
"""Machine-blocks below which thresholds are not learnt but the defaults kept."""
LEAST_THRESHOLDS = {Aspect.LEVEL: 1.5, Aspect.CHANGE: 1.5, Aspect.ROUGHNESS: 1.5, Aspect.GAPS: 6.0, Aspect.STUCK: 6.0}
"""No threshold is learnt below these: gaps and repeats must fill six tenths of a window."""
SAFETY = 1.0
"""Thresholds lie this many times as high as the extrapolated tail."""
N_INDEPENDENT = 2
"""Aspects and lengths of one metric that may raise an alarm independently: the rest overlap."""
TAIL_SHARE = 0.02
N_COMPONENTS = 3
MIN_OFFSET_JOBS = 2
MIN_WINDOWS = 25 * FILTER_POINTS
"""Windows below which no embedding is learnt: plain means are used."""


@dataclass(frozen=True)
class Harvest:
    """What one healthy job says about one metric.

    `tops` maps `aspect|seconds|host` (host: `first` or `other`) to the largest block maxima, largest first; `blocks` to how
    many blocks there were. `offsets` is each machine's usual difference as a share of the metric's level.
    """

    job_id: str
    metric: str
    unit: str | None
    job_days: float
    tops: Mapping[str, tuple[float, ...]]
    blocks: Mapping[str, int]
    offsets: Mapping[str, float]
    windows: tuple[tuple[float, ...], ...]


def harvest_job(
    job_id: str, series: Iterable[Series], roles: Mapping[str, str], first_host: str | None, seed: int
) -> list[Harvest]:
    """Harvests of a successful job, one a metric and role; metrics with fewer than three peers give none."""
    return [_harvest(job_id, table, first_host, seed) for table in tables_of(series, roles) if len(table.members) > MIN_PEERS]


def _harvest(job_id: str, table: MetricTable, first_host: str | None, seed: int) -> Harvest:
    evidence = measure(table.values, table.period_s, table.unit)
    tops, blocks = _block_maxima(evidence, np.array([node == first_host for node, _ in table.members]))
    days = table.values.shape[1] * table.period_s / 86400
    return Harvest(job_id, table.metric, table.unit, days, tops, blocks, _offsets_of(table), _windows_of(job_id, table, seed))


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


def _offsets_of(table: MetricTable) -> dict[str, float]:
    """Each member's median difference to its peers over the job, as a share of the metric's median size."""
    known = np.abs(table.values[np.isfinite(table.values)])
    size = float(np.median(known)) if len(known) else 0.0
    if size == 0.0:
        return {}
    away = table.values - others_median(table.values)
    return {
        node if device is None else f"{node}|{device}": float(np.median(own[np.isfinite(own)])) / size
        for (node, device), own in zip(table.members, away, strict=True)
        if np.isfinite(own).any()
    }


def _windows_of(job_id: str, table: MetricTable, seed: int) -> tuple[tuple[float, ...], ...]:
    """A few windows of differences to the peers, in units of the peers' spread, drawn by seed and job."""
    values, n_points = table.values, table.values.shape[1]
    floor = floor_of(values, table.unit)
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


@dataclass(frozen=True)
class Wanted:
    """What training is asked for: false alarms that all metrics together may give in a job-day, and the card's facts."""

    false_alarms_per_job_day: float = 1 / 30
    n_metrics: int = 12
    seed: int = 0
    data_from_at: str | None = None
    data_to_at: str | None = None
    table_versions: Mapping[str, int] | None = None
    calibration_jobs: frozenset[str] | None = None
    """Jobs to hold out, where somebody has split them already; by the hash of their id if None."""


def fit_metric(harvests: Sequence[Harvest], wanted: Wanted, priority: int = 0) -> MachineModel:
    """The model of one metric from the harvests of its healthy jobs, in any order.

    Jobs in which a machine stands out beyond the default thresholds twice over are no healthy evidence: they are left out
    and named. With fewer than MIN_BLOCKS machine-blocks to calibrate on, thresholds stay the defaults, raised where
    the healthy jobs themselves came near them, and the model's method says so.
    """
    ordered = sorted(harvests, key=lambda h: (h.job_id, h.metric, sorted(h.tops.items())))
    excluded = {h.job_id for h in ordered if _stands_out(h)}
    healthy = [h for h in ordered if h.job_id not in excluded]
    chosen = wanted.calibration_jobs
    apart = {h.job_id for h in healthy if (is_held_out(h.job_id) if chosen is None else h.job_id in chosen)}
    held_out = [h for h in healthy if h.job_id in apart]
    training = [h for h in healthy if h.job_id not in apart]
    if not held_out or not training:
        held_out, training = healthy, healthy
    thresholds, first, is_calibrated = _thresholds(held_out, wanted)
    weights = _weights(training)
    first_harvest = ordered[0]
    return MachineModel(
        metric=first_harvest.metric, unit=first_harvest.unit, method=CALIBRATED if is_calibrated else FALLBACK,
        embedding="pca" if weights else "none", weights=weights, thresholds=thresholds, first_host_thresholds=first,
        offsets=_usual_offsets(training), priority=priority, false_alarms_per_job_day=round(wanted.false_alarms_per_job_day, 6),
        n_job_days=round(sum(h.job_days for h in held_out), 6), training_jobs=_jobs(training), calibration_jobs=_jobs(held_out),
        excluded_jobs=tuple(sorted(excluded)), data_from_at=wanted.data_from_at, data_to_at=wanted.data_to_at,
        table_versions=dict(wanted.table_versions or {}), seed=wanted.seed,
    )  # fmt: skip


def is_held_out(job_id: str) -> bool:
    """Whether a job calibrates instead of training: by the hash of its id, so that it stays on its side for ever."""
    return hashlib.sha256(job_id.encode()).digest()[0] % 2 == 1


def _jobs(harvests: Sequence[Harvest]) -> tuple[str, ...]:
    return tuple(sorted({h.job_id for h in harvests}))


def _stands_out(harvest: Harvest) -> bool:
    return any(
        top and top[0] > 2 * DEFAULT_THRESHOLDS[Aspect(key.split("|")[0])] and key.split("|")[0] in (Aspect.LEVEL, Aspect.CHANGE)
        for key, top in harvest.tops.items()
    )


def _thresholds(held_out: Sequence[Harvest], wanted: Wanted) -> tuple[dict[str, float], dict[str, float], bool]:
    """Thresholds of usual machines and of rank 0's hosts, and whether there was enough to learn them from."""
    usual: dict[str, float] = {}
    first: dict[str, float] = {}
    calibrated = []
    for aspect in Aspect:
        for length_s in LENGTHS_S:
            key = f"{aspect}|{length_s:g}"
            for host, into in (("other", usual), ("first", first)):
                tail = _tail(held_out, f"{key}|{host}", wanted)
                if tail is None:
                    continue
                value, largest, n_blocks = tail
                whole = _tail(held_out, f"{key}|{host}|whole", wanted)
                value = min(value, whole[0]) if whole else value
                enough = n_blocks >= MIN_BLOCKS
                least = LEAST_THRESHOLDS[aspect] if enough else DEFAULT_THRESHOLDS[aspect]
                if host == "other":
                    calibrated.append(enough)
                elif not enough:
                    continue
                into[key] = round(float(max(min(SAFETY * value, _ceiling(aspect, largest)), least)), 4)
    return usual, first, any(calibrated)


def _ceiling(aspect: Aspect, largest: float) -> float:
    """Shares end at one, so their tails cannot be extrapolated: half way from the largest seen to the greatest possible."""
    if aspect not in (Aspect.GAPS, Aspect.STUCK):
        return np.inf
    return max(DEFAULT_THRESHOLDS[aspect], 1.05 * largest) if largest >= DEFAULT_THRESHOLDS[aspect] else DEFAULT_THRESHOLDS[aspect]


def _tail(held_out: Sequence[Harvest], key: str, wanted: Wanted) -> tuple[float, float, int] | None:
    """The difference that healthy jobs exceed at the wanted rate, by an exponential tail; the largest seen; the number of blocks.

    The rate is shared among metrics, aspects and lengths. Mean excess over the TAIL_SHARE quantile gives the tail's
    scale (Pickands, Balkema and de Haan, with shape zero).
    """
    own = [h for h in held_out if key in h.blocks]
    n_blocks = sum(h.blocks[key] for h in own)
    days = sum(h.job_days for h in own)
    if n_blocks == 0 or days == 0:
        return None
    tops = np.sort(np.concatenate([np.array(h.tops[key]) for h in own]))[::-1]
    n_tail = min(max(round(TAIL_SHARE * n_blocks), 10), len(tops) - 1)
    if n_tail < 1:
        return float(tops[0]), float(tops[0]), n_blocks
    start = float(tops[n_tail])
    scale = float(np.mean(tops[:n_tail] - start))
    share = wanted.false_alarms_per_job_day / (wanted.n_metrics * N_INDEPENDENT)
    extrapolated = start + scale * max(np.log(n_tail / days / share), 0.0)
    return max(extrapolated, float(tops[0])), float(tops[0]), n_blocks


def _weights(training: Sequence[Harvest]) -> tuple[float, ...]:
    windows = [window for h in training for window in h.windows]
    if len(windows) < MIN_WINDOWS:
        return ()
    embedding = PcaEmbedding(N_COMPONENTS).fit(np.array(windows))
    return tuple(embedding.level_weights().round(9).tolist())


def _usual_offsets(training: Sequence[Harvest]) -> dict[str, float]:
    """Median offset of machines seen in several jobs, shrunk towards zero the fewer the jobs."""
    seen: dict[str, list[float]] = {}
    for harvest in training:
        for key, value in harvest.offsets.items():
            seen.setdefault(key, []).append(value)
    return {
        key: round(float(np.median(values)) * len(values) / (len(values) + 1), 9)
        for key, values in sorted(seen.items())
        if len(values) >= MIN_OFFSET_JOBS
    }
