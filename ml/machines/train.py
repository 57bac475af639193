"""Learning from healthy jobs: one metric's model from the harvests of many (see `harvest`).

Jobs are split by the hash of their id: half of them give the embedding, the companion and the machines' usual offsets, the
other half, held out, the thresholds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ml.machines.embedding import PcaEmbedding
from ml.machines.evidence import Aspect
from ml.machines.harvest import Harvest
from ml.machines.joint import Companion
from ml.machines.model import CALIBRATED, DEFAULT_THRESHOLDS, FALLBACK, MachineModel
from ml.machines.windows import FILTER_POINTS, LADDER_S

Array = np.ndarray

LENGTHS_S = tuple(sorted({step * 2**n for step in LADDER_S for n in range(6) if step * 2**n <= 1920} | {LADDER_S[-1]}))
"""Every window length that `windows.cut` gives on the ladder."""
MIN_BLOCKS = 200
"""Machine-blocks below which thresholds are not learnt but the defaults kept."""
LEAST_THRESHOLDS = {
    Aspect.LEVEL: 3.0, Aspect.CHANGE: 3.0, Aspect.ROUGHNESS: 3.0, Aspect.GAPS: 6.0, Aspect.STUCK: 6.0, Aspect.UNEXPLAINED: 4.0,
    Aspect.ERRATIC: 4.0,
}  # fmt: skip
"""No threshold is learnt below these: gaps and repeats must fill six tenths of a window."""
SAFETY = 1.2
"""Thresholds lie this many times as high as the extrapolated tail: what other hours and other halves of the machines exceeded
it by, where calibration and trial changed places among the healthy jobs (bench/machines.md)."""
MOST_EXCLUDED = 0.5
"""When machines of more than this share of the healthy jobs stand out, standing out is usual for the metric."""
N_INDEPENDENT = 3
"""Aspects and lengths of one metric that may raise an alarm independently: the rest overlap."""
TAIL_SHARE = 0.02
N_COMPONENTS = 3
MIN_OFFSET_JOBS = 2
MIN_WINDOWS = 25 * FILTER_POINTS
"""Windows below which no embedding is learnt: plain means are used."""


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


def fit_metric(harvests: Sequence[Harvest], wanted: Wanted, priority: int = 0, companion: Companion | None = None) -> MachineModel:
    """The model of one metric from the harvests of its healthy jobs, in any order.

    Jobs in which a machine stands out beyond the default thresholds twice over are no healthy evidence: they are left out
    and named, unless that is more than half of them: then the metric is one in which healthy machines differ. With fewer
    than MIN_BLOCKS machine-blocks to calibrate on, thresholds stay the defaults, raised where the healthy jobs themselves
    came near them, and the model's method says so. A `companion` is kept only with thresholds of its own.
    """
    ordered = sorted(harvests, key=lambda h: (h.job_id, h.metric, sorted(h.tops.items())))
    excluded = {h.job_id for h in ordered if h.is_whole and _stands_out(h)}
    if len(excluded) > MOST_EXCLUDED * len({h.job_id for h in ordered}):
        excluded = set()
    healthy = [h for h in ordered if h.job_id not in excluded]
    chosen = wanted.calibration_jobs
    apart = {h.job_id for h in healthy if (is_held_out(h.job_id) if chosen is None else h.job_id in chosen)}
    held_out = [h for h in healthy if h.job_id in apart]
    training = [h for h in healthy if h.job_id not in apart]
    if not held_out or not training:
        held_out, training = healthy, healthy
    thresholds, first, is_calibrated = _thresholds(held_out, wanted)
    weights = _weights(training)
    is_known = companion is not None and any(key.startswith(Aspect.UNEXPLAINED) for key in thresholds)
    first_harvest = ordered[0]
    return MachineModel(
        metric=first_harvest.metric, unit=first_harvest.unit, method=CALIBRATED if is_calibrated else FALLBACK,
        embedding="pca" if weights else "none", weights=weights, thresholds=thresholds, first_host_thresholds=first,
        offsets=_usual_offsets(training), priority=priority, false_alarms_per_job_day=round(wanted.false_alarms_per_job_day, 6),
        n_job_days=round(sum(h.job_days for h in held_out if h.is_whole), 6),
        training_jobs=_jobs(training), calibration_jobs=_jobs(held_out),
        excluded_jobs=tuple(sorted(excluded)), data_from_at=wanted.data_from_at, data_to_at=wanted.data_to_at,
        table_versions=dict(wanted.table_versions or {}), seed=wanted.seed,
        companion=json.loads(json.dumps(asdict(companion))) if companion is not None and is_known else None,
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
                if aspect in (Aspect.UNEXPLAINED, Aspect.ERRATIC) and not enough:
                    continue
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
