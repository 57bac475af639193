"""Units as exporters spell them, brought to the metric's own, and values that no sensor can have measured.

Two exporters give one metric in different units (milliwatts and watts, a ratio and per cent): where the file says the
unit, values are converted. Where it says none, a value outside the metric's range is implausible and not used.
"""

from __future__ import annotations

from ml.machines.limits import FP64_BLANKS, INT32_BLANKS, INT64_BLANK, RANGES

SPELLED: dict[str, tuple[str, float]] = {
    "%": ("pct", 1.0), "percent": ("pct", 1.0), "pct": ("pct", 1.0), "ratio": ("pct", 100.0), "fraction": ("pct", 100.0),
    "w": ("W", 1.0), "watt": ("W", 1.0), "watts": ("W", 1.0), "mw": ("W", 1e-3), "milliwatts": ("W", 1e-3), "kw": ("W", 1e3),
    "j": ("J", 1.0), "joules": ("J", 1.0), "mj": ("J", 1e-3), "kj": ("J", 1e3), "wh": ("J", 3600.0), "kwh": ("J", 3.6e6),
    "s": ("s", 1.0), "seconds": ("s", 1.0), "ms": ("s", 1e-3), "milliseconds": ("s", 1e-3), "us": ("s", 1e-6),
    "µs": ("s", 1e-6), "microseconds": ("s", 1e-6), "ns": ("s", 1e-9), "nanoseconds": ("s", 1e-9),
    "hz": ("Hz", 1.0), "khz": ("Hz", 1e3), "mhz": ("Hz", 1e6), "ghz": ("Hz", 1e9),
    "b": ("B", 1.0), "bytes": ("B", 1.0), "kb": ("B", 1e3), "kib": ("B", 1024.0), "mb": ("B", 1e6), "mib": ("B", 1048576.0),
    "gb": ("B", 1e9), "gib": ("B", 1073741824.0),
    "b/s": ("B/s", 1.0), "bytes/s": ("B/s", 1.0), "kb/s": ("B/s", 1e3), "mb/s": ("B/s", 1e6), "gb/s": ("B/s", 1e9),
    "bit/s": ("B/s", 0.125), "bps": ("B/s", 0.125), "mbit/s": ("B/s", 125e3), "gbit/s": ("B/s", 125e6),
    "c": ("C", 1.0), "celsius": ("C", 1.0), "°c": ("C", 1.0),
}  # fmt: skip
"""Base unit and how many of it one is."""


def converted(value: float, given: str | None, wanted: str | None) -> tuple[float, str | None]:
    """A value in the wanted unit, and the unit that it has now: the given one where the two do not measure the same.

    >>> converted(250_000.0, "mW", "W"), converted(0.5, "ratio", "pct"), converted(68.0, "F", "C")
    ((250.0, 'W'), (50.0, 'pct'), (20.0, 'C'))
    """
    if not given or not wanted or given == wanted:
        return value, wanted or given
    low = given.strip().lower()
    if low in ("f", "fahrenheit", "°f") and wanted == "C":
        return (value - 32.0) / 1.8, "C"
    if low in ("k", "kelvin") and wanted == "C":
        return value - 273.15, "C"
    base, factor = SPELLED.get(low, (low, 1.0))
    wanted_base, wanted_factor = SPELLED.get(wanted.lower(), (wanted, 1.0))
    return (value * factor / wanted_factor, wanted) if base == wanted_base else (value, given)


def is_implausible(value: float, unit: str | None) -> bool:
    """Whether a unit rules a value out. Exporters' blanks are not meant: they say that there is no value.

    >>> is_implausible(250_000.0, "pct"), is_implausible(99.0, "pct"), is_implausible(2147483632.0, "pct")
    (True, False, False)
    """
    if unit not in RANGES or abs(value) >= INT64_BLANK or value in INT32_BLANKS or value in FP64_BLANKS:
        return False
    low, high = RANGES[unit]
    return value < low or value > high * (1.05 if unit in ("pct", "ratio") else 1.0)
