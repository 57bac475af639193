"""Metric formats: the same samples from each, and bad bytes that never raise."""

import io
import json
from datetime import UTC, datetime

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.adapters import metrics_samples
from jobs.adapters.base import FileContext, Placement, Problem, Rows, Tally
from jobs.adapters.metrics_clustercockpit import ClusterCockpit
from jobs.adapters.metrics_csv import MetricsCsv
from jobs.adapters.metrics_openmetrics import OpenMetricsText
from jobs.adapters.metrics_parquet import MetricsParquet
from jobs.adapters.metrics_prometheus import PrometheusJson
from jobs.adapters.metrics_samples import parse_time
from jobs.adapters.metrics_victoria import VictoriaLines
from schemas.quarantine import REASONS

ALL = (MetricsCsv(), OpenMetricsText(), PrometheusJson(), VictoriaLines(), MetricsParquet(), ClusterCockpit())
T0 = 1_700_000_000
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def parse(adapter, raw, path="metrics/n1.csv", **known):
    """(samples as tuples, problems, tally)."""
    rows, problems, tallies = [], [], []
    for item in adapter.parse(io.BytesIO(raw), FileContext("job", path, **known)):
        if isinstance(item, Rows):
            assert item.table == "metric_samples"
            names = ("node", "device", "metric", "unit", "is_counter", "at_us", "value")
            rows += list(zip(*(item.columns[name] for name in names), strict=True))
        elif isinstance(item, Problem):
            problems.append(item)
        else:
            tallies.append(item)
    assert len(tallies) == 1
    assert isinstance(tallies[0], Tally)
    assert tallies[0].n_read >= sum(p.n_records for p in problems)
    assert {p.reason for p in problems} <= set(REASONS)
    return rows, problems, tallies[0]


def test_a_column_a_metric_with_the_machine_in_the_file_s_name():
    raw = b"timestamp,cpu_seconds_total,network_up\n2023-11-14T22:13:20Z,1.5,1\n2023-11-14T22:13:21Z,2.0,\n"
    rows, problems, tally = parse(MetricsCsv(), raw, "metrics/gpu-7.csv")
    assert rows == [
        ("gpu-7", None, "cpu_seconds_total", "s", True, T0 * 10**6, 1.5),
        ("gpu-7", None, "network_up", None, False, T0 * 10**6, 1.0),
        ("gpu-7", None, "cpu_seconds_total", "s", True, (T0 + 1) * 10**6, 2.0),
    ]
    assert (problems, tally.n_read, tally.n_understood) == ([], 2, 2)
    assert (tally.first_at, tally.last_at) == (AT, AT.replace(second=21))


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        # a row a sample
        (b"time,host,metric,value\n1700000000,n1,gpu_temp,55\n1700000000,n2,gpu_temp,56\n", {}),
        # a machine column and metric columns
        (b"node,time_ms,gpu_temp\nn1,1700000000000,55\nn2,1700000000000,56\n", {}),
        # a column a machine, the metric in the file's name
        (b"Time,n1,n2\n2023-11-14 22:13:20,55,56\n", {"placements": (Placement(0, "n1"), Placement(1, "n2"))}),
        # semicolons
        (b"time;node;metric;value\n1700000000;n1;gpu_temp;55\n1700000000;n2;gpu_temp;56\n", {}),
    ],
    ids=["long", "machine column", "machines as columns", "semicolons"],
)
def test_csv_layouts_say_the_same(raw, known):
    rows, problems, _ = parse(MetricsCsv(), raw, "metrics/gpu_temp.csv", **known)
    assert [(r[0], r[2], r[5], r[6]) for r in rows] == [("n1", "gpu_temp", T0 * 10**6, 55.0), ("n2", "gpu_temp", T0 * 10**6, 56.0)]
    assert problems == []


def test_machines_as_addresses_are_machines():
    rows, _, _ = parse(MetricsCsv(), b"Time,10.0.0.1,10.0.0.2\n2023-11-14 22:13:20+00:00,5,6\n", "metrics/GPU_UTIL.csv")
    assert [(r[0], r[2]) for r in rows] == [("10.0.0.1", "gpu.util.pct"), ("10.0.0.2", "gpu.util.pct")]


