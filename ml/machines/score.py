"""Scores of one job: which machine stands out, in which metric, when, how long, and what its peers show meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ml.machines.evidence import Aspect, Differences, MetricEvidence, measure
from ml.machines.joint import Companion, features, unexplained
from ml.machines.lasting import in_thresholds
from ml.machines.levels import Levels, by_role, levels_of
from ml.machines.medians import MIN_PEERS
from ml.machines.model import MachineModel, fallback, misfit
from ml.machines.peers import bands_of, median_of_known, others_median
from ml.machines.ranking import MachineScore, ranked
from ml.machines.series import MetricTable, Series, tables_of

Array = np.ndarray

MOST_MACHINES = 0.25
"""More machines than this share (but always one) at once are no odd ones."""
NEARLY_ALL = 0.6
NEAR = 0.5
"""Ratios from here on are told with the window in which they were reached."""


@dataclass(frozen=True)
class JobScores:
    """`rows` has each machine's strongest metric first, then the other metrics in which it stands out.

    `usual` is, by machine and metric, the median difference to the peers in units of their spread: what drift is made
    of. `remarks` say what was not compared or not scored, and why. `levels` are the metrics' levels, to be looked at together.
    """

    rows: tuple[MachineScore, ...]
    usual: Mapping[str, Mapping[str, float]]
    remarks: tuple[str, ...]
    levels: tuple[Levels, ...] = ()


def score_job(
    series: Iterable[Series], roles: Mapping[str, str], models: Mapping[str, MachineModel], first_host: str | None = None
) -> JobScores:
    """Score all machines of a job.

    `roles` gives each machine's role: machines are compared inside it. `first_host` is the host of rank 0, which has
    thresholds of its own. Metrics without a model, or whose model does not fit, are scored with default thresholds.
    """
    compared = compare(series, roles, models, first_host)
    found = (*compared.rows, *compare_together(compared.levels, models, first_host))
    rows = ranked(found, {metric: model.priority for metric, model in models.items()})
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
    levels: list[Levels] = []
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
        levels.append(levels_of(table, evidence))
    return JobScores(tuple(found), usual, tuple(sorted(set(remarks))), tuple(levels))


def compare_together(
    levels: Sequence[Levels], models: Mapping[str, MachineModel], first_host: str | None = None
) -> list[MachineScore]:
    """Score machines in what each metric's companion leaves unexplained: a row a machine and metric that stands out.

    Metrics without a fitting companion, or in a job that lacks one of its inputs, give none.
    """
    found: list[MachineScore] = []
    for job in by_role(levels):
        known = {metric: _companion_of(metric, unit, models) for metric, unit in zip(job.metrics, job.units, strict=True)}
        usable = {m: c for m, c in known.items() if c is not None and set(c.inputs) <= set(job.metrics)}
        if not usable:
            continue
        made = features(job)
        for metric, companion in usable.items():
            evidence = unexplained(job, made, metric, companion)
            members = tuple((node, None) for node in job.nodes)
            unit = job.units[job.metrics.index(metric)]
            table = MetricTable(metric, unit, job.role, members, job.start_us, job.bin_s, evidence.level)
            found += [row for row in _metric_scores(table, evidence, models[metric], first_host) if row.ratio >= 1]
    return found


def _companion_of(metric: str, unit: str | None, models: Mapping[str, MachineModel]) -> Companion | None:
    model = models.get(metric)
    if model is None or model.companion is None or misfit(model, metric, unit) is not None:
        return None
    return Companion.from_plain(model.companion)


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
    middle = median_of_known(away)
    spread = 1.4826 * others_median(np.abs(middle)[:, None])[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return middle / np.fmax(spread, floor) if floor > 0 else np.full(len(away), np.nan)


def ratios(evidence: MetricEvidence, model: MachineModel, is_first: Array) -> list[tuple[Differences, Array]]:
    """Each difference divided by its threshold: magnitudes, machines × bins; NaN counts as zero."""
    result = []
    for each in evidence.differences:
        plain = model.threshold(each.aspect, each.length_s)
        first = model.threshold(each.aspect, each.length_s, is_first_host=True)
        limits = np.where(is_first, first, plain)
        result.append((each, in_thresholds(np.ascontiguousarray(each.values.T), limits).T))
    return result


def _metric_scores(table: MetricTable, evidence: MetricEvidence, model: MachineModel, first_host: str | None) -> list[MachineScore]:
    is_first = np.array([node == first_host for node, _ in table.members])
    measured = ratios(evidence, model, is_first)
    best = np.array([ratio.max(axis=1) for _, ratio in measured])
    strongest, peaks = best.argmax(axis=0), best.max(axis=0)
    model_id = model.model_id
    rows = np.flatnonzero(peaks >= NEAR).tolist()
    telling = {measured[strongest[row]][0].aspect for row in rows if peaks[row] >= 1}
    away = {aspect: (own := evidence.shown(aspect)) - others_median(own) for aspect in telling}
    found = [_one(table, evidence, model, model_id, measured, int(strongest[row]), row, away) for row in rows]
    return found + _far_from_it(table, evidence, model, model_id, [each.aspect for each, _ in measured], strongest, peaks)


def _far_from_it(
    table: MetricTable, evidence: MetricEvidence, model: MachineModel, model_id: str, aspects: Sequence[Aspect],
    strongest: Array, peaks: Array,
) -> list[MachineScore]:  # fmt: skip
    """Machines that are far from standing out, told of the job as a whole."""
    found = []
    bands: dict[Aspect, list[list[float | None]]] = {}
    n_peers = max(int(np.isfinite(evidence.level).any(axis=1).sum()) - 1, 0)
    end_us = table.start_us + round(table.values.shape[1] * table.period_s * 1e6)
    for row in np.flatnonzero(peaks < NEAR).tolist():
        aspect = aspects[int(strongest[row])]
        if aspect not in bands:
            seen = bands_of(evidence.shown(aspect))
            bands[aspect] = [[value if value == value else None for value in own.tolist()] for own in seen]
        value, low, high = (own[row] for own in bands[aspect])
        node, device = table.members[row]
        peak = float(peaks[row])
        found.append(MachineScore(
            node, device, table.metric, table.unit, aspect.value, peak, _score(peak), table.start_us, end_us, 0.0, value, low, high,
            n_peers, model_id, model.method,
        ))  # fmt: skip
    return found


def _one(
    table: MetricTable, evidence: MetricEvidence, model: MachineModel, model_id: str,
    measured: Sequence[tuple[Differences, Array]], strongest: int, row: int, away: Mapping[Aspect, Array],
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
        covered = _since_onset(covered, away[each.aspect][row])
    bins = np.flatnonzero(covered)
    begin, last = int(bins[0]), int(bins[-1])
    longest_s = _longest_run(covered) * bin_s if peak >= 1 else 0.0
    also = int((ratio[:, begin : last + 1].max(axis=1) >= max(min(peak, 1.0) * 0.5, 1e-9)).sum())
    n_members = int(np.isfinite(evidence.level).any(axis=1).sum())
    seen = bands_of(evidence.shown(each.aspect)[:, covered])
    value, low, high = (float(own[row]) if np.isfinite(own[row]) else None for own in seen)
    start_us = table.start_us + round(begin * bin_s * 1e6)
    end_us = table.start_us + round((last + 1) * bin_s * 1e6)
    node, device = table.members[row]
    shared = peak >= 1 and also > max(1, int(MOST_MACHINES * n_members))
    score = _score(peak)
    return MachineScore(
        node, device, table.metric, table.unit, each.aspect.value, peak, min(score, 0.4) if shared else score, start_us, end_us,
        longest_s, value, low, high, max(n_members - 1, 0), model_id, model.method, shared,
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


def _since_onset(covered: Array, away: Array) -> Array:
    """The covered bins from the first one on in which half of the typical difference is there: windows begin earlier."""
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


def _score(ratio: float) -> float:
    """Score of a difference in units of its threshold: 0.5 at the threshold, 0.75 at twice, towards 0.97.

    >>> _score(1.0), _score(0.5), _score(2.0)
    (0.5, 0.125, 0.75)
    """
    return 0.5 * ratio**2 if ratio < 1 else min(1 - 0.5 / ratio, 0.97)
