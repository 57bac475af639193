"""How far, and how long, one machine differs from its peers in one metric.

From the binned metric to a signed figure a machine, bin and window length: the difference to the peers in units of the
peers' own spread, as it lasts through the window. Five aspects of a metric are looked at, all with the same rule:

=========  =====================================================================================================
level      the machine's values against the peers' (its usual offset, where the fleet's history knows it, removed)
change     the same, against what the machine's own difference used to be earlier in the job
roughness  how much neighbouring values differ: noise up, a frozen sensor down
gaps       missing values where the peers have some
stuck      the same value, bit by bit, where the peers' values move
=========  =====================================================================================================

Two more are looked at where a metric has learnt what the machine's other metrics say about it (see `joint`): the part of it
that they do not explain (`unexplained`), and that part's size whatever its sign (`erratic`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ml.machines.lasting import QUARTERS, centred, judged, reached
from ml.machines.medians import turned
from ml.machines.peers import floor_of, others_median
from ml.machines.windows import Lines, Windows, cut, plain_weights, summarise

Array = np.ndarray

ROUGHNESS_FLOOR = 0.25
"""Spread of log roughness that is granted at least: a quarter more or less jitter is no difference."""
GAP_FLOOR = 0.1
STUCK_FLOOR = 0.1
USUAL_REPEATS = 0.1
FROZEN_SHARE = 0.5
NOTHING_OLD = np.zeros((0, 0), dtype=np.uint8)
LEAST_STUCK_POINTS = 8
"""Fewer equal samples than this are a collector that gave its last answer once more."""


class Aspect(StrEnum):
    """What is compared."""

    LEVEL = "level"
    CHANGE = "change"
    ROUGHNESS = "roughness"
    GAPS = "gaps"
    STUCK = "stuck"
    UNEXPLAINED = "unexplained"
    ERRATIC = "erratic"


@dataclass(frozen=True)
class Differences:
    """Differences of one aspect at one window length: machines × bins, signed, each for the window that ends there."""

    aspect: Aspect
    length_s: float
    values: Array


@dataclass(frozen=True)
class MetricEvidence:
    """All differences of one metric, and what they were made from, machines × bins, for saying what was seen."""

    windows: Windows
    level: Array
    rough: Array
    missing: Array
    repeats: Array
    floor: float
    differences: tuple[Differences, ...]
    rest: Array | None = None
    """What other metrics do not explain, around the peers' course; None where only the metric itself was looked at."""

    def shown(self, aspect: Aspect) -> Array:
        """The figures that an aspect compares, in the metric's unit (shares for gaps and repeats)."""
        if self.rest is not None and aspect is Aspect.UNEXPLAINED:
            return self.rest
        return {
            Aspect.ERRATIC: self.rough,
            Aspect.ROUGHNESS: self.rough,
            Aspect.GAPS: self.missing,
            Aspect.STUCK: self.repeats,
        }.get(aspect, self.level)


def measure(
    values: Lines, period_s: float, unit: str | None = None, *, weights: Array | None = None, offsets: Array | None = None
) -> MetricEvidence:
    """Differences of one metric: `values` has a line of grid points a machine, with NaN where nothing is known.

    `weights` is the embedding's filter (see `windows.summarise`), the plain mean by default. `offsets` (one a machine, in
    the metric's unit, NaN where unknown) are what the fleet's history says that each machine usually differs by.
    """
    windows = cut(len(values[0]), period_s)
    level, rough, missing, repeats = summarise(values, windows.bin_points, plain_weights() if weights is None else weights)
    floor = floor_of(level, unit)
    if floor == 0.0:
        # All zero, or all missing: only gaps can differ.
        gaps = tuple(_aspects((Aspect.GAPS,), missing, windows, GAP_FLOOR, _memory(level)))
        return MetricEvidence(windows, level, rough, missing, repeats, floor, gaps)
    living = np.where(all_frozen(repeats), np.nan, level)
    old = old_answers(repeats)
    known = np.zeros(len(level)) if offsets is None else np.nan_to_num(offsets)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rough = np.log(rough + floor)
    both = (Aspect.LEVEL, Aspect.CHANGE)
    memory = _memory(level)
    if known.any():
        levels = [
            *_aspects(both[:1], living - known[:, None], windows, floor, memory, old),
            *_aspects(both[1:], living, windows, floor, memory, old),
        ]
    else:
        levels = _aspects(both, living, windows, floor, memory, old)
    stuck = _aspects((Aspect.STUCK,), repeats, windows, STUCK_FLOOR, memory)
    found = [
        *levels,
        *_aspects((Aspect.ROUGHNESS,), log_rough, windows, ROUGHNESS_FLOOR, memory),
        *_aspects((Aspect.GAPS,), missing, windows, GAP_FLOOR, memory),
        *(each for each in stuck if each.length_s >= LEAST_STUCK_POINTS * period_s),
    ]
    return MetricEvidence(windows, level, rough, missing, repeats, floor, tuple(found))


