"""Builds entries rank by rank, so that a fleet of dumps is never held as objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ml.collectives.entries import Entries, Group, State

TEXTS = ("group", "op", "shape", "dtype", "frame")
NUMBERS = ("order", "sequence", "is_p2p", "state", "created_us", "duration_ms")
STATE_CODES = {state.name.lower(): int(state) for state in State}


@dataclass
class EntriesBuilder:
    """Collects ranks. What it holds can be sent between processes and merged in any order with the same result.

    `columns` of a rank are lists of equal length: the group's name, op, shape, dtype and frame as text, state as text,
    the others as numbers, -1 or NaN where not recorded.
    """

    codes: dict[str, dict[Any, int]] = field(default_factory=lambda: {name: {} for name in TEXTS})
    parts: list[dict[str, np.ndarray]] = field(default_factory=list)
    groups: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    status: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    dumped: set[int] = field(default_factory=set)

    def add(
        self,
        rank: int,
        columns: Mapping[str, Sequence[Any]],
        groups: Mapping[str, tuple[int, ...]],
        status: Mapping[str, tuple[int, int]],
    ) -> None:
        """Add one rank's dump: its entries, the ranks of its groups, and (enqueued, completed) of each group."""
        self.dumped.add(rank)
        self.groups |= {(rank, name): ranks for name, ranks in groups.items() if ranks}
        self.status |= {(rank, name): progress for name, progress in status.items()}
        n = len(columns["sequence"])
        part: dict[str, np.ndarray] = {name: self._coded(name, columns[name]) for name in TEXTS}
        part["rank"] = np.full(n, rank, np.int32)
        states = {word: STATE_CODES.get(word, 0) for word in set(columns["state"])}
        part["state"] = np.fromiter(map(states.__getitem__, columns["state"]), np.int8, n)
        part["is_p2p"] = np.array(columns["is_p2p"], np.bool_)
        part["duration_ms"] = np.array(columns["duration_ms"], np.float32)
        part |= {name: np.array(columns[name], np.int64) for name in ("order", "sequence", "created_us")}
        self.parts.append(part)

    def _coded(self, name: str, values: Collection[Any]) -> np.ndarray:
        codes = self.codes[name]
        for value in dict.fromkeys(values):
            codes.setdefault(value, len(codes))
        return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))

    def merge(self, other: EntriesBuilder) -> None:
        """Take over what another builder collected, with its codes changed to ours."""
        for name in TEXTS:
            ours = self._coded(name, other.codes[name])
            for part in other.parts:
                part[name] = ours[part[name]] if len(part[name]) else part[name]
        self.parts += other.parts
        self.groups |= other.groups
        self.status |= other.status
        self.dumped |= other.dumped

    def entries(self) -> Entries:
        """All that was added, in order of rank; the codes follow the sorted texts."""
        self.parts.sort(key=lambda part: int(part["rank"][0]) if len(part["rank"]) else -1)
        names = [*TEXTS, *NUMBERS, "rank"]
        joined: dict[str, Any] = {n: np.concatenate([p.pop(n) for p in self.parts]) if self.parts else np.empty(0) for n in names}
        self.parts = []
        texts = {}
        for name in TEXTS:
            known = list(self.codes[name])
            order = sorted(range(len(known)), key=lambda i: str(known[i]))
            place = np.empty(len(known), np.int32)
            place[order] = np.arange(len(known))
            joined[name] = place[joined[name].astype(np.int32)] if len(known) else joined[name].astype(np.int32)
            texts[name] = tuple(str(known[i]) for i in order)
        group, groups, code_of = self._grouped(joined["rank"].astype(np.int64), joined["group"], texts["group"])
        return Entries(
            rank=joined["rank"].astype(np.int32), order=joined["order"].astype(np.int64), group=group,
            sequence=joined["sequence"].astype(np.int64), is_p2p=joined["is_p2p"].astype(np.bool_),
            op=joined["op"], shape=joined["shape"], dtype=joined["dtype"], state=joined["state"].astype(np.int8),
            frame=joined["frame"], created_us=joined["created_us"].astype(np.int64),
            duration_ms=joined["duration_ms"], groups=groups, ops=texts["op"], shapes=texts["shape"],
            dtypes=texts["dtype"], frames=texts["frame"],
            progress={(r, code_of[r, name]): value for (r, name), value in self.status.items() if (r, name) in code_of},
            dumped=frozenset(self.dumped),
        )  # fmt: skip

    def _grouped(
        self, ranks: np.ndarray, names: np.ndarray, texts: tuple[str, ...]
    ) -> tuple[np.ndarray, tuple[Group, ...], dict[tuple[int, str], int]]:
        """The group of each entry: a name means what its own rank says that it means."""
        width = max(1, len(texts))
        distinct, place = np.unique(ranks * width + names, return_inverse=True)
        pairs = [(int(key // width), texts[int(key % width)]) for key in distinct]
        seen: dict[str, set[int]] = {}
        for rank, name in {*pairs, *self.status} - self.groups.keys():
            seen.setdefault(name, set()).add(rank)
        shared: dict[tuple[str, tuple[int, ...]], Group] = {}
        of_pair = {
            pair: shared.setdefault(key, Group(*key))
            for pair in {*pairs, *self.groups, *self.status}
            for key in [(pair[1], self.groups.get(pair) or tuple(sorted(seen[pair[1]])))]
        }
        groups = tuple(sorted(set(shared.values())))
        codes = {group: code for code, group in enumerate(groups)}
        code_of = {pair: codes[group] for pair, group in of_pair.items()}
        of_entry = np.array([code_of[pair] for pair in pairs], np.int32)
        return of_entry[place] if len(pairs) else np.empty(0, np.int32), groups, code_of
