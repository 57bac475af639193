"""The rule of every aspect, compiled: a difference to the peers that lasts, in units of the peers' spread.

Arrays here are turned: bins × machines (time first), so that inner loops run over neighbours in memory and every step is linear
in machines. Medians over machines leave the machine itself out (see `peers`).
"""

from __future__ import annotations

import numba
import numpy as np

from ml.machines.medians import others_median_turned
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


@numba.njit(cache=True, nogil=True)
def _add(total: Array, count: Array, line: Array, sign: float) -> None:
    """Add (or take away) a line's known values."""
    for row in range(len(line)):
        value = line[row]
        is_known = value == value
        total[row] += sign * value if is_known else 0.0
        count[row] += sign if is_known else 0.0


@numba.njit(cache=True, nogil=True)
def centred(binned: Array, span: int) -> tuple[Array, Array]:
    """Means of the last `span` bins as differences to the peers' median, and that median; NaN where half is unknown."""
    n_bins, n_rows = binned.shape
    part = np.empty((n_bins, n_rows))
    total = np.zeros(n_rows)
    count = np.zeros(n_rows)
    for at in range(n_bins):
        _add(total, count, binned[at], 1.0)
        if at >= span:
            _add(total, count, binned[at - span], -1.0)
        for row in range(n_rows):
            part[at, row] = total[row] / max(count[row], 1.0) if count[row] * 2 >= span else np.nan
    centre = others_median_turned(part)
    for at in range(n_bins):
        for row in range(n_rows):
            part[at, row] -= centre[at, row]
    return part, centre


@numba.njit(cache=True, nogil=True)
def _block_means(away: Array, size: int) -> Array:
    """Means over blocks of `size` bins of what is known: machines × blocks, NaN where nothing is."""
    n_bins, n_rows = away.shape
    n_blocks = (n_bins + size - 1) // size
    means = np.full((n_blocks, n_rows), np.nan)
    for number in range(n_blocks):
        total, count = np.zeros(n_rows), np.zeros(n_rows)
        for at in range(number * size, min(number * size + size, n_bins)):
            _add(total, count, away[at], 1.0)
        for row in range(n_rows):
            if count[row] > 0:
                means[number, row] = total[row] / count[row]
    return means.T.copy()


