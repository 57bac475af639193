"""The rule of every aspect, compiled: a difference to the peers that lasts, in units of the peers' spread.

Arrays here are turned: bins × machines (time first), so that inner loops run over neighbours in memory, many at a time, and every
step is linear in machines. Medians over machines leave the machine itself out (see `peers`). What is made on the way is
written into memory that the caller gives, line by line where that is enough: fresh memory costs more than the arithmetic.
"""

from __future__ import annotations

import numba
import numpy as np

from ml.machines.medians import median_line
from ml.machines.peers import MEAN_ABS_TO_SD

Array = np.ndarray

QUARTERS = 4
"""A difference must hold in each of this many consecutive parts of a window: one burst is no continuity."""
MANY_OLD = 2
"""Quarters that end in an old answer from which on all of them must show the difference."""
CLIP = 2.0
BAND_QUARTERS = 8
"""Peers' spread is taken over this many quarters of a window around each point."""
N_BLOCKS = 60
N_WARM = 6


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _add(total: Array, count: Array, line: Array, sign: float) -> None:
    """Add (or take away) a line's known values."""
    for row in range(len(line)):
        value = line[row]
        is_known = value == value
        total[row] += sign * value if is_known else 0.0
        count[row] += sign if is_known else 0.0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _centre(binned: Array, span: int, away: Array, centre: Array) -> None:
    """Fill `away` and `centre`, see `centred`."""
    n_bins, n_rows = binned.shape
    total, count = np.zeros(n_rows), np.zeros(n_rows)
    known, near, guess = np.empty(n_rows), np.empty(n_rows + 1), np.zeros(2)
    for at in range(n_bins):
        _add(total, count, binned[at], 1.0)
        if at >= span:
            _add(total, count, binned[at - span], -1.0)
        part = away[at]
        for row in range(n_rows):
            mean = total[row] / count[row]
            part[row] = mean if count[row] * 2 >= span else np.nan
        median_line(part, known, near, guess, centre[at])
        for row in range(n_rows):
            part[row] -= centre[at, row]


