"""What no sensor can have measured: blank sentinels of exporters, and values outside a unit's range."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

INT64_BLANK = float(2**63 - 1) - 1024.0
"""DCGM's 64-bit blanks lie a few below 2**63, where floats are 1024 apart."""
INT32_BLANKS = (2147483632.0, 2147483633.0, 2147483634.0, 2147483635.0)
FP64_BLANKS = (140737488355328.0, 140737488355329.0, 140737488355330.0, 140737488355331.0)

RANGES: dict[str, tuple[float, float]] = {
    "pct": (0.0, 100.0),
    "ratio": (0.0, 1.0),
    "C": (-60.0, 200.0),
    "W": (0.0, 1e6),
    "MHz": (0.0, 1e5),
    "Hz": (0.0, 1e11),
    "B": (0.0, float("inf")),
    "MiB": (0.0, float("inf")),
    "s": (0.0, float("inf")),
    "count": (0.0, float("inf")),
}
"""Least and greatest possible value by unit. Percentages and ratios get 5 % grace: exporters overshoot a little."""


def possible(values: Array, unit: str) -> Array:
    """The values with sentinels and what the unit rules out replaced by NaN.

    >>> possible(np.array([50.0, -1.0, 2147483632.0]), "pct").tolist()
    [50.0, nan, nan]
    """
    blank = np.abs(values) >= INT64_BLANK
    blank |= np.isin(values, INT32_BLANKS) | np.isin(values, FP64_BLANKS)
    low, high = RANGES.get(unit, (-np.inf, np.inf))
    grace = 1.05 if unit in ("pct", "ratio") else 1.0
    with np.errstate(invalid="ignore"):
        return np.where(blank | (values < low) | (values > high * grace), np.nan, values)
