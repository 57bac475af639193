"""ClusterCockpit's job archive: `data.json`, by metric and scope a list of series with one value a time step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import Adapter, FileContext, Parsed
from jobs.adapters.metrics_samples import SampleBook

MAX_BYTES = 512 << 20
PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BASES = {"load": None, "IPC": None, "F/s": "flop/s"}


class ClusterCockpit:
    """One job's metrics; they begin with the job, whose start the context knows, and bear no time of their own."""

    name = "metrics_clustercockpit"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """High for JSON that names a time step and series early on."""
        if not head.lstrip().startswith(b"{"):
            return 0.0
        is_early = b'"timestep"' in head and b'"series"' in head
        return 0.95 if is_early or (b'"hostname"' in head and b'"statistics"' in head) else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`metric_samples` rows; `n_read` counts values, missing ones too."""
        book = SampleBook()
        raw = stream.read(MAX_BYTES + 1)
        try:
            data: Any = orjson.loads(raw) if len(raw) <= MAX_BYTES else None
        except ValueError:
            data = None
        if not isinstance(data, dict) or context.started_at is None:
            book.n_read += 1
            reason = "missing_column" if isinstance(data, dict) else "too_long" if len(raw) > MAX_BYTES else "broken_json"
            yield from book.problem(reason, 0, "the job's start is not known" if isinstance(data, dict) else "")
        else:
            start_us = round(context.started_at.timestamp() * 1e6)
            for metric, scopes in data.items():
                for scope, block in scopes.items() if isinstance(scopes, dict) else ():
                    yield from _read(book, metric, scope, block, start_us)
        yield from book.closing()


def _read(book: SampleBook, metric: str, scope: str, block: Any, start_us: int) -> Iterator[Parsed]:
    try:
        step_us = round(float(block["timestep"]) * 1e6)
        unit, factor = _unit(block.get("unit"))
        series = [(s["hostname"], s.get("id"), s["data"]) for s in block["series"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        book.n_read += 1
        yield from book.problem("bad_type", 0, f"{str(metric)[:60]}: no time step, unit and series")
        return
    for host, number, values in series:
        device = None if scope == "node" else f"{scope}{'' if number is None else number}"
        for index, value in enumerate(values if isinstance(values, list) else ()):
            book.n_read += 1
            book.n_understood += 1
            if isinstance(value, int | float) and not isinstance(value, bool):
                book.add(str(host), metric, start_us + index * step_us, float(value) * factor, device, unit=unit, is_counter=False)
        yield from book.batch()


def _unit(unit: Any) -> tuple[str | None, float]:
    """Unit and factor of `{"base": "B/s", "prefix": "G"}`."""
    if not isinstance(unit, Mapping):
        return None, 1.0
    base = str(unit.get("base", "")) or None
    return BASES.get(base or "", base), PREFIXES.get(str(unit.get("prefix", "")), 1.0)


ADAPTERS: tuple[Adapter, ...] = (ClusterCockpit(),)
