"""Prometheus and OpenMetrics text with time stamps: `name{labels} value timestamp`, as exporters and promtool write it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from jobs.adapters.base import Adapter, FileContext, Parsed
from jobs.adapters.metrics_labels import place_of, read_labels
from jobs.adapters.metrics_samples import SKIP, SampleBook, epoch_us, samples_of

LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:.]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+(-?[0-9.eE+]+))?\s*(?:#.*)?$")
TYPE = re.compile(r"^# TYPE (\S+) (\S+)\s*$")
MAX_LINE = 16384


class OpenMetricsText:
    """Text expositions. A line without a time stamp takes the file's time of change, when that is known."""

    name = "metrics_openmetrics"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """High for `# TYPE` lines or several lines of the form, by the first hundred lines."""
        lines = [line for line in head[:16384].decode("utf-8", "replace").splitlines()[:100] if line.strip()]
        if not lines:
            return 0.0
        typed = sum(1 for line in lines if line.startswith(("# TYPE ", "# HELP ")))
        plain = [line for line in lines if not line.startswith("#")]
        fitting = sum(1 for line in plain if len(line) < MAX_LINE and (found := LINE.match(line)) and _is_number(found[3]))
        if typed and (not plain or fitting >= len(plain) * 0.8):
            return 0.95
        is_named = PurePosixPath(path).suffix in (".prom", ".om") or "metrics" in PurePosixPath(path).parts
        return 0.8 if is_named and plain and fitting >= len(plain) * 0.8 else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`metric_samples` rows; `n_read` counts sample lines."""
        book = SampleBook()
        types: dict[str, str] = {}

        def add(text: str, offset: int, raw: bytes) -> str | None:
            line = text.strip()
            if line.startswith("#") or not line:
                if found := TYPE.match(line[:1024]):
                    types[found[1]] = found[2]
                return SKIP
            return "too_long" if len(line) > MAX_LINE else _add(book, line, types, context)

        yield from samples_of(book, stream, add)


def _add(book: SampleBook, text: str, types: dict[str, str], context: FileContext) -> str | None:
    """Put a line's sample into the book; the reason when it cannot be used."""
    found = LINE.match(text)
    if found is None or not _is_number(found[3]):
        return "bad_value"
    name, labelled, value, stamp = found.groups()
    try:
        labels = read_labels(labelled or "")
    except ValueError:
        return "bad_value"
    at_us = _stamp_us(stamp, context)
    if at_us is None:
        return "implausible"
    kind = types.get(name) or types.get(name.removesuffix("_total"))
    place = place_of(name, labels, context.node)
    is_counter = None if kind in (None, "unknown", "untyped", "histogram", "summary") else kind == "counter"
    return book.add(place.node, place.raw, at_us, float(value), place.device, is_counter=is_counter)


def _stamp_us(stamp: str | None, context: FileContext) -> int | None:
    if stamp is None:
        return None if context.modified_at is None else round(context.modified_at.timestamp() * 1e6)
    try:
        return epoch_us(float(stamp), stamp)
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not math.isinf(0.0) and len(text) < 64


ADAPTERS: tuple[Adapter, ...] = (OpenMetricsText(),)