def test_bad_lines_are_told_with_their_offset_and_the_good_ones_kept():
    raw = b"timestamp,x\n1700000000,1\nnot a time,2\n1700000001\n1700000002,3\n"
    rows, problems, tally = parse(MetricsCsv(), raw)
    assert [r[6] for r in rows] == [1.0, 3.0]
    assert [(p.reason, p.offset) for p in problems] == [("bad_value", 25), ("bad_value", 38)]
    assert (tally.n_read, tally.n_understood) == (4, 2)


def test_a_wholly_broken_file_stays_a_few_problems():
    raw = b"timestamp,x\n" + b"never,1\n" * 5000
    _, problems, tally = parse(MetricsCsv(), raw)
    assert len(problems) <= 101
    assert sum(p.n_records for p in problems) == tally.n_read == 5000


@pytest.mark.parametrize(
    "text", ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000", "1700000000.0", "2023-11-14T22:13:20Z",
             "2023-11-14 22:13:20+00:00", "2023/11/14 22:13:20"],
)  # fmt: skip
def test_every_notation_of_a_time_is_the_same_time(text):
    assert parse_time(text) == T0 * 10**6


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "0", "1e300", "9999-99-99T00:00:00Z"])
def test_impossible_times_are_none(text):
    assert parse_time(text) is None


def test_stamps_without_a_zone_take_the_cluster_s():
    assert parse_time("2023-11-14 23:13:20", "Europe/Berlin") == T0 * 10**6


PROMETHEUS = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "n1", "gpu": "3", "modelName": "H100"},
         "values": [[T0, "55"], [T0 + 15, "NaN"]]},
        {"metric": {"__name__": "node_network_receive_bytes_total", "instance": "n2:9100", "device": "eth0"},
         "values": [[T0, "1e9"]]},
    ]},
}  # fmt: skip


def test_prometheus_matrix_becomes_canonical_samples():
    rows, problems, tally = parse(PrometheusJson(), json.dumps(PROMETHEUS).encode(), "metrics/q.json")
    assert rows[0] == ("n1", "3", "gpu.temp.c", "C", False, T0 * 10**6, 55.0)
    assert rows[1][6] != rows[1][6]  # NaN is a value, null on the grid
    assert rows[2] == ("n2", "eth0", "node_network_receive_bytes_total", "B", True, T0 * 10**6, 1e9)
    assert (problems, tally.n_read) == ([], 3)


def test_labels_that_distinguish_series_stay_in_the_name():
    series = [
        {"metric": {"__name__": "node_cpu_seconds_total", "cpu": "0", "mode": m}, "values": [[T0, "1"]]} for m in ("user", "idle")
    ]
    raw = json.dumps({"data": {"resultType": "matrix", "result": series}}).encode()
    assert {r[2] for r in parse(PrometheusJson(), raw, node="n1")[0]} == {
        "node_cpu_seconds[mode=user]_total", "node_cpu_seconds[mode=idle]_total",
    }  # fmt: skip


def test_truncated_json_keeps_what_came_before():
    raw = json.dumps(PROMETHEUS).encode()[:-40]
    rows, problems, _ = parse(PrometheusJson(), raw)
    assert len(rows) >= 2
    assert [p.reason for p in problems] == ["broken_json"]


def test_openmetrics_text_with_types_and_stamps():
    raw = b"""# HELP DCGM_FI_DEV_POWER_USAGE Power.
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="n1"} 412.5 1700000000000
# TYPE io_reads counter
io_reads_total{node="n1",disk="a\\"b"} 7 1700000000
nonsense here
# EOF
"""
    rows, problems, tally = parse(OpenMetricsText(), raw, "metrics/x.prom")
    assert rows[0] == ("n1", "0", "gpu.power.w", "W", False, T0 * 10**6, 412.5)
    assert rows[1][2:5] == ('io_reads[disk=a"b]_total', None, True)
    assert [p.reason for p in problems] == ["bad_value"]
    assert tally.n_read == 3


