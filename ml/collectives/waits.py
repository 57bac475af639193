"""Who waits for whom: a graph from each rank to what it is at, and from there to those that keep it from happening.

A rank is *at* its first open entry. That collective waits for the members that never enqueued it, for those without a
dump, and for those that have it further back in their queue because they are at something else. Following the waits
leads to ranks that wait for nobody: the end of the chain is where the stop began. Every rank brings one unit of blame,
which flows along its waits, in equal parts where there are several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ml.collectives.entries import Group, State
from ml.collectives.matching import Buffers, Matched, base_op, peer_places

Key = tuple[int, int, str]


@dataclass(frozen=True)
class Head:
    """What some ranks are at: the same collective, or one point-to-point operation.

    `ranks` are at it, `waits_for` keep it from happening, `finished` have it behind them, the devices of `begun` are in
    it. `meets` is the rank that stands at the other end of a send or receive.
    """

    group: Group
    sequence: int
    op: str
    ranks: tuple[int, ...]
    waits_for: tuple[int, ...]
    missing: tuple[int, ...]
    finished: tuple[int, ...]
    frame: str = ""
    begun: tuple[int, ...] = ()
    meets: int | None = None

    @property
    def backend(self) -> str:
        """Library that carries it out, e.g. `nccl`."""
        return self.op.split(":", 1)[0] if ":" in self.op else ""


@dataclass(frozen=True)
class End:
    """Ranks at which chains of waiting end, with the share of all ranks that wait for them, directly or not."""

    ranks: tuple[int, ...]
    share: float
    heads: tuple[Head, ...] = ()


@dataclass(frozen=True)
class Waits:
    """The graph: what each rank is at (None for a rank with nothing open), and the ends of the chains."""

    head_of: Mapping[int, Head | None]
    ends: tuple[End, ...]
    waited_for: Mapping[int, int] = field(default_factory=dict)


def waits(buffers: Buffers, collectives: Mapping[tuple[Group, int], Matched]) -> Waits:
    """The graph of waits. `collectives` are the matched ones, by group and sequence."""
    heads = list(_heads(buffers, collectives))
    head_of: dict[int, Head | None] = dict.fromkeys(buffers.entries.known_ranks)
    head_of |= {rank: head for head in heads for rank in head.ranks}
    return Waits(head_of, tuple(_ends(head_of, heads)), _waited_for(heads))


def _heads(buffers: Buffers, collectives: Mapping[tuple[Group, int], Matched]) -> Iterator[Head]:
    entries = buffers.entries
    ranks_at: dict[Key, list[int]] = {}
    for rank, i in buffers.heads.items():
        op = entries.ops[int(entries.op[i])]
        is_p2p = bool(entries.is_p2p[i])
        ranks_at.setdefault((int(entries.group[i]), int(entries.sequence[i]), f"{rank} {op}" if is_p2p else ""), []).append(rank)
    partner = {rank: _peer(buffers, rank) for rank in buffers.heads}
    for (code, sequence, p2p), ranks in sorted(ranks_at.items()):
        group = entries.groups[code]
        if p2p:
            head = _p2p_head(buffers, group, sequence, ranks[0], partner)
        else:
            head = _collective_head(collectives[group, sequence], tuple(sorted(ranks)))
        begun = tuple(r for r in head.ranks if entries.state[buffers.heads[r]] == State.STARTED)
        yield replace(head, begun=begun)


def _collective_head(one: Matched, ranks: tuple[int, ...]) -> Head:
    blocked = set(one.present) - set(ranks)
    missing = (*one.missing, *one.undumped)
    waits_for = tuple(sorted({*missing, *blocked}))
    return Head(one.group, one.sequence, one.op, ranks, waits_for, missing, one.finished, one.frame)


def _peer(buffers: Buffers, rank: int) -> int | None:
    """The rank with which this one's first open entry exchanges, for sends and receives."""
    entries = buffers.entries
    i = buffers.heads[rank]
    places = peer_places(entries.ops[int(entries.op[i])]) if entries.is_p2p[i] else None
    if places is None:
        return None
    members = entries.groups[int(entries.group[i])].ranks
    ends = [members[place] if place < len(members) else -1 for place in places]
    other = [end for end in ends if end != rank]
    return other[0] if other and other[0] >= 0 else None


