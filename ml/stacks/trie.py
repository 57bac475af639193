"""Stacks of all ranks merged into a trie: every path with the ranks that are in it and those that are not.

Equal stacks are merged first. The distinct ones, in order, make the trie by their common beginnings, so that a node is
a run of them: no node carries a set of ranks of its own while the trie is built, and the time is linear in the frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ml.collectives.ranks import notation
from ml.stacks.frames import normal

MAX_NODES = 20_000


@dataclass(frozen=True)
class Node:
    """One node: the path from the outermost frame to it, who is in it, who is not, and how many threads there are.

    `is_leaf` says that a thread ends here.
    """

    path: tuple[str, ...]
    has_ranks: tuple[int, ...]
    missing_ranks: tuple[int, ...]
    n: int
    is_leaf: bool

    @property
    def notation(self) -> str:
        """FLAME's notation of its ranks."""
        return notation(self.has_ranks, self.missing_ranks)


@dataclass(frozen=True)
class Trie:
    """A merged set of stacks, nodes in order of their paths: parents come before their children.

    `n_cut` nodes were left out, the deepest of the least travelled, when there were more than could be shown.
    """

    ranks: tuple[int, ...]
    nodes: tuple[Node, ...]
    n_cut: int = 0

    @property
    def leaves(self) -> list[Node]:
        """Nodes at which threads end."""
        return [node for node in self.nodes if node.is_leaf]


def merge(stacks: Iterable[tuple[int, Sequence[str]]], ranks: Iterable[int] | None = None, max_nodes: int = MAX_NODES) -> Trie:
    """Merge stacks, pairs of rank and frames outermost first. `ranks` are all that were looked at, where more than seen.

    >>> trie = merge([(0, ["main (t.py:1)", "f (t.py:2)"]), (1, ["main (t.py:1)"])])
    >>> [(node.path[-1], node.notation) for node in trie.nodes]
    [('main (t.py:1)', '@0-1|'), ('f (t.py:2)', '@0|1')]
    """
    ranks_of: dict[tuple[str, ...], list[int]] = {}
    for rank, frames in stacks:
        ranks_of.setdefault(tuple(frames), []).append(rank)
    cleaned: dict[tuple[str, ...], list[int]] = {}
    for raw, members in ranks_of.items():
        cleaned.setdefault(tuple(normal(frame).key for frame in raw), []).extend(members)
    seen = np.unique(np.fromiter((r for members in cleaned.values() for r in members), np.int64))
    everyone = np.union1d(seen, np.fromiter(ranks, np.int64)) if ranks is not None else seen
    order = sorted(cleaned)
    spans = _spans(order)
    kept = _kept(spans, order, cleaned, max_nodes)
    arrays = {stack: np.array(cleaned[stack], np.int64) for stack in order}
    nodes = tuple(_node(span, order, arrays, everyone) for span in kept)
    return Trie(tuple(int(r) for r in everyone), nodes, len(spans) - len(kept))


Span = tuple[int, int, int]
"""First and last+1 distinct stack, and depth."""


def _spans(order: Sequence[tuple[str, ...]]) -> list[Span]:
    """Nodes as runs of the sorted stacks, parents before children."""
    spans: list[Span] = []
    begun: list[int] = []
    open_at: list[int] = []
    previous: tuple[str, ...] = ()
    for number, stack in enumerate(order):
        common = 0
        for a, b in zip(previous, stack):
            if a != b:
                break
            common += 1
        while len(open_at) > common:
            place = open_at.pop()
            spans[place] = (begun.pop(), number, len(open_at) + 1)
        for _ in range(len(open_at), len(stack)):
            open_at.append(len(spans))
            begun.append(number)
            spans.append((0, 0, 0))
        previous = stack
    while open_at:
        place = open_at.pop()
        spans[place] = (begun.pop(), len(order), len(open_at) + 1)
    return spans


def _kept(
    spans: list[Span], order: Sequence[tuple[str, ...]], ranks_of: Mapping[tuple[str, ...], list[int]], max_nodes: int
) -> list[Span]:
    """All nodes, or those that most threads pass through; a child never weighs more than its parent and comes after it."""
    if len(spans) <= max_nodes:
        return spans
    weights = np.cumsum([0, *(len(ranks_of[stack]) for stack in order)])
    n = np.array([weights[end] - weights[begin] for begin, end, _ in spans])
    depth = np.array([d for _, _, d in spans])
    chosen = np.sort(np.lexsort((depth, -n))[:max_nodes])
    return [spans[i] for i in chosen]


def _node(
    span: Span,
    order: Sequence[tuple[str, ...]],
    ranks_of: Mapping[tuple[str, ...], NDArray[np.int64]],
    everyone: NDArray[np.int64],
) -> Node:
    begin, end, depth = span
    parts = [ranks_of[order[i]] for i in range(begin, end)]
    has = np.unique(np.concatenate(parts)) if len(parts) > 1 else np.unique(parts[0])
    missing = np.setdiff1d(everyone, has, assume_unique=True) if len(has) < len(everyone) else has[:0]
    first = order[begin]
    n = sum(len(part) for part in parts)
    return Node(first[:depth], tuple(has.tolist()), tuple(missing.tolist()), n, len(first) == depth)


def folded(trie: Trie) -> str:
    """Folded text in FLAME's form: a line a leaf, each frame with its ranks, and a count of 1.

    >>> print(folded(merge([(0, ["a (f:1)", "b (f:2)"]), (1, ["a (f:1)"])])))
    a (f:1)@0-1| 1
    a (f:1)@0-1|;b (f:2)@0|1 1
    """
    by_path = {node.path: node for node in trie.nodes}
    lines = []
    for node in trie.leaves:
        frames = [by_path.get(node.path[: i + 1]) for i in range(len(node.path))]
        text = ";".join(f"{clean(frame.path[-1])}{frame.notation}" for frame in frames if frame is not None)
        lines.append(f"{text} 1")
    return "\n".join(lines)


def clean(frame: str) -> str:
    """A frame without the signs that folded text itself uses."""
    return frame.replace(";", ",").replace("\n", " ").replace("@", "(at)")