def test_victoria_lines():
    line = {
        "metric": {"__name__": "gpu_util", "host": "n1", "gpu": "0"},
        "values": [50, None],
        "timestamps": [T0 * 1000, T0 * 1000 + 1],
    }
    rows, problems, tally = parse(VictoriaLines(), orjson.dumps(line) + b"\n{broken\n", "metrics/v.jsonl")
    assert rows == [("n1", "0", "gpu.util.pct", "pct", False, T0 * 10**6, 50.0)]
    assert [(p.reason, p.offset > 0) for p in problems] == [("broken_json", True)]
    assert tally.n_read == 3


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_parquet_long_and_wide(layout):
    if layout == "long":
        table = pa.table({"timestamp": pa.array([AT], pa.timestamp("us", tz="UTC")), "name": ["gpu_util"], "value": [50.0],
                          "labels": pa.array([[("host", "n1"), ("gpu", "0")]], pa.map_(pa.string(), pa.string()))})  # fmt: skip
    else:
        table = pa.table({"time": pa.array([T0], pa.int64()), "node": ["n1"], "gpu": [0], "gpu_util": [50.0]})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    rows, problems, _ = parse(MetricsParquet(), buffer.getvalue(), "metrics/m.parquet")
    assert rows == [("n1", "0", "gpu.util.pct", "pct", False, T0 * 10**6, 50.0)]
    assert problems == []


def test_cluster_cockpit_series_begin_with_the_job():
    data = {"mem_bw": {"node": {"timestep": 60, "unit": {"base": "B/s", "prefix": "G"},
                                "series": [{"hostname": "e1", "data": [1.5, None, 2.0]}]}}}  # fmt: skip
    rows, problems, tally = parse(ClusterCockpit(), json.dumps(data).encode(), "metrics/data.json", started_at=AT)
    assert rows == [
        ("e1", None, "mem_bw", "B/s", False, T0 * 10**6, 1.5e9),
        ("e1", None, "mem_bw", "B/s", False, (T0 + 120) * 10**6, 2.0e9),
    ]
    assert (problems, tally.n_read) == ([], 3)


def test_the_last_xid_counts_when_it_changes_only():
    raw = b"time,node,DCGM_FI_DEV_XID_ERRORS\n1700000000,n1,0\n1700000001,n1,79\n1700000002,n1,79\n1700000003,n1,79\n"
    assert [r[6] for r in parse(MetricsCsv(), raw)[0]] == [0.0, 79.0, 0.0, 0.0]


@pytest.mark.parametrize("adapter", ALL, ids=lambda a: a.name)
@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=400))
def test_no_bytes_make_an_adapter_raise(adapter, raw):
    assert 0.0 <= adapter.sniff("metrics/x", raw) <= 1.0
    parse(adapter, raw)
    parse(adapter, b"timestamp,x\n" + raw)
    parse(adapter, b'{"data":{"resultType":"matrix","result":[{"metric":' + raw)


@pytest.mark.parametrize(
    ("adapter", "raw"),
    [
        (MetricsCsv(), b"timestamp,x\n" + b"1" * (6 << 20) + b"\n1700000000,5\n"),
        (OpenMetricsText(), b"m{" + b'a="b",' * 200_000 + b"} 1 1700000000\nok 5 1700000000\n"),
        (
            VictoriaLines(),
            b'{"metric":' + b"[" * (5 << 20) + b'\n{"metric":{"__name__":"ok"},"values":[5],"timestamps":[1700000000000]}\n',
        ),
    ],
    ids=["csv", "openmetrics", "victoria"],
)
def test_endless_lines_are_skipped_and_the_next_one_read(adapter, raw):
    rows, problems, _ = parse(adapter, raw)
    assert [r[6] for r in rows] == [5.0]
    assert [p.reason for p in problems] == ["too_long"]


