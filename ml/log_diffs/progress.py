"""How far each rank came: the one that stopped first, and the one that left out an operation.

Input is a frame of operations summed by rank, step and name: `rank, step, name, n_calls, started_at, ended_at`
(times in seconds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ml.log_diffs.topology import Finding, Job, where

STEP_COLUMNS = ["rank", "step", "name", "n_calls", "started_at", "ended_at"]
MAX_SHARE_BEHIND = 0.34
"""More ranks than this share standing at the same earliest place are victims, not origins."""


def step_times(steps: pd.DataFrame) -> pd.DataFrame:
    """Duration of each step for the whole job: `step, started_at, step_time_s`, from one step's first start to the next's.

    The last step has no successor and is left out.
    """
    starts = steps.groupby("step", sort=True)["started_at"].min()
    times = starts.diff().shift(-1)
    frame = pd.DataFrame({"step": starts.index, "started_at": starts.to_numpy(), "step_time_s": times.to_numpy()})
    is_next = np.append(np.diff(frame["step"].to_numpy()) == 1, False)
    return frame[is_next & (frame["step_time_s"] > 0)].reset_index(drop=True)


def usual_order(steps: pd.DataFrame) -> dict[str, int]:
    """Position of each operation within a step, by its median start after the step's own start."""
    own_start = steps.groupby(["rank", "step"])["started_at"].transform("min")
    after = (steps["started_at"] - own_start).groupby(steps["name"]).median()
    return {name: place for place, name in enumerate(after.sort_values(kind="stable").index)}


def last_places(steps: pd.DataFrame) -> pd.DataFrame:
    """Where each rank stood: last step, last operation of it that it finished, and when.

    Columns `rank, step, position, name, ended_at`.
    """
    order = usual_order(steps)
    placed = steps.assign(position=steps["name"].map(order))
    last = placed.groupby("rank")["step"].transform("max") == placed["step"]
    ended = placed[last].sort_values(["rank", "ended_at", "position"], kind="stable").groupby("rank").tail(1)
    return ended[["rank", "step", "position", "name", "ended_at"]].sort_values("rank").reset_index(drop=True)


def behind_findings(job: Job, steps: pd.DataFrame) -> list[Finding]:
    """The few ranks whose work stops earliest in the common order, while their peers had gone on."""
    if steps.empty or steps["rank"].nunique() < 2:
        return []
    places = last_places(steps)
    absent = sorted({p.rank for p in job.places} - set(places["rank"].tolist()))
    n_peers = len(places) + len(absent)
    if absent and len(absent) <= MAX_SHARE_BEHIND * n_peers:
        return [_behind(job, r, len(absent), n_peers, "has no finished operation at all", None, None) for r in absent]
    state = list(zip(places["step"], places["position"]))
    lowest = min(state)
    if max(state) == lowest:
        return []
    here = places[[s == lowest for s in state]]
    if len(here) > MAX_SHARE_BEHIND * n_peers:
        return []
    return [
        _behind(job, rank, len(here), n_peers, f"stopped after {name} of step {step}", ended_at, step)
        for rank, step, name, ended_at in zip(
            here["rank"].tolist(), here["step"].tolist(), here["name"].tolist(), here["ended_at"].tolist(), strict=True
        )
    ]


def _behind(job: Job, rank: int, n_here: int, n_peers: int, what: str, at: float | None, step: int | None) -> Finding:
    return Finding(
        "operations", "temporal", "stopped_first",
        f"{where(job, (rank,), ())} {what} while {n_peers - n_here} of {n_peers} ranks went on",
        0.85 / n_here, job.nodes_under((rank,)), (rank,), at=at, iteration=step, phase="train", subject="progress", table="onsets",
    )  # fmt: skip


def left_out_findings(job: Job, steps: pd.DataFrame) -> list[Finding]:
    """A rank that left out an operation in a step in which its peers have it, and which it has in nearly all its other steps.

    The last step of each rank is no evidence: it may have been cut off.
    """
    if steps.empty or steps["rank"].nunique() < 3:
        return []
    last = steps.groupby("rank")["step"].transform("max")
    whole = steps[steps["step"] < last]
    if whole.empty:
        return []
    counts = whole.pivot_table(index="step", columns=["name", "rank"], values="n_calls", aggfunc="sum", fill_value=0)
    done = whole.groupby("rank")["step"].agg(["min", "max"])
    found = []
    for name in counts.columns.get_level_values(0).unique():
        table = counts[name]
        found += _left_out(job, str(name), table, done)
    return found


def _left_out(job: Job, name: str, table: pd.DataFrame, done: pd.DataFrame) -> list[Finding]:
    values = table.to_numpy()
    usual = np.median(values, axis=0)
    if not (usual > 0).all() or table.shape[1] < 3:
        return []
    steps = table.index.to_numpy()
    inside = (steps[:, None] >= done.loc[table.columns, "min"].to_numpy()) & (
        steps[:, None] <= done.loc[table.columns, "max"].to_numpy()
    )
    is_less = inside & (values < usual)
    n_less = is_less.sum(axis=1)
    is_odd_step = (n_less > 0) & (n_less <= max(1, table.shape[1] // 4)) & (inside.sum(axis=1) > table.shape[1] // 2)
    rare = is_less.mean(axis=0) <= 0.1
    found = []
    for row, column in zip(*np.nonzero(is_less & is_odd_step[:, None] & rare[None, :])):
        rank, step = int(table.columns[column]), int(steps[row])
        found.append(
            Finding(
                "operations",
                "spatial",
                "operation_left_out",
                f"{where(job, (rank,), ())} left out {name} in step {step}, which {table.shape[1] - int(n_less[row])} peers ran",
                0.95 / int(n_less[row]),
                job.nodes_under((rank,)),
                (rank,),
                iteration=step,
                phase="train",
                subject=name,
                table="onsets",
            )
        )
    return found[:16]


def late_findings(job: Job, steps: pd.DataFrame, long_steps: Sequence[int]) -> list[Finding]:
    """The ranks for which the others waited in steps that took far too long: late at the operation in which most ranks stood.

    Whoever holds a collective up is short in it, while its peers are long in it.
    """
    late: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    for step in long_steps:
        inside = steps[steps["step"] == step]
        lengths = (inside["ended_at"] - inside["started_at"]).groupby([inside["rank"], inside["name"]]).sum().unstack()
        if len(lengths) < 3:
            continue
        stood_in = lengths.idxmax(axis=1).mode().iloc[0]
        waited = lengths[stood_in].fillna(0.0)
        short = waited.index[waited < 0.3 * waited.median()].tolist()
        seen.update(int(rank) for rank in lengths.index)
        if len(short) <= MAX_SHARE_BEHIND * len(lengths):
            late.update(int(rank) for rank in short)
    chosen = sorted(rank for rank, n in late.items() if n >= 0.7 * seen[rank])
    return [
        Finding(
            "operations",
            "spatial",
            "arrived_last",
            f"{where(job, (rank,), ())} came last in {late[rank]} of {len(long_steps)} overlong steps, the others waited for it",
            0.85 / len(chosen),
            job.nodes_under((rank,)),
            (rank,),
            iteration=int(min(long_steps)),
            phase="train",
            subject="step_time",
            table="onsets",
        )
        for rank in chosen
    ]
