"""VictoriaMetrics' `/api/v1/export`: a line a series, `{"metric": {…}, "values": […], "timestamps": [ms, …]}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import Adapter, FileContext, Parsed
from jobs.adapters.metrics_labels import place_of
from jobs.adapters.metrics_samples import SampleBook, epoch_us, lines_of


class VictoriaLines:
    """JSON Lines of series."""

    name = "metrics_victoria"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """High when the first line names a metric, values and time stamps."""
        if not head.lstrip().startswith(b"{"):
            return 0.0
        return 0.95 if b'"metric"' in head and (b'"timestamps"' in head or (b'"values"' in head and b"\n{" in head)) else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`metric_samples` rows; `n_read` counts samples, and broken lines as one each."""
        book = SampleBook()
        for offset, raw, is_cut in lines_of(stream):
            if not raw.strip():
                continue
            if is_cut:
                book.n_read += 1
                yield from book.problem("too_long", offset, sample=raw)
                continue
            yield from _read(book, raw, offset, context)
            yield from book.batch()
        yield from book.closing()


def _read(book: SampleBook, raw: bytes, offset: int, context: FileContext) -> Iterator[Parsed]:
    try:
        series: Any = orjson.loads(raw)
        labels = {str(key): str(value) for key, value in series["metric"].items()}
        points = list(zip(series["timestamps"], series["values"], strict=True))
    except (ValueError, KeyError, TypeError, AttributeError):
        book.n_read += 1
        yield from book.problem("broken_json", offset, "no series with as many time stamps as values", raw)
        return
    place = place_of(labels.get("__name__", "unnamed"), labels, context.node)
    for at, value in points:
        book.n_read += 1
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        at_us = epoch_us(float(at)) if isinstance(at, int | float) else None
        if at_us is None or not (is_number or value is None):
            yield from book.problem("bad_value", offset, f"a point of {place.raw} is no time and number")
            continue
        book.n_understood += 1
        if value is not None:
            book.add(place.node, place.raw, at_us, float(value), place.device)


ADAPTERS: tuple[Adapter, ...] = (VictoriaLines(),)