def measure_unexplained(rest: Array, course: Array, bin_s: float, lengths_s: tuple[float, ...], floor: float) -> MetricEvidence:
    """Differences of what a machine's other metrics leave unexplained: `rest` is machines × bins in the metric's unit.

    Only what is new counts: a machine's constant offset is the level's affair. `course` is the peers' value a bin.
    """
    spans = tuple(max(round(length / QUARTERS / bin_s), 1) for length in lengths_s)
    windows = Windows(bin_s, 1, spans, lengths_s)
    size = np.abs(rest)
    memory = _memory(rest)
    larger = [
        Differences(each.aspect, each.length_s, np.maximum(each.values, 0))
        for each in _aspects((Aspect.ERRATIC,), size, windows, floor, memory)
    ]
    nothing = np.zeros(rest.shape)
    found = (*_aspects((Aspect.UNEXPLAINED,), rest, windows, floor, memory), *larger)
    return MetricEvidence(windows, rest + course, size, nothing, nothing, floor, found, rest + course)


def old_answers(repeats: Array) -> Array:
    """Where a value only repeats the last one, in a metric that seldom does so: a collector's old answer, nothing measured."""
    return (repeats >= FROZEN_SHARE) & (repeats.mean() < USUAL_REPEATS)


def all_frozen(repeats: Array) -> Array:
    """Where the peers' values stand still that otherwise move: the source of the metric stopped, nobody can be compared."""
    if not repeats.any():
        return np.zeros(repeats.shape, dtype=bool)
    standing = others_median(repeats)
    known = standing[np.isfinite(standing)]
    if not len(known) or np.quantile(known, 0.25) > USUAL_REPEATS:
        return np.zeros(repeats.shape, dtype=bool)
    return standing >= FROZEN_SHARE


def _memory(binned: Array) -> Array:
    """What `_aspects` works with: one piece, written over again and again, as fresh memory costs more than the arithmetic."""
    return np.empty((5, binned.shape[1], binned.shape[0]))


def _aspects(
    aspects: tuple[Aspect, ...], binned: Array, windows: Windows, floor: float, memory: Array, old: Array | None = None
) -> list[Differences]:
    """Differences of aspects that look at the same figures, at every window length that fits; `old` as in `judged`."""
    fitting = [pair for pair in zip(windows.spans, windows.lengths_s, strict=True) if QUARTERS * pair[0] <= binned.shape[1]]
    if aspects[0] in (Aspect.GAPS, Aspect.STUCK) and not binned.any():
        # Nothing missing, nothing repeated: the usual case, and nothing to compare.
        nothing = np.zeros(binned.shape[::-1]).T
        return [Differences(aspect, length_s, nothing) for _, length_s in fitting for aspect in aspects]
    marked = NOTHING_OLD if old is None or not old.any() else np.ascontiguousarray(old.T).view(np.uint8)
    lines = turned(binned)
    results = iter(np.empty((len(fitting) * len(aspects), *lines.shape)))
    found = []
    for span, length_s in fitting:
        away, centre = centred(lines, span, memory[:2])
        above, below = reached(centre, span, memory[2:4])
        for aspect in aspects:
            is_relative = aspect not in (Aspect.LEVEL, Aspect.GAPS)
            lasting = judged(away, above, below, span, floor, is_relative, marked, memory[4], next(results))
            found.append(Differences(aspect, length_s, lasting.T))
    return found
