"""Flight-recorder entries as arrays: what all ranks enqueued, in the form that matching works on.

One array a column, text as codes into a list of distinct texts: eight million entries take some 400 MB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class State(IntEnum):
    """How far an entry came."""

    UNKNOWN = 0
    SCHEDULED = 1
    STARTED = 2
    COMPLETED = 3


@dataclass(frozen=True, order=True)
class Group:
    """A process group. Numbers and names are used again after a split, so that only name and ranks together are a key."""

    name: str
    ranks: tuple[int, ...]

    @property
    def key(self) -> str:
        """Name and hash of the ranks.

        >>> Group("1 dp", (0, 2)).key
        '1 dp#1f646737'
        """
        return f"{self.name}#{hashlib.sha256(repr(self.ranks).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Entries:
    """All ranks' entries. Arrays have one place an entry; `group`, `op`, `shape`, `dtype`, `frame` are codes.

    `order` is the place in the rank's own buffer; `created_us` is -1 and `duration_ms` NaN where not recorded.
    `progress` says, by rank and group code, the last sequence enqueued and the last completed, -1 where not known.
    `dumped` holds the ranks that left a dump, with or without entries.
    """

    rank: Ints
    order: Ints
    group: Ints
    sequence: Ints
    is_p2p: NDArray[np.bool_]
    op: Ints
    shape: Ints
    dtype: Ints
    state: Ints
    frame: Ints
    created_us: Ints
    duration_ms: NDArray[np.float64]
    groups: tuple[Group, ...]
    ops: tuple[str, ...]
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    frames: tuple[str, ...]
    progress: Mapping[tuple[int, int], tuple[int, int]]
    dumped: frozenset[int]

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def known_ranks(self) -> list[int]:
        """Every rank that left a dump or belongs to a group, in order."""
        named = {rank for group in self.groups for rank in group.ranks}
        return sorted(named | self.dumped)
