"""Medians of the other machines, bin by bin, compiled. Arrays are turned: bins × machines."""

from __future__ import annotations

import numba
import numpy as np

Array = np.ndarray

MIN_PEERS = 3
"""With fewer others than this there is no majority to differ from: no answer."""
FEW = 32
"""Values that are put in order; of more, those in the middle are bracketed first by counting, which is many times cheaper."""
MARGIN = 6
STRIP = 16
ROUNDS = 12


@numba.njit(cache=True, nogil=True, error_model="numpy")
def turned(values: Array) -> Array:
    """Rows as columns, in memory too, as float64: a strip of rows at a time, which is several times faster than one column."""
    n_rows, n_points = values.shape
    result = np.empty((n_points, n_rows))
    for first in range(0, n_rows, STRIP):
        last = min(first + STRIP, n_rows)
        for at in range(n_points):
            for row in range(first, last):
                result[at, row] = values[row, at]
    return result


@numba.njit(cache=True, nogil=True, error_model="numpy")
def select(values: Array, n: int, rank: int) -> float:
    """The value of a rank among the first `n`, which are reordered around it (Hoare)."""
    low, high = 0, n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return float(values[rank])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def known_of(line: Array, known: Array) -> int:
    """How many values of a line are known; they are copied to the front of `known`, which is as long."""
    n = 0
    for place in range(len(line)):
        value = line[place]
        # Without a branch: what is unknown is overwritten by the next value.
        known[n] = value
        n += value == value
    return n


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _n_below(values: Array, n: int, limit: float) -> int:
    count = 0
    for place in range(n):
        count += values[place] < limit
    return count


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _bracket(known: Array, n: int, first: int, last: int, guess: Array) -> tuple[float, float, int]:
    """Two values between which (both included) the ranks `first` to `last` of the first `n` values lie, and how many are below.

    Narrowed by interpolation from the guess (centre, reach), or from the extremes where that is wrong.
    """
    low, high = guess[0] - guess[1], guess[0] + guess[1]
    n_low, n_high = _n_below(known, n, low), _n_below(known, n, high)
    if n_low > first or n_high <= last:
        least, most = known[0], known[0]
        for place in range(n):
            least = known[place] if known[place] < least else least
            most = known[place] if known[place] > most else most
        low, n_low = (least, 0) if n_low > first else (low, n_low)
        high, n_high = (most, n) if n_high <= last else (high, n_high)
    for _ in range(ROUNDS):
        width = n_high - n_low
        for wanted in (first + 1 - MARGIN, last + MARGIN):
            trial = low + (wanted - n_low) * (high - low) / (n_high - n_low)
            if width > FEW and low < trial < high:
                count = _n_below(known, n, trial)
                if count <= first:
                    low, n_low = trial, count
                elif count > last:
                    high, n_high = trial, count
        if n_high - n_low == width:
            break
    return low, high, n_low


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _three(known: Array, n: int, rank: int, near: Array, guess: Array) -> tuple[float, float, float]:
    """Of the first `n` values the one before a rank, the one of this rank, and the one after it.

    Neighbouring bins have nearly the same median: `guess` is set for the next bin.
    """
    low, high, n_low = _bracket(known, n, max(rank - 1, 0), min(rank + 1, n - 1), guess)
    n_near = 0
    for place in range(n):
        value = known[place]
        near[n_near] = value
        n_near += (value >= low) & (value <= high)
    rank -= n_low
    middle = select(near, n_near, rank)
    below, above = -np.inf, np.inf
    for place in range(rank):
        below = max(below, near[place])
    for place in range(rank + 1, n_near):
        above = min(above, near[place])
    guess[1] = 2 * abs(middle - guess[0]) + (high - low)
    guess[0] = middle
    return below, middle, above


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _leave_out(line: Array, below: float, middle: float, above: float, is_odd: bool, result: Array) -> None:
    """Each value's median of the others, from the three values in the middle of all of them."""
    # Odd number: two of the others are in the middle; even number: one is.
    lower = (below + middle) / 2 if is_odd else below
    upper = (middle + above) / 2 if is_odd else middle
    same = (below + above) / 2 if is_odd else middle
    plain = middle if is_odd else (below + middle) / 2
    cut = middle if is_odd else below
    for row in range(len(line)):
        own = line[row]
        other = upper if own < cut else (lower if own > cut else same)
        # A machine without a value takes nothing away from the others.
        result[row] = other if own == own else plain


