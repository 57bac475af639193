"""Binned levels of a job's metrics, small enough to travel, and the metrics of one role's machines on common bins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ml.machines.evidence import MetricEvidence, all_frozen, old_answers
from ml.machines.medians import MIN_PEERS
from ml.machines.series import MetricTable

Array = np.ndarray

MIN_METRICS = 3
"""Fewer metrics than this say too little about each other."""
FLOOR_SHARE = 1 / 6
"""Share of a metric's usual floor that is granted here: what the others explain is gone, and thresholds are learnt."""
MOST_VALUES = 60_000_000
"""Machines × bins × metrics beyond which a job's metrics are not held together."""


@dataclass(frozen=True)
class Levels:
    """Binned levels of one metric of machines of one role: `values` is nodes × bins (float32). `floor` is the spread that
    the metric is credited with at least, `lengths_s` the window lengths that its job is looked at with."""

    metric: str
    unit: str | None
    role: str
    nodes: tuple[str, ...]
    start_us: int
    bin_s: float
    lengths_s: tuple[float, ...]
    floor: float
    values: Array

    def to_plain(self) -> tuple[str, bytes]:
        """A card in JSON and the values' bytes (little-endian float32)."""
        card = {"metric": self.metric, "unit": self.unit, "role": self.role, "nodes": self.nodes, "start_us": self.start_us,
                "bin_s": self.bin_s, "lengths_s": self.lengths_s, "floor": self.floor}  # fmt: skip
        return json.dumps(card), np.ascontiguousarray(self.values, dtype="<f4").tobytes()

    @staticmethod
    def from_plain(card: str, data: bytes) -> Levels:
        """From what `to_plain` gave."""
        raw = json.loads(card)
        nodes = tuple(raw["nodes"])
        values = np.frombuffer(data, dtype="<f4").reshape(len(nodes), -1)
        return Levels(raw["metric"], raw["unit"], raw["role"], nodes, raw["start_us"], raw["bin_s"], tuple(raw["lengths_s"]),
                      raw["floor"], values)  # fmt: skip


@dataclass(frozen=True)
class Together:
    """The metrics of one role's machines on common bins: `values` is metrics × nodes × bins (float32, NaN unknown)."""

    metrics: tuple[str, ...]
    units: tuple[str | None, ...]
    role: str
    nodes: tuple[str, ...]
    start_us: int
    bin_s: float
    lengths_s: tuple[float, ...]
    floors: tuple[float, ...]
    values: Array


def levels_of(table: MetricTable, evidence: MetricEvidence) -> Levels:
    """A metric's levels, one row a node: devices of one node are averaged. A value that only repeats the last one, in a metric
    that seldom does so, is a collector's old answer: nothing is known."""
    repeats = evidence.repeats
    living = np.where(old_answers(repeats) | all_frozen(repeats), np.nan, evidence.level)
    nodes = tuple(sorted({node for node, _ in table.members}))
    if len(nodes) < len(table.members):
        at = {node: [row for row, (name, _) in enumerate(table.members) if name == node] for node in nodes}
        rows = [living[at[node]] for node in nodes]
        with np.errstate(invalid="ignore", divide="ignore"):
            living = np.array([np.nansum(own, axis=0) / np.isfinite(own).sum(axis=0) for own in rows])
    windows = evidence.windows
    return Levels(table.metric, table.unit, table.role, nodes, table.start_us, windows.bin_s, windows.lengths_s,
                  evidence.floor * FLOOR_SHARE, living.astype(np.float32))  # fmt: skip


def by_role(levels: Sequence[Levels]) -> list[Together]:
    """The jobs' metrics put together, role by role, where that can be done."""
    roles = sorted({each.role for each in levels})
    found = (together([each for each in levels if each.role == role]) for role in roles)
    return [each for each in found if each is not None]


def together(levels: Sequence[Levels]) -> Together | None:
    """The metrics on common bins, the widest of theirs; machines that have all of them. None if too few or too large."""
    levels = [each for each in levels if each.floor > 0]
    shared = set.intersection(*(set(each.nodes) for each in levels)) if levels else set()
    if len(levels) < MIN_METRICS or len(shared) <= MIN_PEERS:
        return None
    nodes = tuple(sorted(shared))
    bin_s = max(each.bin_s for each in levels)
    start_us = min(each.start_us for each in levels)
    end_s = max((each.start_us - start_us) / 1e6 + each.values.shape[1] * each.bin_s for each in levels)
    n_bins = max(int(np.ceil(end_s / bin_s - 1e-9)), 1)
    if len(levels) * len(nodes) * n_bins > MOST_VALUES:
        return None
    ordered = sorted(levels, key=lambda each: each.metric)
    values = np.full((len(ordered), len(nodes), n_bins), np.nan, dtype=np.float32)
    for number, each in enumerate(ordered):
        at = {node: row for row, node in enumerate(each.nodes)}
        own = each.values[[at[node] for node in nodes]]
        values[number] = _rebinned(own, (each.start_us - start_us) / 1e6, each.bin_s, bin_s, n_bins)
    lengths_s = next(each.lengths_s for each in ordered if each.bin_s == bin_s)
    return Together(
        tuple(each.metric for each in ordered), tuple(each.unit for each in ordered), ordered[0].role, nodes, start_us, bin_s,
        lengths_s, tuple(each.floor for each in ordered), values,
    )  # fmt: skip


def _rebinned(values: Array, late_s: float, bin_s: float, wanted_s: float, n_bins: int) -> Array:
    """Means over wider bins: each narrow bin counts where its middle lies."""
    edges = np.searchsorted(late_s + (np.arange(values.shape[1]) + 0.5) * bin_s, np.arange(n_bins + 1) * wanted_s)
    zeros = np.zeros((len(values), 1))
    total = np.concatenate([zeros, np.cumsum(np.nan_to_num(values), axis=1)], axis=1)
    count = np.concatenate([zeros, np.cumsum(np.isfinite(values), axis=1)], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (total[:, edges[1:]] - total[:, edges[:-1]]) / (count[:, edges[1:]] - count[:, edges[:-1]])
