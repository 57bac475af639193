"""Scores of one job: which machine stands out, in which metric, when, how long, and what its peers show meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ml.machines.evidence import Aspect, Differences, MetricEvidence, measure
from ml.machines.model import MachineModel, fallback, misfit
from ml.machines.peers import MIN_PEERS, others_median
from ml.machines.series import MetricTable, Series, tables_of

Array = np.ndarray

STANDS_OUT = 0.5
"""Scores from here on name a machine."""
MOST_MACHINES = 0.25
"""More machines than this share (but always one) at once are no odd ones."""
NEARLY_ALL = 0.6
MOST_OTHERS = 5
"""Further metrics that are told of one machine: a machine that is gone differs in all of them."""


@dataclass(frozen=True)
class MachineScore:
    """One machine in one metric of one job; `ratio` is its difference in units of the threshold."""

    node: str
    device: str | None
    metric: str
    unit: str | None
    aspect: str
    ratio: float
    score: float
    window_start_us: int
    window_end_us: int
    continuity_s: float
    value: float | None
    peer_low: float | None
    peer_high: float | None
    n_peers: int
    model_id: str
    method: str
    is_shared: bool = False
    is_global: bool = False


@dataclass(frozen=True)
class JobScores:
    """`rows` has each machine's strongest metric first, then the other metrics in which it stands out.

    `usual` is, by machine and metric, the median difference to the peers in units of their spread: what drift is made
    of. `remarks` say what was not compared or not scored, and why.
    """

    rows: tuple[MachineScore, ...]
    usual: Mapping[str, Mapping[str, float]]
    remarks: tuple[str, ...]


def score_job(
    series: Iterable[Series], roles: Mapping[str, str], models: Mapping[str, MachineModel], first_host: str | None = None
) -> JobScores:
    """Score all machines of a job.

    `roles` gives each machine's role: machines are compared inside it. `first_host` is the host of rank 0, which has
    thresholds of its own. Metrics without a model, or whose model does not fit, are scored with default thresholds.
    """
    compared = compare(series, roles, models, first_host)
    rows = ranked(compared.rows, {metric: model.priority for metric, model in models.items()})
    remarks = compared.remarks if rows else (*compared.remarks, "no metric could be compared")
    return replace(compared, rows=rows, remarks=remarks)


def compare(
    series: Iterable[Series], roles: Mapping[str, str], models: Mapping[str, MachineModel], first_host: str | None = None
) -> JobScores:
    """Score machines in each metric by itself: a row a machine (or device) and metric, not ranked yet.

    Metrics are independent here, so that a large job's metrics can be compared apart.
    """
    found: list[MachineScore] = []
    usual: dict[str, dict[str, float]] = {}
    remarks: list[str] = []
    for table in tables_of(series, roles):
        remarks += table.remarks
        if len(table.members) <= MIN_PEERS:
            remarks.append(f"{table.metric}: {len(table.members)} machines of role {table.role or 'unknown'}, too few to compare")
            continue
        model = _model_for(table, models, remarks)
        evidence = measure(
            table.values, table.period_s, table.unit,
            weights=np.array(model.weights) if model.weights else None, offsets=_offsets(table, model),
        )  # fmt: skip
        found += _metric_scores(table, evidence, model, first_host)
        _note_usual(table, evidence, usual)
    return JobScores(tuple(found), usual, tuple(sorted(set(remarks))))


def _model_for(table: MetricTable, models: Mapping[str, MachineModel], remarks: list[str]) -> MachineModel:
    model = models.get(table.metric)
    if model is None:
        return fallback(table.metric, table.unit)
    reason = misfit(model, table.metric, table.unit)
    if reason is None:
        return model
    remarks.append(f"model {model.model_id} of {table.metric} refused: {reason}; default thresholds used")
    return fallback(table.metric, table.unit)


def _offsets(table: MetricTable, model: MachineModel) -> Array | None:
    """What each member is known to differ by, in the metric's unit."""
    if not model.offsets:
        return None
    known = np.abs(table.values[np.isfinite(table.values)])
    size = float(np.median(known)) if len(known) else 0.0
    keys = [node if device is None else f"{node}|{device}" for node, device in table.members]
    return np.array([model.offsets.get(key, np.nan) for key in keys]) * size


