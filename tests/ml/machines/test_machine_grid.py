"""Samples on grids: gaps, counters, duplicates, sentinels, clocks."""

import math

import pyarrow as pa
import pytest

from ml.machines.grid import to_grid

T0 = 1_700_000_000


def samples(*rows, metric="m", unit=None, is_counter=False, node="a", device=None):
    """Rows (seconds after T0, value) of one series."""
    return pa.table({
        "node": [node] * len(rows), "device": pa.array([device] * len(rows), pa.string()), "metric": [metric] * len(rows),
        "unit": pa.array([unit] * len(rows), pa.string()), "is_counter": [is_counter] * len(rows),
        "at_us": [round((T0 + at) * 1e6) for at, _ in rows], "value": pa.array([v for _, v in rows], pa.float64()),
    })  # fmt: skip


def values(table):
    return to_grid(table)["values"].to_pylist()


def test_a_missing_scrape_takes_the_nearest_sample_and_a_long_gap_stays_null():
    # one scrape missing at 2; seven missing from 6 to 12
    (row,) = values(samples(*[(at, float(at)) for at in (0, 1, 3, 4, 5, 13, 14, 15)]))
    assert row[:6] == [0.0, 1.0, 1.0, 3.0, 4.0, 5.0]
    assert row[7:12] == [None] * 5
    assert row[13:] == [13.0, 14.0, 15.0]


def test_a_counter_becomes_a_rate_that_survives_a_reset():
    # grows by 10 a second, the node reboots at 3 and counts from zero: 4 is the increase, not minus 26
    (row,) = values(samples((0, 10.0), (1, 20.0), (2, 30.0), (3, 4.0), (4, 14.0), metric="x_total", is_counter=True))
    assert row == [None, 10.0, 10.0, 4.0, 10.0]


def test_a_rate_names_itself_and_its_unit():
    table = to_grid(samples((0, 1.0), (1, 2.0), metric="rx_bytes_total", unit="B", is_counter=True))
    assert table.select(["metric", "unit", "is_rate"]).to_pylist() == [{"metric": "rx_bytes_rate", "unit": "B/s", "is_rate": True}]


def test_rates_keep_the_total_when_scrapes_are_late():
    # jittered scrape times, 7 a second in truth
    table = samples(*[(at, 7.0 * at) for at in (0, 1.1, 1.9, 3.2, 4.0, 5.0)], metric="x_total", is_counter=True)
    (row,) = values(table)
    assert sum(v for v in row if v is not None) == pytest.approx(35.0)


def test_duplicates_and_disorder_give_the_same_grid():
    ordered = samples((0, 1.0), (1, 2.0), (2, 3.0))
    shuffled = samples((2, 3.0), (0, 1.0), (1, 2.0), (1, 2.0), (0, 1.0))
    assert values(ordered) == values(shuffled)


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        (9223372036854775794.0, "W"),  # DCGM: not supported, 64 bits
        (2147483632.0, None),  # blank, 32 bits
        (140737488355329.0, None),  # blank, double
        (-5.0, "pct"), (180.0, "pct"), (math.inf, None), (math.nan, "W"),
    ],
)  # fmt: skip
def test_what_no_sensor_measures_is_null(value, unit):
    (row,) = values(samples((0, 50.0), (1, value), (2, 51.0), unit=unit))
    assert row == [50.0, None, 51.0]


def test_all_machines_of_a_metric_share_one_grid():
    # b starts two seconds later and ends two seconds earlier
    table = pa.concat_tables([
        samples(*[(at, float(at)) for at in range(10)], node="a"),
        samples(*[(at, float(at)) for at in range(2, 8)], node="b"),
    ])  # fmt: skip
    rows = to_grid(table).to_pylist()
    assert rows[0]["grid_start_at"] == rows[1]["grid_start_at"]
    assert len(rows[0]["values"]) == len(rows[1]["values"]) == 10
    # the last sample still speaks for one point after it, not for more
    assert rows[1]["values"][0] is None
    assert rows[1]["values"][9] is None
    assert rows[1]["n_gap_points"] == sum(v is None for v in rows[1]["values"])


def test_half_second_scrapes_and_minutes_find_their_period():
    half = to_grid(samples(*[(0.503 * i, 1.0) for i in range(50)]))["period_s"][0].as_py()
    minute = to_grid(samples(*[(60 * i, 1.0) for i in range(50)]))["period_s"][0].as_py()
    assert (half, minute) == (0.5, 60.0)


def test_a_clock_at_1970_does_not_make_a_grid_of_fifty_years():
    table = samples((-T0 + 1, 5.0), *[(at, 1.0) for at in range(100)])
    (row,) = values(table)
    assert len(row) == 100


def test_nothing_usable_gives_no_rows():
    assert len(to_grid(samples((0, None), (1, None)))) == 0
    assert len(to_grid(samples())) == 0
