"""What is usual in a job that went well: the yardstick of jobs that have it as a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ml.operations.layers import layer_seconds
from ml.operations.ledger import BETWEEN, book
from ml.operations.peers import WARM_UP, median_of_known


@dataclass(frozen=True)
class Usual:
    """Median step, median transfer of each collective a step, lowest and highest share of the time of each function over
    ranks, and median time of each layer a step; seconds.
    """

    step_s: float
    transfer_s: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    layers_s: Mapping[str, float] = field(default_factory=dict)


def usual(operations: pd.DataFrame) -> Usual | None:
    """What is usual in one job's operations (columns as `ledger.book` wants them); None without steps.

    The last to arrive does not wait, so the shortest duration of a collective among its ranks is its transfer.
    """
    rows = operations[operations[["rank", "step", "started_us"]].notna().all(axis=1)]
    if rows.empty:
        return None
    ledger = book(rows, {}, {})
    lengths = median_of_known(ledger.step_s)
    first = min(WARM_UP, len(lengths) - 1)
    if not np.isfinite(lengths[first:]).any():
        return None
    window = np.nansum(ledger.step_s[:, first:], axis=1)
    shares = {}
    for name, work in zip(ledger.names, ledger.work_s):
        beta = np.nansum(work[:, first:], axis=1)[window > 0] / window[window > 0]
        if name != BETWEEN and len(beta):
            shares[name] = (float(beta.min()), float(beta.max()))
    layers = {layer: float(np.median(seconds)) for layer, seconds in layer_seconds(ledger, first, len(lengths)).items()}
    transfers = _transfers(rows[rows["kind"] == "collective"])
    if transfers:
        layers["collective"] = sum(transfers.values())
    else:
        layers.pop("collective", None)
    return Usual(float(np.nanmedian(lengths[first:])), transfers, shares, layers)


def _transfers(shared: pd.DataFrame) -> dict[str, float]:
    if shared.empty:
        return {}
    shortest = shared.groupby(["name", "step", "sequence"], dropna=False)["duration_us"].min()
    by_step = shortest.groupby(["name", "step"]).sum()
    return {str(name): float(us) / 1e6 for name, us in by_step.groupby("name").median().items()}
