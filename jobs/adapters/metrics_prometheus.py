"""Prometheus' query API as JSON: `{"data": {"resultType": "matrix", "result": [{"metric": {…}, "values": [[t, "v"], …]}]}}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import ijson

from jobs.adapters.base import Adapter, FileContext, Parsed
from jobs.adapters.json_depth import Shallow
from jobs.adapters.metrics_labels import place_of
from jobs.adapters.metrics_samples import SampleBook, epoch_us

MAX_POINTS = 2_000_000
"""Points of one series that are read; more is no series of one job."""


class PrometheusJson:
    """Answers of `/api/v1/query_range` and `/api/v1/query`, or their `data` or `result` part alone."""

    name = "metrics_prometheus"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """High for JSON whose beginning names a matrix or vector of metrics."""
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if start not in (b"{", b"["):
            return 0.0
        if b'"resultType"' in head and (b'"matrix"' in head or b'"vector"' in head):
            return 0.95
        return 0.8 if b'"metric"' in head and b'"values"' in head and b'"timestamps"' not in head else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`metric_samples` rows, series by series; `n_read` counts samples."""
        book = SampleBook()
        try:
            for series in _series(stream):
                yield from _read(book, series, context)
                yield from book.batch()
        except (ijson.JSONError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            book.n_read += 1
            yield from book.problem("broken_json", 0, str(error)[:200])
        yield from book.closing()


def _series(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Every object with a `metric` at any depth where answers have one, built event by event, one in memory at a time."""
    prefix: str | None = None
    builder: Any = None
    for where, event, value in ijson.parse(Shallow(stream), use_float=True):
        if builder is None:
            if event == "start_map" and where.split(".")[-1] == "item":
                prefix, builder = where, ijson.ObjectBuilder()
                builder.event(event, value)
            continue
        builder.event(event, value)
        if where == prefix and event == "end_map":
            yield builder.value
            builder = None


def _read(book: SampleBook, series: dict[str, Any], context: FileContext) -> Iterator[Parsed]:
    labels = series.get("metric")
    points = series.get("values", [series["value"]] if "value" in series else None)
    if not isinstance(labels, dict) or not isinstance(points, list):
        book.n_read += 1
        yield from book.problem("bad_type", 0, "a series without labels or values")
        return
    texts = {str(key): str(value) for key, value in labels.items()}
    place = place_of(texts.get("__name__", "unnamed"), texts, context.node)
    for point in points[:MAX_POINTS]:
        book.n_read += 1
        at_us, value = _point(point)
        if at_us is None or value is None:
            yield from book.problem("bad_value", 0, f"a point of {place.raw} is no time and number")
            continue
        book.n_understood += 1
        book.add(place.node, place.raw, at_us, value, place.device)


def _point(point: Any) -> tuple[int | None, float | None]:
    """Time and value of `[1700000000.5, "0.97"]`; `NaN` and `+Inf` are values, and become null on the grid."""
    try:
        at, value = point
        return epoch_us(float(at)), float(value)
    except (TypeError, ValueError):
        return None, None


ADAPTERS: tuple[Adapter, ...] = (PrometheusJson(),)