@numba.njit(cache=True, nogil=True, error_model="numpy")
def median_line(line: Array, known: Array, near: Array, guess: Array, result: Array) -> None:
    """Median over the other machines of one bin; NaN where fewer than MIN_PEERS others are known.

    `known` (as long) and `near` (one longer) are memory; `guess` (two zeros at first) is carried from bin to bin.
    """
    n_rows = len(line)
    n = 0
    for row in range(n_rows):
        n += line[row] == line[row]
    if n < MIN_PEERS:
        result[:] = np.nan
        return
    if n < n_rows:
        known_of(line, known)
    below, middle, above = _three(line if n == n_rows else known, n, n // 2, near, guess)
    _leave_out(line, below, middle, above, n % 2 == 1, result)
    if n == MIN_PEERS:
        for row in range(n_rows):
            result[row] = np.nan if line[row] == line[row] else result[row]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def others_median_into(values: Array, result: Array) -> None:
    """Fill `result` with the medians over the other machines, bin by bin."""
    known, near, guess = np.empty(values.shape[1]), np.empty(values.shape[1] + 1), np.zeros(2)
    for at in range(len(values)):
        median_line(values[at], known, near, guess, result[at])


def others_median_turned(values: Array) -> Array:
    """Median over the other machines at each bin: bins × machines; NaN where fewer than MIN_PEERS others are known."""
    result = np.empty(values.shape)
    others_median_into(values, result)
    return result


@numba.njit(cache=True, nogil=True, error_model="numpy")
def lower_medians_turned(values: Array) -> Array:
    """The middle machine's value at each bin (the lower of two): a value a bin, NaN where none is known."""
    result = np.full(len(values), np.nan)
    known, near, guess = np.empty(values.shape[1]), np.empty(values.shape[1] + 1), np.zeros(2)
    for at in range(len(values)):
        n = known_of(values[at], known)
        if n > 0:
            result[at] = _three(known, n, (n - 1) // 2, near, guess)[1]
    return result


@numba.njit(cache=True, nogil=True, error_model="numpy")
def median_of_known(values: Array) -> Array:
    """Row medians over known values, NaN for rows without any."""
    n_rows, n_points = values.shape
    result = np.full(n_rows, np.nan)
    known = np.empty(n_points)
    for row in range(n_rows):
        n = known_of(values[row], known)
        if n > 0:
            upper = select(known, n, n // 2)
            lower = upper
            if n % 2 == 0:
                # What lies before the chosen one is not greater.
                lower = known[0]
                for place in range(n // 2):
                    lower = max(lower, known[place])
            result[row] = (lower + upper) / 2
    return result


@numba.njit(cache=True, nogil=True, error_model="numpy")
def largest_and_quantile(values: Array, share: float) -> tuple[float, float]:
    """The largest magnitude of known values and their quantile (between neighbours as numpy does it); NaN where none is known."""
    known = np.empty(values.size)
    n, largest = 0, -np.inf
    for line in values:
        for place in range(len(line)):
            size = abs(line[place])
            known[n] = size
            n += size < np.inf
            largest = size if largest < size < np.inf else largest
    if n == 0:
        return np.nan, np.nan
    wanted = share * (n - 1)
    rank = int(wanted)
    _, lower, upper = _three(known, n, rank, np.empty(n + 1), np.zeros(2))
    upper = upper if rank + 1 < n else lower
    part = wanted - rank
    # From the nearer end, so that rounding is numpy's.
    between = lower + (upper - lower) * part if part < 0.5 else upper - (upper - lower) * (1 - part)
    return largest, between
