"""Medians of the other machines, bin by bin, compiled. Arrays are turned: bins × machines."""

from __future__ import annotations

import numba
import numpy as np

Array = np.ndarray

MIN_PEERS = 3
"""With fewer others than this there is no majority to differ from: no answer."""


@numba.njit(cache=True, nogil=True)
def _select(values: Array, n: int, rank: int) -> float:
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


@numba.njit(cache=True, nogil=True)
def _known_of(line: Array, known: Array) -> int:
    """How many values of a line are known; they are copied to the front of `known`."""
    n = 0
    for value in line:
        if value == value:
            known[n] = value
            n += 1
    return n


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def _middle_three(known: Array, n: int, near: Array, guess: Array) -> tuple[float, float, float]:
    """The value before the middle one of the first `n`, the middle one (rank n // 2), and the one after it.

    Neighbouring bins have nearly the same median: first only what lies within `guess` (centre, reach) is looked at, which
    one pass collects; all of it where that does not hold the middle. `guess` is set anew for the next bin.
    """
    half = n // 2
    low, high = guess[0] - guess[1], guess[0] + guess[1]
    n_below, n_near = 0, 0
    for place in range(n):
        value = known[place]
        n_below += value < low
        near[n_near] = value
        n_near += (value >= low) & (value <= high)
    rank = half - n_below
    if 1 <= rank < n_near - 1:
        guess[1] *= 0.8 if n_near > n // 8 else 1.0
    else:
        near[:n] = known[:n]
        n_near, rank = n, half
        spread = known[:n].max() - known[:n].min()
        guess[1] = min(max(guess[1] * 2.0, spread / 64), spread)
    middle = _select(near, n_near, rank)
    below, above = -np.inf, np.inf
    for place in range(rank):
        below = max(below, near[place])
    for place in range(rank + 1, n_near):
        above = min(above, near[place])
    guess[0] = middle
    return below, middle, above


@numba.njit(cache=True, nogil=True)
def others_median_turned(values: Array) -> Array:
    """Median over the other machines at each bin: bins × machines; NaN where fewer than MIN_PEERS others are known."""
    n_bins, n_rows = values.shape
    result = np.full((n_bins, n_rows), np.nan)
    known, near = np.empty(n_rows), np.empty(n_rows + 1)
    guess = np.zeros(2)
    for at in range(n_bins):
        n = _known_of(values[at], known)
        if n < MIN_PEERS:
            continue
        below, middle, above = _middle_three(known, n, near, guess)
        _leave_out(values[at], below, middle, above, n % 2 == 1, result[at])
        if n == MIN_PEERS:
            for row in range(n_rows):
                if values[at, row] == values[at, row]:
                    result[at, row] = np.nan
    return result