def centred(binned: Array, span: int, into: Array | None = None) -> tuple[Array, Array]:
    """Means of the last `span` bins as differences to the peers' median, and that median; NaN where half is unknown.

    `into` is memory of 2 × bins × machines, where the caller has some.
    """
    away, centre = np.empty((2, *binned.shape)) if into is None else into
    _centre(binned, span, away, centre)
    return away, centre


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _block_means(away: Array, size: int) -> Array:
    """Means over blocks of `size` bins of what is known: blocks × machines, NaN where nothing is."""
    n_bins, n_rows = away.shape
    n_blocks = (n_bins + size - 1) // size
    means = np.empty((n_blocks, n_rows))
    total, count = np.empty(n_rows), np.empty(n_rows)
    for number in range(n_blocks):
        total[:], count[:] = 0.0, 0.0
        for at in range(number * size, min(number * size + size, n_bins)):
            _add(total, count, away[at], 1.0)
        for row in range(n_rows):
            means[number, row] = total[row] / count[row]
    return means


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _put_in_order(ordered: Array, n: int, line: Array, carried: Array) -> None:
    """Insert a line into `n` ordered ones, column by column, unknown values last; `carried` is memory of a line."""
    for row in range(len(line)):
        carried[row] = line[row] if line[row] == line[row] else np.inf
    for place in range(n):
        lower = ordered[place]
        for row in range(len(line)):
            a, b = lower[row], carried[row]
            lower[row] = b if b < a else a
            carried[row] = a if b < a else b
    ordered[n] = carried


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _since_past(away: Array, result: Array) -> None:
    """Differences against the median of the machine's own blocks so far; NaN during the first N_WARM blocks.

    A machine that stops being different has not become different: it counts as zero. Blocks bound the work: a day costs as
    much as an hour.
    """
    n_bins, n_rows = away.shape
    size = max(-(-n_bins // N_BLOCKS), 1)
    means = _block_means(away, size)
    n_blocks = len(means)
    ordered = np.empty((n_blocks, n_rows))
    n_known = np.zeros(n_rows, dtype=np.int64)
    past, carried = np.full(n_rows, np.nan), np.empty(n_rows)
    for number in range(n_blocks):
        if number >= N_WARM:
            for row in range(n_rows):
                n = n_known[row]
                past[row] = (ordered[(n - 1) // 2, row] + ordered[n // 2, row]) / 2 if n > 0 else np.nan
        _put_in_order(ordered, number, means[number], carried)
        for row in range(n_rows):
            n_known[row] += means[number, row] == means[number, row]
        for at in range(number * size, min(number * size + size, n_bins)):
            for row in range(n_rows):
                own = away[at, row]
                gone = own - past[row]
                result[at, row] = gone * 0.0 if abs(own) < abs(gone) / 2 else gone


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _widen(high: Array, low: Array, line: Array) -> None:
    """Extremes so far, widened by a line's known values."""
    for row in range(len(line)):
        value = line[row]
        high[row] = value if value > high[row] else high[row]
        low[row] = value if value < low[row] else low[row]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _reach(centre: Array, span: int, above: Array, below: Array) -> None:
    """Fill `above` and `below`, see `reached`: extremes of a block's end and of the next one's beginning (van Herk)."""
    n_bins, n_rows = centre.shape
    reach = QUARTERS * span // 2
    size = 2 * reach + 1
    highs, lows = np.empty((size + 1, n_rows)), np.empty((size + 1, n_rows))
    high, low = np.empty(n_rows), np.empty(n_rows)
    for start in range(0, n_bins, size):
        highs[size], lows[size] = -np.inf, np.inf
        for place in range(size - 1, -1, -1):
            number = start + place - reach
            highs[place], lows[place] = highs[place + 1], lows[place + 1]
            if 0 <= number < n_bins:
                _widen(highs[place], lows[place], centre[number])
        high[:], low[:] = -np.inf, np.inf
        for at in range(start, min(start + size, n_bins)):
            number = at + reach
            if at > start and number < n_bins:
                _widen(high, low, centre[number])
            most, least = highs[at - start], lows[at - start]
            for row in range(n_rows):
                own = centre[at, row]
                above[at, row] = (most[row] if most[row] > high[row] else high[row]) - own
                below[at, row] = own - (least[row] if least[row] < low[row] else low[row])


def reached(centre: Array, span: int, into: Array | None = None) -> tuple[Array, Array]:
    """How far above and below itself the peers' centre comes within half a window of each bin: bins × machines.

    Machines start, pause and end a little apart, and their clocks differ: a value that the centre itself takes within
    this time is no difference. `into` is memory of 2 × bins × machines, where the caller has some.
    """
    above, below = np.empty((2, *centre.shape)) if into is None else into
    _reach(centre, span, above, below)
    return above, below


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _mean_sizes(away: Array, at: int, half: int, total: Array, count: Array, own: Array) -> None:
    """Step to bin `at` of the running mean magnitude over `half` bins to both sides, as an sd; NaN where nothing is known."""
    n_bins, n_rows = away.shape
    for number, sign in ((at + half, 1.0), (at - half - 1, -1.0)):
        if 0 <= number < n_bins:
            line = away[number]
            for row in range(n_rows):
                size = abs(line[row])
                is_known = size == size
                total[row] += sign * size if is_known else 0.0
                count[row] += sign if is_known else 0.0
    for row in range(n_rows):
        mean = MEAN_ABS_TO_SD * (total[row] if total[row] > 0.0 else 0.0) / count[row]
        own[row] = mean if count[row] > 0 else np.nan


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _beyond(away: Array, above: Array, below: Array, spread: Array, floor: float, left: Array) -> None:
    """What of a line's differences is left, in spreads (at least the floor), beyond what the centre reaches."""
    for row in range(len(away)):
        own = away[row]
        value = own - above[row] if own > 0 else own + below[row]
        is_other_side = (value > 0) != (own > 0)
        unit = spread[row] if spread[row] > floor else floor
        rest = (0.0 if is_other_side else value) / unit
        left[row] = rest if value == value else np.nan


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _clipped(a: float, b: float, c: float, d: float, most: float) -> float:
    """The mean of four quarters, each at most `most`."""
    total = (a if a < most else most) + (b if b < most else most)
    return (total + (c if c < most else most) + (d if d < most else most)) / QUARTERS


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _through(a: float, b: float, c: float, d: float) -> float:
    """The mean of four quarters, each at most CLIP times the second weakest; zero unless three lie on one side."""
    low, high = (a, b) if a < b else (b, a)
    lower, higher = (c, d) if c < d else (d, c)
    inner, outer = (low if low > lower else lower), (high if high < higher else higher)
    second, third = (inner, outer) if inner < outer else (outer, inner)
    up = _clipped(a, b, c, d, CLIP * second)
    down = -_clipped(-a, -b, -c, -d, -CLIP * third)
    value = (up if up > 0 else 0.0) if second > 0 else ((down if down < 0 else 0.0) if third < 0 else 0.0)
    return value if a + b + c + d == a + b + c + d else np.nan


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _throughout(a: float, b: float, c: float, d: float) -> float:
    """As `_through`, but nothing unless all four quarters lie on one side, and none more than CLIP times the weakest."""
    least, most = min(a, b, c, d), max(a, b, c, d)
    if least > 0:
        return _clipped(a, b, c, d, CLIP * least)
    return -_clipped(-a, -b, -c, -d, -CLIP * most) if most < 0 else 0.0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _judge(
    away: Array, above: Array, below: Array, span: int, floor: float, is_relative: bool, old: Array, work: Array, result: Array
) -> None:
    """Fill `result`, see `judged`. What is left of the differences is kept for one window only."""
    n_bins, n_rows = away.shape
    if is_relative:
        _since_past(away, work)
        away = work
    half = BAND_QUARTERS * span // 2
    n_kept = (QUARTERS - 1) * span + 1
    left = np.empty((n_kept, n_rows))
    total, count = np.zeros(n_rows), np.zeros(n_rows)
    own, spread = np.empty(n_rows), np.empty(n_rows)
    known, near, guess = np.empty(n_rows), np.empty(n_rows + 1), np.zeros(2)
    for at in range(-half, n_bins):
        _mean_sizes(away, at, half, total, count, own)
        if at < 0:
            continue
        median_line(own, known, near, guess, spread)
        _beyond(away[at], above[at], below[at], spread, floor, left[at % n_kept])
        if at < n_kept - 1:
            result[at] = np.nan
            continue
        a, b = left[at % n_kept], left[(at - span) % n_kept]
        c, d = left[(at - 2 * span) % n_kept], left[(at - 3 * span) % n_kept]
        for row in range(n_rows):
            result[at, row] = _through(a[row], b[row], c[row], d[row])
        for row in range(n_rows if old.size > 0 else 0):
            n_old = old[at, row] + old[at - span, row] + old[at - 2 * span, row] + old[at - 3 * span, row]
            if n_old >= MANY_OLD and result[at, row] == result[at, row]:
                result[at, row] = _throughout(a[row], b[row], c[row], d[row])


def judged(
    away: Array, above: Array, below: Array, span: int, floor: float, is_relative: bool, old: Array,
    work: Array | None = None, result: Array | None = None,
) -> Array:  # fmt: skip
    """Signed difference that lasts through the window of QUARTERS quarters of `span` bins that ends at each bin.

    In units of the peers' spread (their mean absolute difference over BAND_QUARTERS quarters around each bin, at least the
    floor): the mean of the quarters, none of them a burst (see `_through`), and none of them what half a window's lead or
    lag would explain (`above` and `below`, see `reached`); NaN where a quarter is unknown. `is_relative` asks for what is
    new against the machine's own past. `old` marks bins in which a collector only gave its last answer again (none if
    empty): where two quarters end in such a bin the window holds two measurements at most, and all four quarters must show
    the difference. `work` and `result` are memory of bins × machines, where the caller has some.
    """
    work = np.empty(away.shape) if work is None else work
    result = np.empty(away.shape) if result is None else result
    _judge(away, above, below, span, floor, is_relative, old, work, result)
    return result


@numba.njit(cache=True, nogil=True, error_model="numpy")
def largest(values: Array) -> Array:
    """Each machine's largest magnitude over the bins; zero where none is known."""
    n_bins, n_rows = values.shape
    result = np.zeros(n_rows)
    for at in range(n_bins):
        for row in range(n_rows):
            size = abs(values[at, row])
            result[row] = size if size > result[row] else result[row]
    return result


@numba.njit(cache=True, nogil=True, error_model="numpy")
def in_thresholds(values: Array, limits: Array) -> Array:
    """Magnitudes in units of each machine's threshold, unknown ones as zero: bins × machines."""
    n_bins, n_rows = values.shape
    result = np.empty((n_bins, n_rows))
    for at in range(n_bins):
        for row in range(n_rows):
            value = abs(values[at, row]) / limits[row]
            result[at, row] = value if value == value else 0.0
    return result
