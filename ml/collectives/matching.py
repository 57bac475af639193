"""Matches the entries of all ranks: by group and sequence number, who has come, who has finished, who disagrees.

States that a matched collective may be in follow PyTorch's own flight-recorder analysis: type, size, dtype and state
mismatches, and missing ranks. Buffers start at different points on different ranks: a rank that is already past a
sequence number is not missing from it, though its entry is gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ml.collectives.entries import Entries, Group, Ints, State

SAME_SIZE = ("all_reduce", "allreduce", "broadcast", "reduce", "_all_gather_base", "all_gather_into_tensor",
             "_reduce_scatter_base", "reduce_scatter_tensor", "_allgather_base", "barrier")  # fmt: skip
"""Operations in which all ranks pass the same shape; uneven all_to_all and gathers are legitimate."""
MOST_OPEN = 64
"""Open collectives of one group that are looked at, beside those that ranks are at: the first ones tell."""
_PEERS = re.compile(r"(?:send|recv) (\d{1,7})\s?(?:->|<-)\s?(\d{1,7})")
ONE_SIDED = ("broadcast", "reduce", "gather", "scatter", "send", "recv")
"""Operations that can be over for one rank while they are not for another."""


@dataclass(frozen=True)
class Mismatch:
    """One rank that disagrees with the others on one field of one collective."""

    rank: int
    field: str
    this: str
    others: str


@dataclass(frozen=True)
class Matched:
    """One collective of one group over all its ranks.

    `present` have an entry that is not finished, `finished` have one that is (or are past it), `missing` left a dump
    but never came, `undumped` left no dump. `frame` is where the first of the present called it.
    """

    group: Group
    sequence: int
    op: str
    present: tuple[int, ...]
    finished: tuple[int, ...]
    missing: tuple[int, ...]
    undumped: tuple[int, ...]
    mismatches: tuple[Mismatch, ...] = ()
    created_us: int = -1
    frame: str = ""

    @property
    def is_one_sided(self) -> bool:
        """Whether one rank may finish it without the others."""
        return base_op(self.op) in ONE_SIDED


def base_op(op: str) -> str:
    """The operation without back end and peers: `nccl:send 0->3` is `send`.

    >>> base_op("nccl:_all_gather_base"), base_op("gloo:all_reduce"), base_op("xccl:recv 1<-0")
    ('_all_gather_base', 'all_reduce', 'recv')
    """
    return op.rsplit(":", 1)[-1].split(" ", 1)[0]


def peer_places(op: str) -> tuple[int, int] | None:
    """The two places in their group that a send or receive names, the own one first; None when it names none.

    >>> peer_places("nccl:recv 2<-3"), peer_places("nccl:send 0->3"), peer_places("nccl:all_reduce")
    ((2, 3), (0, 3), None)
    """
    match = _PEERS.search(op)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class Buffers:
    """All ranks' buffers with what follows from them: which entries are open, and each rank's first open one."""

    entries: Entries

    @cached_property
    def is_open(self) -> np.ndarray:
        """Entries that are not finished, by their state or by their group's progress."""
        entries = self.entries
        done = np.isin(entries.state, (State.COMPLETED,))
        keys = entries.rank * max(1, len(entries.groups)) + entries.group
        distinct, place = np.unique(keys, return_inverse=True)
        n_groups = max(1, len(entries.groups))
        last = np.array([entries.progress.get((int(k // n_groups), int(k % n_groups)), (-1, -1))[1] for k in distinct], np.int64)
        past = (entries.sequence <= last[place]) & ~entries.is_p2p if len(last) else np.zeros(len(entries), bool)
        return ~(done | past | ((entries.state == State.UNKNOWN) & (last[place] < 0 if len(last) else False)))

    @cached_property
    def heads(self) -> dict[int, int]:
        """Each rank's first open entry: what it is at."""
        at = np.flatnonzero(self.is_open)
        at = at[np.lexsort((self.entries.order[at], self.entries.rank[at]))]
        ranks, first = np.unique(self.entries.rank[at], return_index=True)
        return {int(rank): int(at[i]) for rank, i in zip(ranks, first)}

    @cached_property
    def overrun(self) -> frozenset[int]:
        """Ranks whose ring may have lost what they are at: their oldest entry is open, where peers still hold finished ones."""
        entries = self.entries
        if self.is_open.all():
            return frozenset()
        at = np.lexsort((entries.order, entries.rank))
        ranks, first = np.unique(entries.rank[at], return_index=True)
        return frozenset(int(rank) for rank in ranks[self.is_open[at[first]]])

    @cached_property
    def n_open(self) -> dict[int, int]:
        """How many open entries each rank has."""
        ranks, counts = np.unique(self.entries.rank[self.is_open], return_counts=True)
        return {int(r): int(c) for r, c in zip(ranks, counts)}

    @cached_property
    def reached(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By rank and group code, the last collective enqueued and the last completed, from status and entries."""
        entries = self.entries
        found = {key: value for key, value in entries.progress.items() if key[1] not in self.p2p_groups}
        for i, (enqueued, completed) in self._seen().items():
            old = found.get(i, (-1, -1))
            found[i] = (max(old[0], enqueued), max(old[1], completed))
        return found

    @cached_property
    def p2p_groups(self) -> frozenset[int]:
        """Groups in which sends and receives were seen: their status counts both kinds together."""
        return frozenset(int(g) for g in np.unique(self.entries.group[self.entries.is_p2p]))

    def _seen(self) -> dict[tuple[int, int], tuple[int, int]]:
        entries = self.entries
        at = np.flatnonzero(~entries.is_p2p)
        if not len(at):
            return {}
        n_groups = max(1, len(entries.groups))
        keys = entries.rank[at] * n_groups + entries.group[at]
        at, keys = at[np.argsort(keys, kind="stable")], np.sort(keys, kind="stable")
        distinct, first = np.unique(keys, return_index=True)
        newest = np.maximum.reduceat(entries.sequence[at], first)
        done = np.where(self.is_open[at] | (entries.state[at] == State.UNKNOWN), -1, entries.sequence[at])
        finished = np.maximum.reduceat(done, first)
        return {(int(k // n_groups), int(k % n_groups)): (int(e), int(c)) for k, e, c in zip(distinct, newest, finished)}


def collective_order(entries: Entries) -> tuple[Ints, Ints]:
    """Collective entries ordered by group, sequence and rank, and where each collective begins among them."""
    at = np.flatnonzero(~entries.is_p2p)
    if not len(at):
        return at, np.empty(0, np.int64)
    low = int(entries.sequence[at].min())
    span = int(entries.sequence[at].max()) - low + 1
    key = entries.group[at] * span + (entries.sequence[at] - low)
    order = np.argsort(key, kind="stable")
    at, key = at[order], key[order]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    return at, starts


def matched(buffers: Buffers) -> Iterator[Matched]:
    """Every collective that is open on some rank or on whose arguments its ranks disagree, by group and sequence.

    Sequence numbers below the point from which every buffer of the group goes back are compared for what is left.
    """
    entries = buffers.entries
    at, starts = collective_order(entries)
    if not len(at):
        return
    ends = np.r_[starts[1:], len(at)]
    interesting = np.maximum.reduceat(buffers.is_open[at], starts)
    is_even = np.array([base_op(op) in SAME_SIZE for op in entries.ops], bool)[entries.op[at]]
    for values in (entries.op[at], entries.dtype[at], np.where(is_even, entries.shape[at], 0)):
        interesting |= np.maximum.reduceat(values, starts) != np.minimum.reduceat(values, starts)
    at_heads = {(int(entries.group[i]), int(entries.sequence[i])) for i in buffers.heads.values()}
    n_seen: Counter[int] = Counter()
    for i in np.flatnonzero(interesting):
        code = int(entries.group[at[starts[i]]])
        n_seen[code] += 1
        if n_seen[code] > MOST_OPEN and (code, int(entries.sequence[at[starts[i]]])) not in at_heads:
            continue
        one = _match(buffers, at[starts[i] : ends[i]])
        if one.present or one.mismatches:
            yield one


def _match(buffers: Buffers, at: Ints) -> Matched:
    entries = buffers.entries
    code = int(entries.group[at[0]])
    group, sequence = entries.groups[code], int(entries.sequence[at[0]])
    seen = {int(r) for r in entries.rank[at]}
    present = {int(r) for r, is_open in zip(entries.rank[at], buffers.is_open[at]) if is_open}
    finished, missing, undumped = seen - present, set(), set()
    for rank in set(group.ranks) - seen:
        enqueued, completed = buffers.reached.get((rank, code), (-1, -1))
        if rank not in entries.dumped:
            undumped.add(rank)
        elif completed >= sequence:
            finished.add(rank)
        elif enqueued >= sequence:
            present.add(rank)
        else:
            missing.add(rank)
    created = entries.created_us[at]
    first = at[np.argmin(np.where(created < 0, np.iinfo(np.int64).max, created))]
    ops = Counter(entries.ops[o] for o in entries.op[at])
    return Matched(
        group, sequence, min(ops, key=lambda op: (-ops[op], op)), _sorted(present), _sorted(finished),
        _sorted(missing), _sorted(undumped), _mismatches(buffers, at, present, finished), int(entries.created_us[first]),
        entries.frames[int(entries.frame[first])] if entries.frames else "",
    )  # fmt: skip


@dataclass(frozen=True)
class Usual:
    """What other groups of the same description do at a sequence number: it decides where halves stand against each other."""

    buffers: Buffers

    @cached_property
    def _seen(self) -> dict[tuple[str, int], Ints]:
        """Places of the collective entries by description and sequence."""
        entries = self.buffers.entries
        at, starts = collective_order(entries)
        found: dict[tuple[str, int], list[Ints]] = {}
        for begin, end in zip(starts, np.r_[starts[1:], len(at)]):
            here = at[begin:end]
            key = (_described(entries.groups[int(entries.group[here[0]])]), int(entries.sequence[here[0]]))
            found.setdefault(key, []).append(here)
        return {key: np.concatenate(parts) for key, parts in found.items()}

    def is_odd(self, one: Matched, mismatch: Mismatch) -> bool:
        """Whether the rank differs from most of the other groups, and its peers do not."""
        entries = self.buffers.entries
        at = self._seen.get((_described(one.group), one.sequence), np.empty(0, np.int64))
        at = at[~np.isin(entries.rank[at], one.group.ranks)]
        codes, texts = {"op": (entries.op, entries.ops), "dtype": (entries.dtype, entries.dtypes)}.get(
            mismatch.field, (entries.shape, entries.shapes)
        )
        counts = Counter(texts[code] for code in codes[at])
        if mismatch.field == "op":
            counts = Counter({base_op(op): n for op, n in counts.items()})
        return counts[mismatch.others] * 2 > len(at) and counts[mismatch.this] < counts[mismatch.others]


def _described(group: Group) -> str:
    return group.name.partition(" ")[2] or group.name


def _sorted(ranks: set[int]) -> tuple[int, ...]:
    return tuple(sorted(ranks))


def _mismatches(buffers: Buffers, at: Ints, present: set[int], finished: set[int]) -> tuple[Mismatch, ...]:
    """Ranks in the minority on op, sizes or dtype, all of them where halves stand against each other.

    On the state, whoever has not completed what others have is named, however many they are.
    """
    entries = buffers.entries
    ranks = [int(r) for r in entries.rank[at]]
    ops = [base_op(entries.ops[o]) for o in entries.op[at]]
    fields = {"op": ops, "dtype": [entries.dtypes[d] for d in entries.dtype[at]]}
    if len(set(ops)) == 1 and ops[0] in SAME_SIZE:
        fields["sizes"] = [entries.shapes[s] for s in entries.shape[at]]
    found = [m for name, values in fields.items() for m in _minority(name, ranks, values)]
    if finished and ops[0] not in ONE_SIDED:
        found += [Mismatch(rank, "state", "not completed", "completed") for rank in sorted(present)]
    return tuple(found)


def _minority(name: str, ranks: list[int], values: list[str]) -> Iterator[Mismatch]:
    counts = Counter(values)
    if len(counts) < 2:
        return
    most = max(counts.values())
    leaders = sorted(value for value, n in counts.items() if n == most)
    for rank, value in sorted(zip(ranks, values)):
        if len(leaders) > 1 or value != leaders[0]:
            yield Mismatch(rank, name, value, next(leader for leader in leaders if leader != value))
