"""Scores of one job: which machine stands out, in which metric, when, how long, and what its peers show meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ml.machines.evidence import Aspect, Differences, MetricEvidence, measure
from ml.machines.joint import Companion, features, unexplained
from ml.machines.lasting import in_thresholds, largest
from ml.machines.levels import Levels, by_role, levels_of
from ml.machines.medians import MIN_PEERS, median_of_known, others_median_turned, turned
from ml.machines.model import MachineModel, fallback, misfit
from ml.machines.peers import bands_of, others_median
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
            table.lines, table.period_s, table.unit,
            weights=np.array(model.weights) if model.weights else None, offsets=_offsets(table, model),
        )  # fmt: skip
        if not evidence.differences:
            remarks.append(f"{table.metric}: {table.n_points} points {table.period_s:g} s apart, too few to compare")
            continue
        judged = _judged(table, evidence, model, first_host)
        found += [_one(judged, row) for row in np.flatnonzero(judged.peaks >= NEAR).tolist()]
        found += _far_from_it(judged)
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
            judged = _judged(table, evidence, models[metric], first_host)
            found += [_one(judged, row) for row in np.flatnonzero(judged.peaks >= 1).tolist()]
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
    values = table.matrix()
    known = np.abs(values[np.isfinite(values)])
    size = float(np.median(known)) if len(known) else 0.0
    keys = [node if device is None else f"{node}|{device}" for node, device in table.members]
    return np.array([model.offsets.get(key, np.nan) for key in keys]) * size


def _note_usual(table: MetricTable, evidence: MetricEvidence, usual: dict[str, dict[str, float]]) -> None:
    """Median difference of each machine to its peers, in units of the spread between them; the largest of its devices."""
    away = usual_differences(evidence.level, evidence.floor)
    for (node, _), value in zip(table.members, away.tolist(), strict=True):
        if not math.isfinite(value):
            continue
        own = usual.setdefault(node, {})
        if abs(value) > abs(own.get(table.metric, 0.0)) or table.metric not in own:
            own[table.metric] = value


def usual_differences(level: Array, floor: float) -> Array:
    """Per machine its median difference to the peers over the job, in units of the others' spread. NaN if unknown."""
    lines = turned(level)
    middle = median_of_known(turned(lines - others_median_turned(lines)))
    spread = 1.4826 * others_median(np.abs(middle)[:, None])[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return middle / np.fmax(spread, floor) if floor > 0 else np.full(len(middle), np.nan)


def ratios(evidence: MetricEvidence, model: MachineModel, is_first: Array) -> list[tuple[Differences, Array]]:
    """Each difference divided by its threshold: magnitudes, machines × bins; NaN counts as zero."""
    return [(each, _ratio(each, _limits(each, model, is_first))) for each in evidence.differences]


def _limits(each: Differences, model: MachineModel, is_first: Array) -> Array:
    """The threshold of each machine."""
    usual = model.threshold(each.aspect, each.length_s)
    return np.where(is_first, model.threshold(each.aspect, each.length_s, is_first_host=True), usual)


def _ratio(each: Differences, limits: Array) -> Array:
    return in_thresholds(np.ascontiguousarray(each.values.T), limits).T


@dataclass(frozen=True)
class _Judged:
    """What is told of one metric's machines. `peaks` is each one's largest ratio, `strongest` the number of the difference that
    reached it; `ratio` and `away` are made for the few differences and aspects of which a machine is told in detail."""

    table: MetricTable
    evidence: MetricEvidence
    model: MachineModel
    model_id: str
    limits: tuple[Array, ...]
    strongest: Array
    peaks: Array
    n_members: int
    ratio: Mapping[int, Array]
    away: Mapping[Aspect, Array]


def _judged(table: MetricTable, evidence: MetricEvidence, model: MachineModel, first_host: str | None) -> _Judged:
    is_first = np.array([node == first_host for node, _ in table.members])
    limits = tuple(_limits(each, model, is_first) for each in evidence.differences)
    best = np.array([
        largest(np.ascontiguousarray(each.values.T)) / limit for each, limit in zip(evidence.differences, limits, strict=True)
    ])  # fmt: skip
    strongest, peaks = best.argmax(axis=0), best.max(axis=0)
    aspects = [each.aspect for each in evidence.differences]
    near = {int(number) for number in strongest[peaks >= NEAR]}
    telling = {aspects[number] for number in strongest[peaks >= 1]}
    return _Judged(
        table, evidence, model, model.model_id, limits, strongest, peaks,
        int(np.isfinite(evidence.level).any(axis=1).sum()),
        {number: _ratio(evidence.differences[number], limits[number]) for number in near},
        {aspect: (own := evidence.shown(aspect)) - others_median(own) for aspect in telling},
    )  # fmt: skip


def _far_from_it(judged: _Judged) -> list[MachineScore]:
    """Machines that are far from standing out, told of the job as a whole."""
    table, evidence, model = judged.table, judged.evidence, judged.model
    n_peers = max(judged.n_members - 1, 0)
    end_us = table.start_us + round(table.n_points * table.period_s * 1e6)
    metric, unit, start_us, model_id, method = table.metric, table.unit, table.start_us, judged.model_id, model.method
    found = []
    aspects = [each.aspect for each in evidence.differences]
    for aspect in sorted(set(aspects)):
        own = np.array([each is aspect for each in aspects])
        rows = np.flatnonzero(own[judged.strongest] & (judged.peaks < NEAR))
        if not len(rows):
            continue
        seen = [band[rows].tolist() for band in bands_of(evidence.shown(aspect))]
        for row, peak, *told in zip(rows.tolist(), judged.peaks[rows].tolist(), *seen, strict=True):
            node, device = table.members[row]
            value, low, high = (each if each == each else None for each in told)
            found.append(MachineScore(
                node, device, metric, unit, aspect.value, peak, _score(peak), start_us, end_us, 0.0, value, low, high, n_peers,
                model_id, method,
            ))  # fmt: skip
    return found


def _one(judged: _Judged, row: int) -> MachineScore:
    """A machine's strongest window: when it began and ended, what it showed, and how many others did the same then."""
    table, evidence = judged.table, judged.evidence
    number, peak = int(judged.strongest[row]), float(judged.peaks[row])
    each, ratio = evidence.differences[number], judged.ratio[number]
    bin_s = evidence.windows.bin_s
    if peak >= 1:
        covered = _since_onset(_covered(judged, row), judged.away[each.aspect][row])
    else:
        covered = np.zeros(ratio.shape[1], dtype=bool)
        top = int(ratio[row].argmax())
        covered[max(top + 1 - max(round(each.length_s / bin_s), 1), 0) : top + 1] = True
    bins = np.flatnonzero(covered)
    begin, last = int(bins[0]), int(bins[-1])
    longest_s = _longest_run(covered) * bin_s if peak >= 1 else 0.0
    also = int((ratio.T[begin : last + 1].max(axis=0) >= max(min(peak, 1.0) * 0.5, 1e-9)).sum())
    n_members = judged.n_members
    seen = bands_of(evidence.shown(each.aspect), covered)
    value, low, high = (float(own[row]) if np.isfinite(own[row]) else None for own in seen)
    start_us = table.start_us + round(begin * bin_s * 1e6)
    end_us = table.start_us + round((last + 1) * bin_s * 1e6)
    node, device = table.members[row]
    shared = peak >= 1 and also > max(1, int(MOST_MACHINES * n_members))
    score = _score(peak)
    return MachineScore(
        node, device, table.metric, table.unit, each.aspect.value, peak, min(score, 0.4) if shared else score, start_us, end_us,
        longest_s, value, low, high, max(n_members - 1, 0), judged.model_id, judged.model.method, shared,
        shared and also >= NEARLY_ALL * n_members,
    )  # fmt: skip


def _covered(judged: _Judged, row: int) -> Array:
    """Bins that lie in any window in which the machine stands out."""
    covered = np.zeros(judged.evidence.level.shape[1], dtype=bool)
    for each, limits in zip(judged.evidence.differences, judged.limits, strict=True):
        width = max(round(each.length_s / judged.evidence.windows.bin_s), 1)
        for last in np.flatnonzero(np.abs(each.values[row]) / limits[row] >= 1):
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
