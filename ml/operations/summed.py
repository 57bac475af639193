"""A ledger of profiles that hold sums by step, as Kineto traces are kept: kernels, collectives, and the rest of the step.

Where a collective was called once in a step its start says who came last; else waiting shows only in its length: the rank
that waits least spends the transfer alone.
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
    shared = shared[shared["rank"].isin(ranks) & shared["step"].isin(steps)]
    spent, computed = table(shared), table(rows[(rows["layer"] == "gpu") & rows["kind"].isin(("gpu", "memcpy"))])
    spent = np.minimum(spent, np.nan_to_num(step_s))
    waited = np.minimum(table(_waiting(shared, len(ranks))), spent)
    rest = np.maximum(step_s - spent - computed, 0.0)
    work = np.stack([rest, np.where(np.isnan(step_s), np.nan, computed)])
    collectives: tuple[Collective, ...] = ()
    if len(shared):
        everyone = (tuple(range(len(ranks))),)
        collectives = (Collective("collectives", 0, "world", everyone, np.full(shape, np.nan), waited, spent - waited),)
    notes = tuple(
        f"no {what} was found in the profiles: {means}"
        for what, part, means in (
            ("collective", shared, "nothing is known of waiting"),
            ("GPU kernel", rows[rows["layer"] == "gpu"], "nothing is known of the devices"),
            ("operation of the host", rows[rows["kind"] == "host"], "nothing is known of the host's calls"),
        )
        if part.empty
    )
    return Ledger(
        tuple(ranks.tolist()), steps, (BETWEEN, KERNELS), ("host", "gpu"), ("host", "forward"), work, collectives,
        step_s, np.full(shape, np.nan), notes,
    )  # fmt: skip


def _waiting(shared: pd.DataFrame, n_ranks: int) -> pd.DataFrame:
    """The part of each collective's time before the last rank came to it, in the same columns.

    A collective that all ranks called once in a step and that none left before the last one came has its arrivals
    recorded. Of the others only lengths are known: the shortest holds no waiting.
    """
    if shared.empty:
        return shared
    rows = shared.assign(
        end_us=shared["started_us"] + shared["duration_us"], group=shared["group"].fillna("") if "group" in shared else ""
    )
    by = rows.groupby(["name", "group", "step"])
    told = by.agg(
        last=("started_us", "max"), first_end=("end_us", "min"), shortest=("duration_us", "min"), calls=("n_calls", "max"),
        ranks=("rank", "nunique"), started=("started_us", "min"),
    )  # fmt: skip
    told["has_order"] = (
        (told["calls"] == 1) & (told["ranks"] == n_ranks) & (told["last"] <= told["first_end"]) & (told["started"] > 0)
    )
    rows = rows.join(told[["last", "shortest", "has_order"]], on=["name", "group", "step"])
    by_arrival = (rows["last"] - rows["started_us"]).clip(lower=0.0)
    waited = np.where(rows["has_order"], np.minimum(by_arrival, rows["duration_us"]), rows["duration_us"] - rows["shortest"])
    return rows.assign(duration_us=waited)


def _once(shared: pd.DataFrame) -> pd.DataFrame:
    for pattern in (_KERNEL_NAMES, _ANNOTATIONS):
        is_such = shared["name"].str.contains(pattern)
        if is_such.any():
            return shared[is_such]
    return shared
