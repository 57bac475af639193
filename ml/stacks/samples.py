"""Samples: threads of processes at moments, and the one thread by which each process is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ml.stacks.frames import Frame, normal_stack
from ml.stacks.states import Doing, doing


@dataclass(frozen=True)
class Sample:
    """One thread at one moment. `at` is in seconds since 1970, None where not known; frames are outermost first."""

    frames: tuple[str, ...]
    rank: int | None = None
    node: str | None = None
    process_type: str = "trainer"
    pid: int | None = None
    thread_id: str | None = None
    thread_name: str | None = None
    is_active: bool | None = None
    at: float | None = None
    snapshot: str = ""
    file: str | None = None

    @cached_property
    def stack(self) -> tuple[Frame, ...]:
        """The frames made comparable."""
        return normal_stack(self.frames)

    @cached_property
    def doing(self) -> Doing:
        """What the thread does."""
        return doing(self.stack, self.is_active)

    @property
    def thread_key(self) -> str:
        """Threads of one key are compared: names without numbers, or what an unnamed thread began with.

        >>> Sample((), thread_name="Thread-12 (_serve)").thread_key
        'Thread-# (_serve)'
        """
        if self.thread_name:
            return re.sub(r"\d+", "#", self.thread_name)[:120]
        return self.stack[0].loose if self.stack else ""


@dataclass(frozen=True)
class Snapshot:
    """Samples that were taken together: one main thread a process, and all threads."""

    tag: str
    samples: tuple[Sample, ...]

    @cached_property
    def at(self) -> float | None:
        """Median moment of its samples."""
        times = sorted(sample.at for sample in self.samples if sample.at is not None)
        return times[len(times) // 2] if times else None

    @cached_property
    def mains(self) -> dict[tuple[str, int], Sample]:
        """The main thread of each rank's process, by process type and rank; of several processes the first pid."""
        found: dict[tuple[str, int], list[Sample]] = {}
        for sample in self.samples:
            if sample.rank is not None:
                found.setdefault((sample.process_type, sample.rank), []).append(sample)
        return {key: main_thread(threads) for key, threads in sorted(found.items())}

    def trainers(self, roles: Iterable[str] = ()) -> dict[int, Sample]:
        """Main threads of the processes that train, by rank: those of the named types, else the commonest type."""
        kinds = [kind for kind, _ in self.mains]
        wanted = set(roles) & set(kinds) or ({"trainer"} & set(kinds)) or set(_commonest(kinds))
        return {rank: sample for (kind, rank), sample in self.mains.items() if kind in wanted}


def _commonest(kinds: Sequence[str]) -> list[str]:
    counted = {kind: kinds.count(kind) for kind in set(kinds) - {"dataloader", "launcher"}}
    return [min(counted, key=lambda kind: (-counted[kind], kind))] if counted else []


def main_thread(threads: Sequence[Sample]) -> Sample:
    """The thread that runs the program: by name, by its number being the process's, by a module at its root.

    Python's own helpers begin in threading's bootstrap, the program does not.
    """

    def order(sample: Sample) -> tuple[int, int, int, str]:
        is_named = sample.thread_name == "MainThread"
        is_first = sample.pid is not None and sample.thread_id == str(sample.pid)
        is_root = bool(sample.stack) and sample.stack[0].name in ("<module>", "_start", "main")
        rank = 0 if is_named else 1 if is_first else 2 if is_root else 3
        return rank, sample.pid or 0, -len(sample.frames), sample.thread_id or ""

    return min(threads, key=order)


def snapshots_of(samples: Iterable[Sample], gap_s: float = 2.0) -> list[Snapshot]:
    """Samples taken together, in order of time. A tag makes a snapshot; without tags, moments close to each other do.

    One file may hold several moments of one process under one tag: each moment is then its own snapshot.
    """
    tagged: dict[str, list[Sample]] = {}
    for sample in samples:
        tagged.setdefault(sample.snapshot or "", []).append(sample)
    found = [s for tag, members in tagged.items() for s in _moments(tag, members, gap_s)]
    return _joined(sorted(found, key=lambda s: (s.at is None, s.at or 0.0, s.tag)), gap_s)


def _joined(snapshots: list[Snapshot], gap_s: float) -> list[Snapshot]:
    """Neighbours that are of one moment and of different ranks, joined: names that hold the host are no tags of time."""
    kept: list[Snapshot] = []
    is_apart = max(Counter(key for s in snapshots for key in s.mains).values(), default=0) <= 1
    for snapshot in snapshots:
        last = kept[-1] if kept else None
        is_near = last is not None and last.at is not None and snapshot.at is not None and snapshot.at - last.at <= gap_s
        if last is not None and (is_apart or is_near) and not last.mains.keys() & snapshot.mains.keys():
            kept[-1] = Snapshot(_shared_tag(last.tag, snapshot.tag), (*last.samples, *snapshot.samples))
        else:
            kept.append(snapshot)
    return kept


def _shared_tag(a: str, b: str) -> str:
    """What two tags end in alike.

    >>> _shared_tag("gpu-a_T3", "gpu-b_T3"), _shared_tag("gpu-a", "gpu-b")
    ('T3', '')
    """
    ours, theirs = a.split("_"), b.split("_")
    n = 0
    while n < min(len(ours), len(theirs)) and ours[-1 - n] == theirs[-1 - n]:
        n += 1
    return "_".join(ours[len(ours) - n :])


def _moments(tag: str, members: list[Sample], gap_s: float) -> list[Snapshot]:
    repeated: dict[tuple[object, ...], set[float]] = {}
    for sample in members:
        if sample.at is not None:
            key = (sample.process_type, sample.rank, sample.pid, sample.thread_id)
            repeated.setdefault(key, set()).add(sample.at)
    if all(len(times) < 2 for times in repeated.values()):
        return [Snapshot(tag, tuple(members))]
    dated = sorted((m for m in members if m.at is not None), key=lambda m: m.at or 0.0)
    groups: list[list[Sample]] = []
    for sample in dated:
        if groups and (sample.at or 0.0) - (groups[-1][-1].at or 0.0) <= gap_s:
            groups[-1].append(sample)
        else:
            groups.append([sample])
    return [Snapshot(f"{tag}#{number}" if tag else f"#{number}", tuple(group)) for number, group in enumerate(groups)]