def test_the_right_adapter_is_the_surest():
    heads = {
        "metrics_csv": b"timestamp,cpu\n1700000000,1\n",
        "metrics_prometheus": json.dumps(PROMETHEUS).encode(),
        "metrics_openmetrics": b"# TYPE a gauge\na 1 1700000000\n",
        "metrics_victoria": b'{"metric":{"__name__":"a"},"values":[1],"timestamps":[1]}\n',
        "metrics_parquet": b"PAR1....",
        "metrics_clustercockpit": b'{"mem":{"node":{"unit":{},"timestep":60,"series":[]}}}',
    }
    for name, head in heads.items():
        assert max(ALL, key=lambda a: a.sniff("metrics/file", head)).name == name


@pytest.mark.parametrize(
    ("exporter", "unit", "value", "kept"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", "W", 300.0, 300.0),
        ("DCGM_FI_DEV_POWER_USAGE", "mW", 300_000.0, 300.0),  # nvidia-smi's own library gives milliwatts
        ("dcgm_gpu_utilization", "%", 85.0, 85.0),
        ("dcgm_gpu_utilization", "ratio", 0.85, 85.0),
        ("DCGM_FI_PROF_SM_ACTIVE", "percent", 85.0, 0.85),
        ("dcgm_gpu_temp", "F", 140.0, 60.0),
        ("DCGM_FI_DEV_FB_USED", "GiB", 2.0, 2048.0),
    ],
)
def test_25_two_exporters_of_one_metric_meet_in_one_unit(exporter, unit, value, kept):
    raw = f"timestamp,node,metric,unit,value\n{T0},n1,{exporter},{unit},{value}\n".encode()
    (row,), problems, _ = parse(MetricsCsv(), raw)
    assert problems == []
    assert row[-1] == pytest.approx(kept)


def test_25_a_value_that_its_unit_rules_out_is_in_quarantine():
    raw = f"timestamp,node,metric,value\n{T0},n1,gpu_util,85\n{T0},n2,gpu_util,8500\n{T0},n1,dcgm_gpu_temp,61000\n".encode()
    rows, problems, tally = parse(MetricsCsv(), raw)
    assert [row[0] for row in rows] == ["n1"]
    assert [(p.reason, p.n_records) for p in problems] == [("implausible", 1), ("implausible", 1), ("implausible", 0)]
    assert "gpu.temp.c: 1, gpu.util.pct: 1" in problems[-1].detail
    assert (tally.n_read, tally.n_understood) == (3, 1)


def test_25_of_a_wide_row_only_the_implausible_cell_goes():
    raw = f"timestamp,gpu_util,gpu_power_draw\n{T0},9999,300\n".encode()
    rows, problems, tally = parse(MetricsCsv(), raw)
    assert [(row[2], row[-1]) for row in rows] == [("gpu.power.w", 300.0)]
    assert [(p.reason, p.n_records) for p in problems] == [("implausible", 0)]
    assert tally.n_understood == 1


def test_27_series_beyond_the_cap_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(metrics_samples, "MAX_SERIES", 3)
    rows = "".join(f"{T0 + i // 5},n{i % 5},gpu_util,5\n" for i in range(10))
    kept, problems, tally = parse(MetricsCsv(), f"timestamp,node,metric,value\n{rows}".encode())
    assert sorted({row[0] for row in kept}) == ["n0", "n1", "n2"]
    assert [(p.reason, p.n_records) for p in problems] == [("series_cap", 0)]
    assert problems[0].detail == "2 series beyond 3 were dropped, 4 samples"
    assert "series_dropped" in tally.flags


def test_a_table_of_words_is_no_metrics_though_it_has_a_time():
    head = b"Date,Time,Level,Content,Template\n" + b"03-17,16:13:38,D,acquire lock,acquire <*>\n" * 3
    assert MetricsCsv().sniff("loghub/Android_structured.csv", head) == 0.0
    assert MetricsCsv().sniff("metrics/n1.csv", b"time,state,power\n1700000000,ok,300\n") > 0.9
