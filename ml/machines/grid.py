"""Metric samples of one job put on regular grids: one row a series, its values as an array.

Machines are compared point by point, so all series of one metric share one grid (start, period, length). Nothing is
invented: a point without a sample close enough stays null, and what a sensor cannot have measured is null before any
statistic sees it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ml.machines.limits import possible

Array = np.ndarray

MAX_GAP_PERIODS = 3.0
"""A point further than this many periods from every sample is null (a scrape or two may be missing, not more)."""
MAX_POINTS = 1_000_000
"""Longest grid; beyond it the densest stretch of time is kept, and if that is still too long the period grows."""
BREAK_US = 3_600_000_000
"""A silence of an hour separates stretches of time when a grid would be too long (a clock at 1970)."""
NICE_PERIODS_S = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 3600.0)

GRID = pa.schema([
    pa.field("node", pa.string(), nullable=False),
    pa.field("device", pa.string()),
    pa.field("metric", pa.string(), nullable=False),
    pa.field("unit", pa.string()),
    pa.field("is_rate", pa.bool_(), nullable=False),
    pa.field("grid_start_at", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("period_s", pa.float64(), nullable=False),
    pa.field("values", pa.list_(pa.float64()), nullable=False),
    pa.field("n_samples", pa.int64(), nullable=False),
    pa.field("n_gap_points", pa.int64(), nullable=False),
])  # fmt: skip
"""Columns of `machine_metrics` without the job and the file, which the caller knows."""


@dataclass(frozen=True)
class Grid:
    """Times of a metric's points: `start_us + i * period_us` for i below `n_points`."""

    start_us: int
    period_us: int
    n_points: int

    def times_us(self) -> Array:
        """The points, in microseconds since 1970."""
        return self.start_us + np.arange(self.n_points, dtype=np.int64) * self.period_us


def to_grid(samples: pa.Table) -> pa.Table:
    """Put one job's samples on grids.

    `samples` has the columns node, device, metric, unit, is_counter, at_us (int64, UTC) and value, in any order of
    rows, with duplicates. Returns a table of schema `GRID`, a row a (node, device, metric), sorted by metric, node and
    device. Counters become rates per second that survive resets; `_total` at the end of their name becomes `_rate`.

    >>> to_grid(pa.table({"node": ["a", "a"], "device": [None, None], "metric": ["x_total"] * 2, "unit": ["B", "B"],
    ...                   "is_counter": [True, True], "at_us": [0, 1_000_000], "value": [5.0, 9.0]}))["values"].to_pylist()
    [[None, 4.0]]
    """
    usable = _usable(samples)
    rows: list[dict[str, object]] = []
    if len(usable):
        usable = usable.sort_by([(name, "ascending") for name in ("metric", "node", "device", "at_us", "value")])
        for metric_rows in _runs(usable, ("metric",)):
            rows += _metric_rows(metric_rows)
    return pa.Table.from_pylist(rows, schema=GRID)


