"""The series of one job, metric by metric, made comparable: one row a machine, one role, one unit, one clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numba
import numpy as np

from ml.machines.medians import MIN_PEERS, median_of_known, others_median_turned, turned
from ml.machines.windows import Lines, required_continuity_s

Array = np.ndarray

MANY_DEVICES = 16
"""Devices a machine beyond which they are averaged: CPU cores are no peers of each other, accelerators are."""
OTHER_UNIT_FACTORS = (60.0, 100.0, 1000.0, 1024.0, 1e6, 1024.0**2, 1e9, 1024.0**3)
OTHER_UNIT_TOLERANCE = 0.05
SCALE_POINTS = 128


@dataclass(frozen=True)
class Series:
    """One metric of one machine or device: values on the metric's grid."""

    node: str
    device: str | None
    metric: str
    unit: str | None
    start_us: int
    period_s: float
    values: Array


@dataclass(frozen=True)
class MetricTable:
    """One metric of machines of one role: `lines` has the grid points of each member. `remarks` say what was left out and why."""

    metric: str
    unit: str | None
    role: str
    members: tuple[tuple[str, str | None], ...]
    start_us: int
    period_s: float
    lines: Lines
    remarks: tuple[str, ...] = ()

    @property
    def n_points(self) -> int:
        """Points of the grid."""
        return len(self.lines[0])

    def matrix(self) -> Array:
        """The lines as members × grid points; a copy of them all unless they are one already."""
        return np.asarray(self.lines)


def tables_of(series: Iterable[Series], roles: Mapping[str, str]) -> list[MetricTable]:
    """Tables to compare in: by metric and role, sorted. Machines without a known role share the role ``""``."""
    grouped: dict[tuple[str, str], list[Series]] = {}
    for each in series:
        grouped.setdefault((each.metric, roles.get(each.node, "")), []).append(each)
    return [_table(metric, role, members) for (metric, role), members in sorted(grouped.items(), key=lambda item: item[0])]


def _table(metric: str, role: str, members: Sequence[Series]) -> MetricTable:
    remarks: list[str] = []
    members = _one_unit(_averaged(members), remarks)
    members = _once_each(members, remarks)
    first = members[0]
    n_points = max(1, *(len(m.values) for m in members))
    lines = _same_clock([_padded(member.values, n_points) for member in members], members, remarks)
    fits = _same_scale(lines, members, remarks)
    if not fits.all():
        lines = [line for line, fit in zip(lines, fits, strict=True) if fit]
        members = [member for member, fit in zip(members, fits, strict=True) if fit]
    keys = tuple((member.node, member.device) for member in members)
    return MetricTable(metric, first.unit, role, keys, first.start_us, first.period_s, lines, tuple(remarks))


def _padded(line: Array, n_points: int) -> Array:
    """The line itself where it is long enough: what is large is not copied."""
    return line if len(line) == n_points else np.concatenate([line, np.full(n_points - len(line), np.nan)])


def _averaged(members: Sequence[Series]) -> list[Series]:
    """Machines with very many devices of the metric become one series each, their mean."""
    by_node: dict[str, list[Series]] = {}
    for member in members:
        by_node.setdefault(member.node, []).append(member)
    if max(len(own) for own in by_node.values()) <= MANY_DEVICES:
        return list(members)
    averaged = []
    for node, own in by_node.items():
        stacked = np.full((len(own), max(len(m.values) for m in own)), np.nan)
        for row, member in enumerate(own):
            stacked[row, : len(member.values)] = member.values
        known = np.isfinite(stacked).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.nansum(stacked, axis=0) / np.where(known > 0, known, np.nan)
        averaged.append(Series(node, None, own[0].metric, own[0].unit, own[0].start_us, own[0].period_s, mean))
    return averaged


def _one_unit(members: Sequence[Series], remarks: list[str]) -> list[Series]:
    """Only the members with the commonest unit and grid; the rest are named in a remark."""
    kinds = Counter((m.unit or "", m.start_us, m.period_s) for m in members)
    kind = min(kinds, key=lambda k: (-kinds[k], k))
    kept = [m for m in members if (m.unit or "", m.start_us, m.period_s) == kind]
    left = sorted({m.node for m in members if (m.unit or "", m.start_us, m.period_s) != kind})
    if left:
        remarks.append(f"{', '.join(left)}: another unit or grid than most machines, not compared")
    return kept