def _p2p_head(buffers: Buffers, group: Group, sequence: int, rank: int, partner: Mapping[int, int | None]) -> Head:
    entries = buffers.entries
    i = buffers.heads[rank]
    op = entries.ops[int(entries.op[i])]
    peer = partner.get(rank)
    frame = entries.frames[int(entries.frame[i])] if entries.frames else ""
    if peer is None:
        return Head(group, sequence, op, (rank,), (), (), (), frame)
    # Both at one exchange: each is at its own half of it.
    meets = partner.get(peer) == rank and base_op(op) != base_op(_head_op(buffers, peer))
    is_same_group = peer in buffers.heads and entries.groups[int(entries.group[buffers.heads[peer]])] == group
    missing = (peer,) if peer not in buffers.heads else ()
    if meets and is_same_group:
        return Head(group, sequence, op, (rank,), (), (), (), frame, meets=peer)
    return Head(group, sequence, op, (rank,), (peer,), missing, (), frame)


def _head_op(buffers: Buffers, rank: int) -> str:
    i = buffers.heads.get(rank)
    return "" if i is None else buffers.entries.ops[int(buffers.entries.op[i])]


def _waited_for(heads: list[Head]) -> dict[int, int]:
    """How many ranks wait for each rank directly."""
    counts: dict[int, int] = {}
    for head in heads:
        for rank in head.waits_for:
            counts[rank] = counts.get(rank, 0) + len(head.ranks)
    return counts


def _edges(heads: list[Head]) -> Iterator[tuple[int | Head, int | Head]]:
    for number, head in enumerate(heads):
        is_stalled = bool(head.finished) and not head.waits_for
        for rank in head.ranks:
            yield rank, -1 - number
            if not head.waits_for and not is_stalled:
                # All have come and none has finished: they stand and fall together.
                yield -1 - number, rank
        if head.meets is not None:
            yield -1 - number, head.meets
        for rank in head.waits_for:
            yield -1 - number, rank


def _ends(head_of: Mapping[int, Head | None], heads: list[Head]) -> list[End]:
    """Chains' ends with the share of ranks whose waits lead there."""
    nodes = [*head_of, *(-1 - number for number in range(len(heads)))]
    index = {node: i for i, node in enumerate(nodes)}
    pairs = sorted({(index[a], index[b]) for a, b in _edges(heads) if a in index and b in index})
    n = len(nodes)
    if not n:
        return []
    sources, targets = (np.array(side, np.int64) for side in (zip(*pairs) if pairs else ((), ())))
    graph = coo_array((np.ones(len(sources)), (sources, targets)), shape=(n, n))
    n_parts, part = connected_components(graph, directed=True, connection="strong")
    blame = _flow(n_parts, part, sources, targets, len(head_of))
    leaves = set(range(n_parts)) - {int(part[s]) for s, t in zip(sources, targets) if part[s] != part[t]}
    by_part = np.argsort(part, kind="stable")
    starts = np.searchsorted(part[by_part], np.arange(n_parts + 1))
    found = []
    for leaf in sorted(leaves):
        members = [nodes[i] for i in by_part[starts[leaf] : starts[leaf + 1]]]
        found.append(_end(members, heads, blame[leaf] / max(1, len(head_of))))
    return sorted(found, key=lambda end: (-end.share, end.ranks))


def _end(members: list[int], heads: list[Head], share: float) -> End:
    here = tuple(heads[-1 - node] for node in members if node < 0)
    ranks = {node for node in members if node >= 0} | {rank for head in here for rank in head.ranks}
    return End(tuple(sorted(ranks)), float(share), here)


def _flow(n_parts: int, part: np.ndarray, sources: np.ndarray, targets: np.ndarray, n_ranks: int) -> np.ndarray:
    """Blame that each part of the graph ends up with: every rank's unit, passed on in equal parts along the waits."""
    blame = np.bincount(part[:n_ranks], minlength=n_parts).astype(float)
    onward: dict[int, list[int]] = {}
    n_waiting = np.zeros(n_parts, np.int64)
    for source, target in zip(part[sources], part[targets]):
        if source != target:
            onward.setdefault(int(source), []).append(int(target))
            n_waiting[target] += 1
    ready = [int(p) for p in np.flatnonzero(n_waiting == 0)]
    while ready:
        here = ready.pop()
        for target in onward.get(here, ()):
            blame[target] += blame[here] / len(onward[here])
            n_waiting[target] -= 1
            if n_waiting[target] == 0:
                ready.append(target)
        if here in onward:
            blame[here] = 0.0
    return blame