def _usable(samples: pa.Table) -> pa.Table:
    """Samples with a place, a name, a time and a number; sentinels and impossible values become NaN, not gone.

    A sentinel is a sample all the same: it says that the sensor was asked, so its point is null rather than filled
    from a neighbour.
    """
    for name in ("node", "metric", "device", "unit"):
        samples = samples.set_column(samples.column_names.index(name), name, pc.cast(samples[name], pa.string()))
    for name, kind in (("is_counter", pa.bool_()), ("at_us", pa.int64()), ("value", pa.float64())):
        samples = samples.set_column(samples.column_names.index(name), name, pc.cast(samples[name], kind))
    known = pc.and_(pc.is_valid(samples["node"]), pc.and_(pc.is_valid(samples["metric"]), pc.is_valid(samples["at_us"])))
    samples = samples.filter(pc.and_(known, pc.is_valid(samples["value"])))
    counter = pc.fill_null(samples["is_counter"], False)
    samples = samples.set_column(samples.column_names.index("is_counter"), "is_counter", counter)
    values = samples["value"].to_numpy().astype(np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    units = pc.fill_null(samples["unit"], "").combine_chunks().dictionary_encode()
    codes = units.indices.to_numpy(zero_copy_only=False)
    for code, unit in enumerate(units.dictionary.to_pylist()):
        mine = codes == code
        values[mine] = possible(values[mine], unit)
    return samples.set_column(samples.column_names.index("value"), "value", pa.array(values, from_pandas=False))


def _runs(table: pa.Table, keys: tuple[str, ...]) -> list[pa.Table]:
    """Slices of a sorted table with equal keys."""
    new = np.zeros(len(table), dtype=bool)
    new[0] = True
    for key in keys:
        codes = table[key].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        new[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(table))
    return [table.slice(start, end - start) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _metric_rows(table: pa.Table) -> list[dict[str, object]]:
    """Rows of one metric: its grid, then each series on it."""
    series = _runs(table, ("node", "device"))
    times = [s["at_us"].to_numpy() for s in series]
    grid = _grid_of(times)
    is_counter = bool(pc.any(table["is_counter"]).as_py())
    rows = []
    for each, at_us in zip(series, times, strict=True):
        value = each["value"].to_numpy()
        last = np.append(at_us[1:] != at_us[:-1], True)
        put = rate_on_grid if is_counter else nearest_on_grid
        values = put(at_us[last], value[last], grid)
        metric = each["metric"][0].as_py()
        unit = each["unit"][0].as_py()
        rows.append({
            "node": each["node"][0].as_py(),
            "device": each["device"][0].as_py(),
            "metric": metric.removesuffix("_total") + "_rate" if is_counter else metric,
            "unit": f"{unit}/s" if is_counter and unit else unit,
            "is_rate": is_counter,
            "grid_start_at": grid.start_us,
            "period_s": grid.period_us / 1e6,
            "values": pa.array(values, from_pandas=True),
            "n_samples": len(each),
            "n_gap_points": int(np.isnan(values).sum()),
        })  # fmt: skip
    return rows


def _grid_of(times: list[Array]) -> Grid:
    """The grid that fits a metric's series: the typical distance of samples, from the first sample to the last."""
    period_us = _period_us(times)
    at_us = np.sort(np.concatenate(times))
    if (at_us[-1] - at_us[0]) // period_us >= MAX_POINTS:
        at_us = _densest(at_us)
        period_us = max(period_us, int(np.ceil((at_us[-1] - at_us[0]) / (MAX_POINTS - 2))))
    start = int(np.round(at_us[0] / period_us)) * period_us
    n_points = int(np.round((at_us[-1] - start) / period_us)) + 1
    return Grid(start, period_us, max(n_points, 1))


def _period_us(times: list[Array]) -> int:
    """Median over series of the median distance between samples, snapped to a usual scrape period when near one."""
    typical = []
    for at_us in times:
        steps = np.diff(at_us)
        steps = steps[steps > 0]
        if len(steps):
            typical.append(float(np.median(steps)))
    if not typical:
        return 1_000_000
    period_s = float(np.median(typical)) / 1e6
    near = min(NICE_PERIODS_S, key=lambda nice: abs(np.log(nice / period_s)))
    if abs(near / period_s - 1) <= 0.1:
        period_s = near
    return max(round(period_s * 1e6), 1000)


def _densest(at_us: Array) -> Array:
    """The stretch between silences of an hour that holds most samples; the earliest of equals."""
    cuts = np.flatnonzero(np.diff(at_us) > BREAK_US) + 1
    return max(np.split(at_us, cuts), key=len)


def nearest_on_grid(at_us: Array, value: Array, grid: Grid) -> Array:
    """Value of the nearest sample at each point, NaN where none is near enough. `at_us` rises strictly."""
    points = grid.times_us()
    right = np.searchsorted(at_us, points).clip(0, len(at_us) - 1)
    left = (right - 1).clip(0)
    near = np.where(np.abs(points - at_us[left]) <= np.abs(at_us[right] - points), left, right)
    far = np.abs(at_us[near] - points) > _reach_us(at_us, grid)
    return np.where(far, np.nan, value[near])


def rate_on_grid(at_us: Array, value: Array, grid: Grid) -> Array:
    """Increase per second over the period that ends at each point.

    A value below its predecessor is a reset: the counter began again at zero, so the value itself is the increase (as
    Prometheus counts). Between samples the counter is taken to grow evenly, which keeps the total. Points whose period
    touches a gap larger than allowed, or lies outside the samples, are NaN.
    """
    known = np.isfinite(value)
    at_us, value = at_us[known], value[known]
    if len(at_us) < 2:
        return np.full(grid.n_points, np.nan)
    step = np.diff(value)
    total = np.concatenate([[0.0], np.cumsum(np.where(step < 0, value[1:], step))])
    ends = grid.times_us()
    # The first and last points may lie up to half a period outside the samples: the grid is rounded to whole periods.
    slack = grid.period_us // 2 + 1
    begins = ends - grid.period_us
    grown = np.interp(ends, at_us, total) - np.interp(begins, at_us, total)
    covered_s = (np.clip(ends, at_us[0], at_us[-1]) - np.clip(begins, at_us[0], at_us[-1])) / 1e6
    outside = (begins < at_us[0] - slack) | (ends > at_us[-1] + slack) | (covered_s <= 0)
    gap_us = np.diff(at_us)
    wide = np.concatenate([[0], np.cumsum(gap_us > 2 * _reach_us(at_us, grid))])
    first = np.searchsorted(at_us, begins, side="right").clip(1, len(at_us) - 1)
    final = np.searchsorted(at_us, ends, side="left").clip(1, len(at_us) - 1)
    torn = wide[final] - wide[first - 1] > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(outside | torn, np.nan, grown / covered_s)


def _reach_us(at_us: Array, grid: Grid) -> float:
    """How far a sample's word holds: some periods of the grid, or of the series itself when that is sampled coarser."""
    own = float(np.median(np.diff(at_us))) if len(at_us) > 1 else grid.period_us
    return MAX_GAP_PERIODS / 2 * max(grid.period_us, min(own, 4 * grid.period_us))
