"""Entries from rows of the `collectives` table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ml.collectives.entries import Entries, Group, Ints, State


def entries_of(rows: pd.DataFrame, dumped: Sequence[int] = ()) -> Entries:
    """Entries from rows of the `collectives` table.

    `rows` has rank, record_id, group, group_ranks, sequence, is_p2p, op, input_sizes, input_dtypes, state, created_at
    (or created_us), duration_ms, frames (or frame), last_enqueued, last_completed. Rows without `op` speak of a group
    alone: they bring its ranks and its progress. `dumped` names ranks that left a dump without any row.
    """
    rows = rows.assign(group=rows["group"].fillna("?").astype(str))
    known = _group_ranks(rows)
    entries = rows[rows["op"].notna() | rows["sequence"].notna()]
    members = _members(rows, known)
    pairs, place = _pairs(entries)
    of_pair = [known.get(pair) or Group(pair[1], members.get(pair[1], ())) for pair in pairs]
    groups = sorted({*of_pair, *known.values()})
    code_of = {group: code for code, group in enumerate(groups)}
    columns = _columns(entries)
    return Entries(
        rank=entries["rank"].to_numpy(np.int64),
        order=columns["order"],
        group=np.array([code_of[group] for group in of_pair], np.int64)[place],
        sequence=_whole(entries["sequence"]),
        is_p2p=entries["is_p2p"].eq(True).to_numpy(np.bool_),
        state=columns["state"],
        created_us=columns["created_us"],
        duration_ms=columns["duration_ms"],
        **coded(entries, {"op": "op", "shape": "input_sizes", "dtype": "input_dtypes", "frame": "frame"}),
        groups=tuple(groups),
        progress=_progress(rows, known, members, code_of),
        dumped=frozenset({*map(int, rows["rank"].unique()), *dumped}),
    )


def _pairs(entries: pd.DataFrame) -> tuple[list[tuple[int, str]], Ints]:
    """Distinct pairs of rank and group name, and the place of each entry's pair among them."""
    codes, names = pd.factorize(entries["group"], sort=True)
    joint = entries["rank"].to_numpy(np.int64) * max(1, len(names)) + codes
    distinct, place = np.unique(joint, return_inverse=True)
    return [(int(key // len(names)), str(names[key % len(names)])) for key in distinct], place.astype(np.int64)


def _whole(numbers: pd.Series[Any]) -> Ints:
    """Whole numbers, -1 where there is none."""
    return pd.to_numeric(numbers, errors="coerce").fillna(-1).to_numpy(np.int64)


def coded(entries: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, Any]:
    """Text columns as codes and, under the name with an s, the distinct texts in order; null is the empty text."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        texts = entries[column] if column in entries else pd.Series([""] * len(entries))
        codes, uniques = pd.factorize(texts.fillna("").astype(str), sort=True)
        found |= {name: codes.astype(np.int64), f"{name}s": tuple(map(str, uniques))}
    return found


def _columns(entries: pd.DataFrame) -> dict[str, NDArray[Any]]:
    words = {state.name.lower(): int(state) for state in State}
    created = entries["created_us"] if "created_us" in entries else _microseconds(entries.get("created_at"), entries)
    durations = entries["duration_ms"] if "duration_ms" in entries else pd.Series(np.nan, entries.index)
    order = pd.to_numeric(entries["record_id"], errors="coerce")
    order = order.where(order.notna(), pd.Series(range(len(entries)), entries.index, dtype=float))
    return {
        "order": order.to_numpy(np.int64),
        "state": _whole(entries["state"].map(words)).clip(0),
        "created_us": _whole(created),
        "duration_ms": pd.to_numeric(durations, errors="coerce").to_numpy(np.float64),
    }


def _microseconds(times: pd.Series[Any] | None, entries: pd.DataFrame) -> pd.Series[Any]:
    if times is None:
        return pd.Series(-1.0, entries.index)
    stamps = pd.to_datetime(times, utc=True).dt.as_unit("us")
    return stamps.astype("int64").where(stamps.notna(), -1)


def _group_ranks(rows: pd.DataFrame) -> dict[tuple[int, str], Group]:
    """Which group a name means on a rank, where its ranks are recorded. Their order gives the local numbers."""
    told = rows[rows["group_ranks"].map(_length) > 0].drop_duplicates(["rank", "group"])
    shared: dict[Group, Group] = {}
    found = {}
    for rank, name, ranks in zip(told["rank"], told["group"], told["group_ranks"]):
        group = Group(str(name), tuple(map(int, ranks)))
        found[int(rank), str(name)] = shared.setdefault(group, group)
    return found


def _length(value: Any) -> int:
    return 0 if value is None or isinstance(value, float) else len(value)


def _members(rows: pd.DataFrame, known: Mapping[tuple[int, str], Group]) -> dict[str, tuple[int, ...]]:
    """Ranks seen in groups whose configuration was not recorded."""
    seen: dict[str, set[int]] = {}
    for rank, name in rows[["rank", "group"]].drop_duplicates().itertuples(index=False):
        if (int(rank), str(name)) not in known:
            seen.setdefault(str(name), set()).add(int(rank))
    return {name: tuple(sorted(ranks)) for name, ranks in seen.items()}


def _progress(
    rows: pd.DataFrame,
    known: Mapping[tuple[int, str], Group],
    members: Mapping[str, tuple[int, ...]],
    code_of: Mapping[Group, int],
) -> dict[tuple[int, int], tuple[int, int]]:
    told = rows[rows["last_enqueued"].notna() | rows["last_completed"].notna()].drop_duplicates(["rank", "group"])
    found = {}
    for rank, name, enqueued, completed in zip(
        told["rank"], told["group"], _whole(told["last_enqueued"]), _whole(told["last_completed"])
    ):
        group = known.get((int(rank), str(name))) or Group(str(name), members.get(str(name), ()))
        if group in code_of:
            found[int(rank), code_of[group]] = (int(enqueued), int(completed))
    return found
