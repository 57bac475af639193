"""Which setting best separates a group of jobs from the others: counts, odds with an interval, corrected.

Fisher's exact test on each value of each key (two-sided as twice the smaller tail); a key's p is its best value's,
times the number of its values; Holm's correction over the keys tried. The odds ratio takes Haldane's correction (a half
is added to each cell), its 95 % interval is Woolf's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_GROUP = 3
MIN_OTHERS = 3
MAX_P = 0.05
N_SEPARATORS = 10
_Z95 = 1.959964


@dataclass(frozen=True)
class Separator:
    """One setting with its two-by-two table, its odds ratio with interval, and its p before and after correction."""

    key: str
    value: str
    n_group_with: int
    n_group: int
    n_others_with: int
    n_others: int
    odds_ratio: float
    odds_low: float
    odds_high: float
    p_value: float
    p_adjusted: float
    n_keys: int


def separate(
    keys: Sequence[str], values: Sequence[str], group_with: Sequence[int], others_with: Sequence[int], n_group: int, n_others: int
) -> list[Separator]:
    """The settings whose frequency differs beyond chance, best first; none for fewer than three jobs on a side.

    One entry a value of a key: in how many jobs of the group, and of the others, it stands. Values that all jobs of both
    sides have separate nothing and are not tried.
    """
    if n_group < MIN_GROUP or n_others < MIN_OTHERS or not len(keys):
        return []
    a, c = np.asarray(group_with, dtype=np.int64), np.asarray(others_with, dtype=np.int64)
    tried = np.flatnonzero(a + c < n_group + n_others)
    if not len(tried):
        return []
    p = _fisher(a, c, n_group, n_others)
    # Of two values that tell equally well, the one that the group has more often is shown.
    is_rarer = a * n_others < c * n_group
    best: dict[str, tuple[float, bool, str, int]] = {}
    n_values: dict[str, int] = {}
    for row in tried.tolist():
        n_values[keys[row]] = n_values.get(keys[row], 0) + 1
        entry = (float(f"{p[row]:.9e}"), bool(is_rarer[row]), values[row], row)
        best[keys[row]] = min(best.get(keys[row], entry), entry)
    by_key = sorted((min(1.0, entry[0] * n_values[key]), key, entry) for key, entry in best.items())
    found: list[Separator] = []
    floor = 0.0
    for place, (key_p, key, (raw, _, _, row)) in enumerate(by_key):
        floor = max(floor, min(1.0, key_p * (len(by_key) - place)))
        if floor > MAX_P or len(found) == N_SEPARATORS:
            break
        ratio, low, high = odds(int(a[row]), n_group, int(c[row]), n_others)
        found.append(
            Separator(key, values[row], int(a[row]), n_group, int(c[row]), n_others, ratio, low, high, raw, floor, len(by_key))
        )
    return found


def odds(n_group_with: int, n_group: int, n_others_with: int, n_others: int) -> tuple[float, float, float]:
    """Odds ratio and the ends of its 95 % interval."""
    cells = np.array([n_group_with, n_group - n_group_with, n_others_with, n_others - n_others_with], dtype=float) + 0.5
    log_ratio = float(np.log(cells[0] * cells[3] / (cells[1] * cells[2])))
    spread = _Z95 * float(np.sqrt((1 / cells).sum()))
    return float(np.exp(log_ratio)), float(np.exp(log_ratio - spread)), float(np.exp(log_ratio + spread))


def _fisher(a: NDArray[np.int64], c: NDArray[np.int64], n_group: int, n_others: int) -> NDArray[np.float64]:
    """Two-sided p of each two-by-two table, as twice the smaller hypergeometric tail."""
    from scipy.stats import hypergeom

    above = hypergeom.sf(a - 1, n_group + n_others, a + c, n_group)
    below = hypergeom.cdf(a, n_group + n_others, a + c, n_group)
    p: NDArray[np.float64] = np.minimum(1.0, 2 * np.minimum(above, below))
    return p


def statement(found: Separator, group: str, others: str = "successful") -> str:
    """The hint in one sentence."""
    return (
        f"a hint, not a cause: {found.key} = {found.value[:80]} in {found.n_group_with} of {found.n_group} {group} jobs and in "
        f"{found.n_others_with} of {found.n_others} {others} jobs of the same models (odds ratio {found.odds_ratio:.3g}, "
        f"95 % interval {found.odds_low:.3g} to {found.odds_high:.3g}; p = {found.p_adjusted:.2g} after correction for "
        f"{found.n_keys} keys)"
    )
