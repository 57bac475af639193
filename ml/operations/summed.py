"""A ledger of profiles that hold sums by step, as Kineto traces are kept: kernels, collectives, and the rest of the step.

Without start times a collective's waiting shows only in its length: the rank that waits least spends the transfer alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ml.operations.ledger import BETWEEN, Collective, Floats, Ledger

KERNELS = "gpu kernels"
_KERNEL_NAMES = r"^(?:nccl|rccl)(?:Dev)?Kernel"
_ANNOTATIONS = r"^(?:nccl|gloo|rccl):"


def book_summed(operations: pd.DataFrame) -> Ledger | None:
    """The ledger of summed rows (rank, step, kind, layer, name, started_us, duration_us); None without steps.

    A step's length is that of its profiler step. Collectives are counted once: as kernels where there are any, else as
    annotations of the library, else as calls.
    """
    rows = operations[operations["rank"].notna() & operations["step"].notna()]
    lengths = rows[rows["kind"] == "step"]
    if lengths.empty:
        return None
    ranks, steps = np.unique(lengths["rank"]).astype(np.int64), np.unique(lengths["step"]).astype(np.int64)
    shape = (len(ranks), len(steps))

    def table(part: pd.DataFrame) -> Floats:
        found = np.zeros(shape)
        part = part[part["rank"].isin(ranks) & part["step"].isin(steps)]
        at = (np.searchsorted(ranks, part["rank"].astype(np.int64)), np.searchsorted(steps, part["step"].astype(np.int64)))
        np.add.at(found, at, part["duration_us"].to_numpy(np.float64) / 1e6)
        return found

    step_s = table(lengths)
    step_s[step_s == 0] = np.nan
    shared = _once(rows[rows["layer"] == "collective"])
    spent, computed = table(shared), table(rows[(rows["layer"] == "gpu") & rows["kind"].isin(("gpu", "memcpy"))])
    spent = np.minimum(spent, np.nan_to_num(step_s))
    transfer = np.broadcast_to(spent.min(axis=0), shape).copy()
    rest = np.maximum(step_s - spent - computed, 0.0)
    work = np.stack([rest, np.where(np.isnan(step_s), np.nan, computed)])
    collectives: tuple[Collective, ...] = ()
    if len(shared):
        everyone = (tuple(range(len(ranks))),)
        collectives = (Collective("collectives", 0, "world", everyone, np.full(shape, np.nan), spent - transfer, transfer),)
    return Ledger(
        tuple(ranks.tolist()), steps, (BETWEEN, KERNELS), ("host", "gpu"), ("host", "forward"), work, collectives,
        step_s, np.full(shape, np.nan), () if len(shared) else ("no collective was recorded: nothing is known of waiting",),
    )  # fmt: skip


def _once(shared: pd.DataFrame) -> pd.DataFrame:
    for pattern in (_KERNEL_NAMES, _ANNOTATIONS):
        is_such = shared["name"].str.contains(pattern)
        if is_such.any():
            return shared[is_such]
    return shared