def _note_usual(table: MetricTable, evidence: MetricEvidence, usual: dict[str, dict[str, float]]) -> None:
    """Median difference of each machine to its peers, in units of the spread between them; the largest of its devices."""
    away = usual_differences(evidence.level, evidence.floor)
    for (node, _), value in zip(table.members, away, strict=True):
        if np.isfinite(value):
            own = usual.setdefault(node, {})
            own[table.metric] = max(own.get(table.metric, 0.0), float(value), key=abs)


def usual_differences(level: Array, floor: float) -> Array:
    """Per machine its median difference to the peers over the job, in units of the others' spread. NaN if unknown."""
    away = level - others_median(level)
    known = np.isfinite(away)
    ordered = np.sort(away, axis=1)
    count = known.sum(axis=1)
    rows = np.arange(len(away))
    middle = np.where(count > 0, ordered[rows, (count // 2).clip(max=away.shape[1] - 1)], np.nan)
    spread = 1.4826 * others_median(np.abs(middle)[:, None])[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return middle / np.fmax(spread, floor) if floor > 0 else np.full(len(away), np.nan)


def ratios(evidence: MetricEvidence, model: MachineModel, is_first: Array) -> list[tuple[Differences, Array]]:
    """Each difference divided by its threshold: magnitudes, machines × bins; NaN counts as zero."""
    result = []
    for each in evidence.differences:
        plain = model.threshold(each.aspect, each.length_s)
        first = model.threshold(each.aspect, each.length_s, is_first_host=True)
        limit = np.where(is_first, first, plain)[:, None]
        result.append((each, np.nan_to_num(np.abs(each.values)) / limit))
    return result


def _metric_scores(table: MetricTable, evidence: MetricEvidence, model: MachineModel, first_host: str | None) -> list[MachineScore]:
    is_first = np.array([node == first_host for node, _ in table.members])
    measured = ratios(evidence, model, is_first)
    best = np.array([ratio.max(axis=1) for _, ratio in measured])
    return [_one(table, evidence, model, measured, int(best[:, row].argmax()), row) for row in range(len(table.members))]


def _one(
    table: MetricTable, evidence: MetricEvidence, model: MachineModel, measured: Sequence[tuple[Differences, Array]],
    strongest: int, row: int,
) -> MachineScore:  # fmt: skip
    """A machine's strongest window: when it began and ended, what it showed, and how many others did the same then."""
    each, ratio = measured[strongest]
    peak = float(ratio[row].max())
    bin_s = evidence.windows.bin_s
    covered = _covered(evidence, measured, row) if peak >= 1 else np.zeros(ratio.shape[1], dtype=bool)
    if peak < 1:
        top = int(ratio[row].argmax())
        covered[max(top + 1 - max(round(each.length_s / bin_s), 1), 0) : top + 1] = True
    else:
        covered = _since_onset(covered, evidence.shown(each.aspect), row)
    bins = np.flatnonzero(covered)
    begin, last = int(bins[0]), int(bins[-1])
    longest_s = _longest_run(covered) * bin_s if peak >= 1 else 0.0
    also = int((ratio[:, begin : last + 1].max(axis=1) >= max(min(peak, 1.0) * 0.5, 1e-9)).sum())
    n_members = int(np.isfinite(evidence.level).any(axis=1).sum())
    value, low, high = _band(evidence.shown(each.aspect)[:, covered], row)
    start_us = table.start_us + round(begin * bin_s * 1e6)
    end_us = table.start_us + round((last + 1) * bin_s * 1e6)
    node, device = table.members[row]
    shared = peak >= 1 and also > max(1, int(MOST_MACHINES * n_members))
    score = _score(peak)
    return MachineScore(
        node, device, table.metric, table.unit, each.aspect.value, peak, min(score, 0.4) if shared else score, start_us, end_us,
        longest_s, value, low, high, max(n_members - 1, 0), model.model_id, model.method, shared,
        shared and also >= NEARLY_ALL * n_members,
    )  # fmt: skip


def _covered(evidence: MetricEvidence, measured: Sequence[tuple[Differences, Array]], row: int) -> Array:
    """Bins that lie in any window in which the machine stands out."""
    covered = np.zeros(evidence.level.shape[1], dtype=bool)
    for each, ratio in measured:
        width = max(round(each.length_s / evidence.windows.bin_s), 1)
        for last in np.flatnonzero(ratio[row] >= 1):
            covered[max(last + 1 - width, 0) : last + 1] = True
    return covered


def _since_onset(covered: Array, shown: Array, row: int) -> Array:
    """The covered bins from the first one on in which half of the typical difference is there: windows begin earlier."""
    away = (shown - others_median(shown))[row]
    typical = away[covered & np.isfinite(away)]
    if not len(typical) or (middle := float(np.median(typical))) == 0.0:
        return covered
    there = np.flatnonzero(covered & (np.nan_to_num(away / middle) >= 0.5))
    begun = covered.copy()
    begun[: there[0]] = False
    return begun


def _longest_run(covered: Array) -> int:
    """Length of the longest stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], covered.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _band(shown: Array, row: int) -> tuple[float | None, float | None, float | None]:
    """The machine's mean in a window, and the lowest and highest of its peers' (5th and 95th percentile if many)."""
    known = np.isfinite(shown)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(known, shown, 0.0).sum(axis=1) / known.sum(axis=1)
    peers = np.delete(means, row)
    peers = peers[np.isfinite(peers)]
    value = float(means[row]) if np.isfinite(means[row]) else None
    if not len(peers):
        return value, None, None
    low, high = np.quantile(peers, (0.05, 0.95)) if len(peers) >= 20 else (peers.min(), peers.max())
    return value, float(low), float(high)


def _score(ratio: float) -> float:
    """Score of a difference in units of its threshold: 0.5 at the threshold, 0.75 at twice, towards 0.97.

    >>> _score(1.0), _score(0.5), _score(2.0)
    (0.5, 0.125, 0.75)
    """
    return 0.5 * ratio**2 if ratio < 1 else min(1 - 0.5 / ratio, 0.97)


def ranked(found: Iterable[MachineScore], priorities: Mapping[str, int]) -> tuple[MachineScore, ...]:
    """Per machine its strongest metric, then its other metrics that stand out; strongest machines first.

    Equals are ordered by the metrics' priority (see `order`), then by name.
    """

    def rank(row: MachineScore) -> tuple[float, int, str, str]:
        return (-row.score, priorities.get(row.metric, 0), row.metric, row.device or "")

    by_node: dict[str, list[MachineScore]] = {}
    for row in found:
        by_node.setdefault(row.node, []).append(row)
    kept = []
    for own in by_node.values():
        own.sort(key=rank)
        own[0] = _with_support(own)
        others = [row for row in own[1:] if row.score >= STANDS_OUT or (row.is_shared and row.ratio >= 1)]
        kept.append([own[0], *others[:MOST_OTHERS]])
    kept.sort(key=lambda own: (*rank(own[0]), own[0].node))
    return tuple(row for own in kept for row in own)


def _with_support(own: Sequence[MachineScore]) -> MachineScore:
    """The strongest metric, raised a little when others say the same independently."""
    n_metrics = len({row.metric for row in own if row.score >= STANDS_OUT})
    if own[0].score < STANDS_OUT or n_metrics < 2:
        return own[0]
    return replace(own[0], score=min(1 - (1 - own[0].score) / min(n_metrics, 4) ** 0.5, 0.98))


__all__ = ["STANDS_OUT", "Aspect", "JobScores", "MachineScore", "ratios", "score_job", "usual_differences"]
