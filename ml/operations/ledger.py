"""The ledger of a job's time: for each rank and step, seconds of work and of waiting by operation.

An operation's own time is its duration without the operations that it encloses. A collective's time is split: waiting
lasts until the last member of its group has started, the rest is transfer. What lies between operations is booked
under `BETWEEN`: nobody recorded what the process did there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

BETWEEN = "(between operations)"
_SLACK_US = 2_000.0
_LEAST_SHARE_IN_ORDER = 0.9
_LEAST_STEPS = 5


@dataclass(frozen=True)
class Collective:
    """One collective of a step by name and number, over all steps: arrays of (ranks, steps), in seconds.

    `members` holds for each group of its kind the positions of its ranks in the ledger. `arrived_s` is the own start,
    `waited_s` the time until the last member came, `transfer_s` the rest; NaN where a rank or step has none.
    """

    name: str
    number: int
    group_kind: str
    members: tuple[tuple[int, ...], ...]
    arrived_s: Floats
    waited_s: Floats
    transfer_s: Floats


@dataclass(frozen=True)
class Ledger:
    """Seconds by operation, rank and step. `work_s`: (operations, ranks, steps), NaN where a rank has no such step.

    `names[0]` is `BETWEEN`. `ended_s` is the end of each rank's step on a common clock, `step_s` its length: from the
    end of the step before. `notes` says what was repaired or left out.
    """

    ranks: tuple[int, ...]
    steps: Integers
    names: tuple[str, ...]
    layers: tuple[str, ...]
    kinds: tuple[str, ...]
    work_s: Floats
    collectives: tuple[Collective, ...]
    step_s: Floats
    ended_s: Floats
    notes: tuple[str, ...]

    @property
    def busy_s(self) -> Floats:
        """Seconds that each rank worked in each step, collectives left out: (ranks, steps)."""
        return np.asarray(np.where(np.isnan(self.step_s), np.nan, np.nansum(self.work_s, axis=0)))

    @property
    def waited_s(self) -> Floats:
        """Seconds that each rank waited for others in each step: (ranks, steps)."""
        total = np.zeros_like(self.step_s)
        for collective in self.collectives:
            total += np.nan_to_num(collective.waited_s)
        return total


def book(operations: pd.DataFrame, groups: Mapping[int, Mapping[str, Sequence[int]]], nodes: Mapping[int, str]) -> Ledger:
    """The ledger of one job's operations.

    `operations` has the columns rank, step, kind, layer, name, started_us, duration_us, parent, group; rows without
    rank, step or start are left out. `groups` maps a rank to its parallel groups, `nodes` to its host.
    """
    rows, notes = _usable(operations)
    rows, repaired = _common_clock(rows, nodes)
    ranks = tuple(int(r) for r in np.unique(rows["rank"]))
    steps = np.unique(rows["step"]).astype(np.int64)
    rows = rows.assign(r=np.searchsorted(ranks, rows["rank"]), s=np.searchsorted(steps, rows["step"]))
    shape = (len(ranks), len(steps))
    step_s, ended_s, gap_s = _steps(rows, shape)
    own_us = _own_time(rows)
    is_shared = rows["kind"].isin(("collective", "p2p")).to_numpy()
    own = rows[~is_shared].assign(own=own_us[~is_shared])
    names = sorted(own["name"].unique())
    work = np.zeros((len(names) + 1, *shape))
    np.add.at(work, (1 + np.searchsorted(names, own["name"]), own["r"], own["s"]), own["own"] / 1e6)
    work[0] = gap_s
    work[:, np.isnan(step_s)] = np.nan
    about = own.drop_duplicates("name").set_index("name").loc[names]
    return Ledger(
        ranks, steps, (BETWEEN, *names), ("host", *about["layer"].fillna("host")), ("host", *about["kind"]),
        work, _collectives(rows[is_shared], ranks, shape, groups), step_s, ended_s, (*notes, *repaired),
    )  # fmt: skip


def _usable(operations: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    known = operations[["rank", "step", "started_us"]].notna().all(axis=1)
    notes = []
    if not known.all():
        notes.append(f"{int((~known).sum())} operations without rank, step or start were left out")
    rows = operations[known].copy()
    rows["rank"], rows["step"] = rows["rank"].astype(np.int64), rows["step"].astype(np.int64)
    rows["started_us"] = rows["started_us"].astype(np.float64)
    rows = rows.sort_values(["rank", "started_us", "duration_us"], ascending=[True, True, False], kind="stable")
    return rows.assign(end_us=rows["started_us"] + rows["duration_us"]).reset_index(drop=True), notes


def _steps(rows: pd.DataFrame, shape: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Length of each rank's steps, their ends, and what no top-level operation covers, in seconds.

    A rank's first step has no step before it: its length is unknown.
    """
    top = rows[rows["parent"].isna()]
    by = top.groupby(["r", "s"])
    last, first, covered = by["end_us"].max(), by["started_us"].min(), by["duration_us"].sum()
    end, begin, busy = (np.full(shape, np.nan) for _ in range(3))
    at = (last.index.get_level_values(0), last.index.get_level_values(1))
    end[at], begin[at], busy[at] = last / 1e6, first / 1e6, covered / 1e6
    before = np.full(shape, np.nan)
    before[:, 1:] = end[:, :-1]
    # a step that was done again after a restart seems to end before the one before it: its length is unknown
    length = np.where(end > before, end - before, np.nan)
    gap = np.maximum(length - busy, 0.0)
    return length, end, gap