def _once_each(members: Sequence[Series], remarks: list[str]) -> list[Series]:
    """Of a machine that appears twice the series with most values, by position among equals."""
    best: dict[tuple[str, str | None], Series] = {}
    for member in members:
        key = (member.node, member.device)
        if key in best:
            remarks.append(f"{member.node} appears twice in {member.metric}: the fuller series is used")
        if key not in best or np.isfinite(member.values).sum() > np.isfinite(best[key].values).sum():
            best[key] = member
    return [best[key] for key in sorted(best, key=lambda k: (k[0], k[1] or ""))]


def _same_clock(lines: list[Array], members: Sequence[Series], remarks: list[str]) -> list[Array]:
    """Series that begin and end later (or earlier) than the others by the same time are moved: their clock is off."""
    spans = np.empty((2, len(lines)), dtype=np.int64)
    for row, line in enumerate(lines):
        _note_span(line, spans, row)
    begins, ends = spans
    if len(lines) <= MIN_PEERS or (ends < begins).any():
        return lines
    late_start = begins - np.median(begins)
    late_end = ends - np.median(ends)
    limit = required_continuity_s(len(lines[0]) * members[0].period_s, members[0].period_s) / members[0].period_s
    off = (np.abs(late_start) > limit / 2) & (np.abs(late_start - late_end) <= np.abs(late_start) / 4)
    moved = list(lines)
    for row in np.flatnonzero(off).tolist():
        shift = round(float(late_start[row]))
        nothing = np.full(abs(shift), np.nan)
        moved[row] = np.concatenate([lines[row][shift:], nothing] if shift > 0 else [nothing, lines[row][:shift]])
        seconds = shift * members[0].period_s
        remarks.append(f"{members[row].node}: clock {abs(seconds):g} s {'ahead of' if shift > 0 else 'behind'} the others, moved")
    return moved


@numba.njit(cache=True, nogil=True)
def _note_span(line: Array, spans: Array, row: int) -> None:
    """First and last known point of a line into a column of `spans`; the last one before the first where none is known."""
    first, last = 0, len(line) - 1
    while first < len(line) and line[first] != line[first]:
        first += 1
    while last >= 0 and line[last] != line[last]:
        last -= 1
    spans[0, row], spans[1, row] = first, last


@numba.njit(cache=True, nogil=True)
def _note_places(line: Array, step: int, some: Array, row: int) -> None:
    """Every `step`-th point of a line into a row of `some`."""
    for place in range(some.shape[1]):
        some[row, place] = line[place * step]


@numba.njit(cache=True, nogil=True)
def _is_far_for_long(places: Array, others: Array, factor: float) -> bool:
    """Whether a machine is a factor or more away from the others often enough to be so throughout; both places × machines."""
    n_far = np.zeros(places.shape[1], dtype=np.int64)
    for at in range(len(places)):
        for row in range(places.shape[1]):
            size, other = abs(places[at, row]), abs(others[at, row])
            n_far[row] += (size >= factor * other) | (factor * size <= other)
    # Half of the known ones, of which a quarter must be there.
    return 2 * n_far.max() + 2 >= len(places) // 4


def _same_scale(lines: list[Array], members: Sequence[Series], remarks: list[str]) -> Array:
    """Which series to compare: one that is a unit's factor away from the others throughout says the same in another unit."""
    # Places spread over the job are enough: what is asked for holds throughout.
    step = max(-(-len(lines[0]) // SCALE_POINTS), 1)
    some = np.empty((len(lines), -(-len(lines[0]) // step)))
    for row, line in enumerate(lines):
        _note_places(line, step, some, row)
    places = turned(some)
    medians = others_median_turned(places)
    if not _is_far_for_long(places, medians, OTHER_UNIT_FACTORS[0] * math.exp(-OTHER_UNIT_TOLERANCE)):
        return np.ones(len(lines), dtype=bool)
    others = medians.T
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(np.abs(some / others))
    ratio = np.ascontiguousarray(np.where(np.isfinite(ratio), ratio, np.nan))
    middle = median_of_known(ratio)
    away = median_of_known(np.abs(ratio - middle[:, None]))
    is_seen = np.isfinite(ratio).sum(axis=1) >= max(some.shape[1] // 4, 1)
    factors = np.log(OTHER_UNIT_FACTORS)
    is_factor = (np.abs(np.abs(middle)[:, None] - factors) < OTHER_UNIT_TOLERANCE).any(axis=1)
    fits = ~(is_seen & (away < OTHER_UNIT_TOLERANCE) & is_factor)
    for row in np.flatnonzero(~fits).tolist():
        remarks.append(f"{members[row].node}: values {math.exp(middle[row]):.4g} times the others' throughout: another unit?")
    return fits