@numba.njit(cache=True, nogil=True)
def _since_past(away: Array) -> Array:
    """Differences against the median of the machine's own blocks so far; NaN during the first N_WARM blocks.

    A machine that stops being different has not become different: it counts as zero. Blocks bound the work: a day costs as
    much as an hour.
    """
    n_bins, n_rows = away.shape
    size = max(-(-n_bins // N_BLOCKS), 1)
    means = _block_means(away, size)
    past = np.full((means.shape[1], n_rows), np.nan)
    before = np.empty(N_BLOCKS + 1)
    for row in range(n_rows):
        n = 0
        for number in range(means.shape[1]):
            if number >= N_WARM and n > 0:
                past[number, row] = (before[(n - 1) // 2] + before[n // 2]) / 2
            mean = means[row, number]
            if mean == mean:
                place = n
                while place > 0 and before[place - 1] > mean:
                    before[place] = before[place - 1]
                    place -= 1
                before[place] = mean
                n += 1
    result = np.empty((n_bins, n_rows))
    for at in range(n_bins):
        for row in range(n_rows):
            gone = away[at, row] - past[at // size, row]
            result[at, row] = gone * 0.0 if abs(away[at, row]) < abs(gone) / 2 else gone
    return result


@numba.njit(cache=True, nogil=True)
def _band(away: Array, width: int, floor: float) -> Array:
    """The others' mean absolute difference over `width` bins around each, as an sd; at least the floor."""
    n_bins, n_rows = away.shape
    half = width // 2
    size = np.abs(away)
    own = np.empty((n_bins, n_rows))
    total = np.zeros(n_rows)
    count = np.zeros(n_rows)
    for at in range(-half, n_bins):
        if at + half < n_bins:
            _add(total, count, size[at + half], 1.0)
        if at - half - 1 >= 0:
            _add(total, count, size[at - half - 1], -1.0)
        if at >= 0:
            for row in range(n_rows):
                own[at, row] = MEAN_ABS_TO_SD * max(total[row], 0.0) / count[row] if count[row] > 0 else np.nan
    spread = others_median_turned(own)
    for at in range(n_bins):
        for row in range(n_rows):
            spread[at, row] = max(spread[at, row], floor) if spread[at, row] == spread[at, row] else floor
    return spread


@numba.njit(cache=True, nogil=True)
def _greater(line: Array, other: Array) -> None:
    """Each value of a line or the other's, whichever is greater, in place."""
    for row in range(len(line)):
        line[row] = line[row] if line[row] > other[row] else other[row]


@numba.njit(cache=True, nogil=True)
def _largest_around(values: Array, reach: int, sign: float) -> Array:
    """Largest known value times `sign` within `reach` bins of each; -inf where none is (van Herk: whatever the reach)."""
    n_bins, n_rows = values.shape
    size = 2 * reach + 1
    n_padded = n_bins + 2 * reach
    forward = np.full((n_padded, n_rows), -np.inf)
    for at in range(n_bins):
        for row in range(n_rows):
            value = values[at, row]
            forward[at + reach, row] = sign * value if value == value else -np.inf
    backward = forward.copy()
    for at in range(1, n_padded):
        if at % size:
            _greater(forward[at], forward[at - 1])
    for at in range(n_padded - 2, -1, -1):
        if (at + 1) % size:
            _greater(backward[at], backward[at + 1])
    for at in range(n_bins):
        _greater(backward[at], forward[at + size - 1])
    return backward[:n_bins]


@numba.njit(cache=True, nogil=True)
def reached(centre: Array, span: int) -> tuple[Array, Array]:
    """How far above and below itself the peers' centre comes within half a window of each bin: bins × machines.

    Machines start, pause and end a little apart, and their clocks differ: a value that the centre itself takes within
    this time is no difference.
    """
    above = _largest_around(centre, QUARTERS * span // 2, 1.0)
    below = _largest_around(centre, QUARTERS * span // 2, -1.0)
    for at in range(len(centre)):
        for row in range(centre.shape[1]):
            above[at, row] -= centre[at, row]
            below[at, row] += centre[at, row]
    return above, below


@numba.njit(cache=True, nogil=True)
def _beyond(away: Array, above: Array, below: Array, spread: Array) -> Array:
    """What of a difference is left, in spreads, beyond what the centre reaches."""
    left = np.empty(away.shape)
    for at in range(len(away)):
        for row in range(away.shape[1]):
            own = away[at, row]
            value = own - above[at, row] if own > 0 else own + below[at, row]
            is_other_side = (value > 0) != (own > 0)
            left[at, row] = (0.0 if is_other_side else value) / spread[at, row]
            if not (own == own and value == value):
                left[at, row] = np.nan
    return left


@numba.njit(cache=True, nogil=True)
def _through(a: float, b: float, c: float, d: float) -> float:
    """The mean of four quarters, each at most CLIP times the second weakest; zero unless three lie on one side."""
    low, high = min(a, b), max(a, b)
    lower, higher = min(c, d), max(c, d)
    second = min(max(low, lower), min(high, higher))
    third = max(max(low, lower), min(high, higher))
    if second > 0:
        most = CLIP * second
        return max((min(a, most) + min(b, most) + min(c, most) + min(d, most)) / QUARTERS, 0.0)
    if third < 0:
        least = CLIP * third
        return min((max(a, least) + max(b, least) + max(c, least) + max(d, least)) / QUARTERS, 0.0)
    return 0.0


@numba.njit(cache=True, nogil=True)
def _throughout(a: float, b: float, c: float, d: float) -> float:
    """As `_through`, but nothing unless all four quarters lie on one side, and none more than CLIP times the weakest."""
    least, most = min(a, b, c, d), max(a, b, c, d)
    if least > 0:
        top = CLIP * least
        return (min(a, top) + min(b, top) + min(c, top) + min(d, top)) / QUARTERS
    if most < 0:
        low = CLIP * most
        return (max(a, low) + max(b, low) + max(c, low) + max(d, low)) / QUARTERS
    return 0.0


@numba.njit(cache=True, nogil=True)
def judged(away: Array, above: Array, below: Array, span: int, floor: float, is_relative: bool, old: Array) -> Array:
    """Signed difference that lasts through the window of QUARTERS quarters of `span` bins that ends at each bin.

    In units of the peers' spread: the mean of the quarters, none of them a burst (see `_through`), and none of them what
    half a window's lead or lag would explain (`above` and `below`, see `reached`); NaN where a quarter is unknown.
    `is_relative` asks for what is new against the machine's own past. `old` marks bins in which a collector only gave its
    last answer again (none if empty): where two quarters end in such a bin the window holds two measurements at most, and
    all four quarters must show the difference.
    """
    n_bins, n_rows = away.shape
    has_old = old.size > 0
    if is_relative:
        away = _since_past(away)
    left = _beyond(away, above, below, _band(away, BAND_QUARTERS * span, floor))
    result = np.full((n_bins, n_rows), np.nan)
    for at in range((QUARTERS - 1) * span, n_bins):
        for row in range(n_rows):
            a, b = left[at, row], left[at - span, row]
            c, d = left[at - 2 * span, row], left[at - 3 * span, row]
            total = a + b + c + d
            if total == total:
                n_old = 0
                if has_old:
                    n_old = old[at, row] + old[at - span, row] + old[at - 2 * span, row] + old[at - 3 * span, row]
                result[at, row] = _throughout(a, b, c, d) if n_old >= MANY_OLD else _through(a, b, c, d)
    return result


@numba.njit(cache=True, nogil=True)
def in_thresholds(values: Array, limits: Array) -> Array:
    """Magnitudes in units of each machine's threshold, unknown ones as zero: bins × machines."""
    n_bins, n_rows = values.shape
    result = np.empty((n_bins, n_rows))
    for at in range(n_bins):
        for row in range(n_rows):
            value = abs(values[at, row]) / limits[row]
            result[at, row] = value if value == value else 0.0
    return result
