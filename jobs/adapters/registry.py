"""Every adapter, and which of them reads a file: the one that recognises it most surely."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection
from functools import cache

from jobs.adapters.base import Adapter

MODULES = (
    "logs", "containers", "kernel", "sacct", "elastic_error", "journal", "fault_intervals",
    "stacks", "flight_recorder",
    "operations_timeline", "operations_kineto", "operations_whatif",
    "metrics_csv", "metrics_prometheus", "metrics_openmetrics", "metrics_parquet", "metrics_clustercockpit", "metrics_victoria",
)  # fmt: skip
"""Modules of this package with `ADAPTERS`; one that is not there is left out.

`metrics_*` and `operations_*` are found by name too.
"""

THRESHOLD = 0.05
"""Below this no adapter claims a file, and it is quarantined as of unknown format."""


@cache
def adapters() -> tuple[Adapter, ...]:
    """All adapters, in the order of their names."""
    import pkgutil

    import jobs.adapters as package

    present = {m.name for m in pkgutil.iter_modules(package.__path__)}
    wanted = {name for name in present if name in MODULES or name.startswith(("metrics_", "operations_"))}
    found: list[Adapter] = []
    for name in sorted(wanted):
        found.extend(getattr(importlib.import_module(f"jobs.adapters.{name}"), "ADAPTERS", ()))
    return tuple(sorted(found, key=lambda adapter: adapter.name))


OPERATION_COLUMNS = frozenset({"op", "optype", "duration", "dur", "duration_us", "start_ts", "start_us", "step"})


def choose(path: str, head: bytes, columns: Collection[str] = ()) -> tuple[Adapter | None, float]:
    """The adapter that recognises a file most surely and its confidence; equals go to the first name. None for nobody.

    `columns` are those of a Parquet file, which says at its end what it holds.
    """
    if len(OPERATION_COLUMNS & {name.lower() for name in columns}) >= 3:
        operations = next((adapter for adapter in adapters() if adapter.name == "operation_parquet"), None)
        if operations is not None:
            return operations, 0.9
    best: tuple[Adapter | None, float] = (None, 0.0)
    head = head.removeprefix(b"\xef\xbb\xbf")
    for adapter in adapters():
        score = adapter.sniff(path, head)
        if score > best[1]:
            best = (adapter, score)
    return best if best[1] >= THRESHOLD else (None, best[1])
