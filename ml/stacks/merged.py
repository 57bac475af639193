"""The merged stacks of a snapshot, one trie a process type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ml.stacks.samples import Sample, Snapshot
from ml.stacks.trie import MAX_NODES, Trie, merge


def everyone(snapshots: Iterable[Snapshot]) -> dict[str, set[int]]:
    """By process type, the ranks that were met in any snapshot: one that is not met again is missing from its paths."""
    found: dict[str, set[int]] = {}
    for snapshot in snapshots:
        for kind, rank in snapshot.mains:
            found.setdefault(kind, set()).add(rank)
    return found


def tries_of(snapshot: Snapshot, ranks: Mapping[str, set[int]] | None = None, max_nodes: int = MAX_NODES) -> dict[str, Trie]:
    """Tries by process type. Main threads stand by themselves; other threads stand below their name in brackets.

    Threads of all ranks that share a name (numbers aside), or without names what they began with, share that root.
    Ranks without frames are in no path and count among those that each path lacks.
    """
    found: dict[str, list[Sample]] = {}
    for sample in snapshot.samples:
        if sample.rank is not None:
            found.setdefault(sample.process_type, []).append(sample)
    mains = {id(sample) for sample in snapshot.mains.values()}
    return {
        kind: merge(_labelled(samples, mains), _ranks(samples) | (ranks or {}).get(kind, set()), max_nodes)
        for kind, samples in sorted(found.items())
    }


def _ranks(samples: Iterable[Sample]) -> set[int]:
    return {sample.rank for sample in samples if sample.rank is not None}


def _labelled(samples: Iterable[Sample], mains: set[int]) -> Iterable[tuple[int, Sequence[str]]]:
    for sample in samples:
        if sample.rank is None:
            continue
        if id(sample) in mains or not sample.frames:
            yield sample.rank, sample.frames
        else:
            yield sample.rank, (f"[{sample.thread_key or 'thread'}]", *sample.frames)


def main_trie(snapshot: Snapshot, ranks: Iterable[int] = ()) -> Trie:
    """One trie of the training processes' main threads: what the icicle and the folded text show."""
    mains = snapshot.trainers()
    return merge(((rank, sample.frames) for rank, sample in mains.items()), {*mains, *ranks})