def _own_time(rows: pd.DataFrame) -> Floats:
    """Duration of each operation without those that it encloses, µs."""
    own = rows["duration_us"].to_numpy(dtype=np.float64, copy=True)
    children = rows[rows["parent"].notna()]
    if children.empty:
        return own
    inside = children.groupby(["r", "s", "parent"])["duration_us"].sum()
    keys = pd.MultiIndex.from_arrays([rows["r"], rows["s"], rows["name"]])
    first_of_name = ~rows.duplicated(["r", "s", "name"]).to_numpy()
    taken = inside.reindex(keys).fillna(0.0).to_numpy()
    return np.asarray(np.maximum(own - np.where(first_of_name, taken, 0.0), 0.0))


def _collectives(
    rows: pd.DataFrame, ranks: tuple[int, ...], shape: tuple[int, int], groups: Mapping[int, Mapping[str, Sequence[int]]]
) -> tuple[Collective, ...]:
    if rows.empty:
        return ()
    rows = rows.assign(number=rows.groupby(["r", "s", "name"]).cumcount())
    found = []
    for (name, number), of in rows.groupby(["name", "number"], sort=True):
        start, end = np.full(shape, np.nan), np.full(shape, np.nan)
        start[of["r"], of["s"]] = of["started_us"] / 1e6
        end[of["r"], of["s"]] = of["end_us"] / 1e6
        if np.isfinite(start).mean() < 0.2:
            continue
        word = of["group"].dropna()
        kind, members = _group_of(start, end, ranks, groups, str(word.iloc[0]) if len(word) else None)
        latest = np.full(shape, np.nan)
        for positions in members:
            at = list(positions)
            complete = np.isfinite(start[at]).all(axis=0)
            latest[at] = np.where(complete, start[at].max(axis=0), np.nan)
        waited = np.clip(latest - start, 0.0, end - start)
        found.append(Collective(str(name), int(str(number)), kind, members, start, waited, end - start - waited))
    return tuple(found)


def _group_of(
    start: Floats, end: Floats, ranks: tuple[int, ...], groups: Mapping[int, Mapping[str, Sequence[int]]], word: str | None
) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """The group in which a collective runs: the one it names, else the widest in which nobody ends before all started."""
    position = {rank: i for i, rank in enumerate(ranks)}
    kinds = sorted({kind for rank in ranks for kind in groups.get(rank, {})})
    candidates: dict[str, tuple[tuple[int, ...], ...]] = {"world": (tuple(range(len(ranks))),)}
    for kind in kinds:
        sets = {tuple(sorted(position[m] for m in groups[r][kind] if m in position)) for r in ranks if kind in groups.get(r, {})}
        candidates[kind] = tuple(sorted(s for s in sets if s))
    if word in candidates and word != "world":
        return word, candidates[word]
    ordered = sorted(candidates, key=lambda kind: (-max(len(m) for m in candidates[kind]), kind != "world", kind))
    for kind in ordered:
        if _share_in_order(start, end, candidates[kind]) >= _LEAST_SHARE_IN_ORDER:
            return kind, candidates[kind]
    return "self", tuple((i,) for i in range(len(ranks)))


def _share_in_order(start: Floats, end: Floats, members: tuple[tuple[int, ...], ...]) -> float:
    """Share of the steps in which every member ends after every member started, as a collective must."""
    right = total = 0
    for positions in members:
        at = list(positions)
        complete = np.isfinite(start[at]).all(axis=0)
        gap = end[at][:, complete].min(axis=0) - start[at][:, complete].max(axis=0)
        right += int((gap >= -_SLACK_US / 1e6).sum())
        total += int(complete.sum())
    return right / total if total else 0.0


def _common_clock(rows: pd.DataFrame, nodes: Mapping[int, str]) -> tuple[pd.DataFrame, list[str]]:
    """Shift the times of nodes whose clocks are visibly off: where collectives seem to end before all have started.

    The shift of a node is the median, over steps, of how much later its steps end than those of the median node.
    """
    shared = rows[rows["kind"] == "collective"].drop_duplicates(["rank", "step"], keep="last")
    if shared.empty or not nodes:
        return rows, []
    ranks, r = np.unique(shared["rank"].to_numpy(), return_inverse=True)
    steps, s = np.unique(shared["step"].to_numpy(), return_inverse=True)
    start, end = (np.full((len(ranks), len(steps)), np.nan) for _ in range(2))
    start[r, s], end[r, s] = shared["started_us"].to_numpy(), shared["end_us"].to_numpy()
    complete = np.isfinite(start).all(axis=0)
    start, end = start[:, complete], end[:, complete]
    if start.shape[1] < _LEAST_STEPS or ((start.max(axis=0) - end.min(axis=0)) > _SLACK_US).mean() < 0.5:
        return rows, []
    late = np.median(end - np.median(end, axis=0), axis=1)
    by_node: dict[str, list[float]] = {}
    for rank, us in zip(ranks.tolist(), late.tolist()):
        by_node.setdefault(nodes.get(rank, str(rank)), []).append(us)
    shift = {node: float(np.median(each)) for node, each in by_node.items()}
    moved = {node: us for node, us in sorted(shift.items()) if abs(us) > _SLACK_US}
    if not moved:
        return rows, []
    note = ", ".join(f"{node} by {-us / 1e3:+.0f} ms" for node, us in moved.items())
    off = rows["rank"].map(lambda rank: shift.get(nodes.get(rank, str(rank)), 0.0)).to_numpy(dtype=np.float64)
    shifted = rows.assign(started_us=rows["started_us"] - off, end_us=rows["end_us"] - off)
    return shifted, [f"clocks differ between nodes; times were shifted: {note}"]
