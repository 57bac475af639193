"""Who waits and who is waited for: the ranks outside of the wait that all others are in.

In a hang most ranks stand in a collective; they are the waiters and accuse nobody. The ones that are elsewhere, or that
could not be sampled at all, are whom they wait for. If everybody stands in a collective, the stacks do not hold the
culprit: only a rank that is in another operation than the rest stands out, and less surely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ml.stacks.samples import Sample, Snapshot
from ml.stacks.states import Activity, is_idle_worker

FEW_SHARE = 0.25
WAITING_SHARE = 0.5


class Reason(StrEnum):
    """Why ranks stand out."""

    OUTSIDE = "outside_collective"
    UNSAMPLED = "not_sampled"
    OTHER_COLLECTIVE = "other_collective"
    NOBODY = "culprit_not_in_stacks"


@dataclass(frozen=True)
class Outlier:
    """One rank that stands out, and how strongly, 0 to 1. `path` is where it stands, outermost first."""

    rank: int
    reason: Reason
    strength: float
    path: tuple[str, ...]
    says: str


@dataclass(frozen=True)
class Waiters:
    """The ranks that wait, in which operation, and where: the commonest place."""

    ranks: tuple[int, ...]
    operation: str
    path: tuple[str, ...]
    n_places: int


@dataclass(frozen=True)
class Blame:
    """What a moment's stacks say: the waiters, and the ranks that they wait for, strongest first."""

    waiters: Waiters | None
    outliers: tuple[Outlier, ...]
    n_ranks: int
    exiting: tuple[int, ...]

    @property
    def is_everyone_waiting(self) -> bool:
        """All ranks are in collectives and none stands out."""
        return self.waiters is not None and not self.outliers and len(self.waiters.ranks) >= self.n_ranks


def blame(
    mains: Mapping[int, Sample],
    expected: Collection[int],
    groups: Mapping[int, Mapping[str, Sequence[int]]] | None = None,
    node_of: Mapping[int, str] | None = None,
    earlier: Iterable[Snapshot] = (),
) -> Blame:
    """Sort the training ranks of one moment into waiters and outliers.

    `mains` are the main threads by rank, `expected` all ranks that should be there; `earlier` snapshots show what is
    usual in this program.
    """
    everyone = sorted({*mains, *expected})
    absent = [r for r in everyone if r not in mains or mains[r].doing.activity is Activity.UNSAMPLED]
    exiting = [r for r in mains if mains[r].doing.activity is Activity.EXITING]
    waiting = [r for r in sorted(mains) if mains[r].doing.is_waiting]
    outside = [r for r in sorted(mains) if r not in waiting and r not in absent and r not in exiting]
    if len(waiting) < WAITING_SHARE * len(everyone) or exiting:
        return Blame(None, (), len(everyone), tuple(exiting))
    waiters = _waiters(waiting, mains)
    found = _outside(outside, everyone, waiters, mains)
    found += _absent(absent, everyone, waiters, node_of or {})
    if not found:
        found = _other_collective(waiting, mains, groups or {}, list(earlier))
    found.sort(key=lambda one: (-one.strength, one.rank))
    return Blame(waiters, tuple(found), len(everyone), ())


def _waiters(waiting: Sequence[int], mains: Mapping[int, Sample]) -> Waiters:
    operations = Counter(mains[r].doing.what for r in waiting)
    places = Counter(mains[r].doing.place for r in waiting)
    return Waiters(
        tuple(waiting),
        min(operations, key=lambda o: (-operations[o], o)),
        min(places, key=lambda p: (-places[p], p)),
        len(places),
    )


def _outside(outside: Sequence[int], everyone: Sequence[int], waiters: Waiters, mains: Mapping[int, Sample]) -> list[Outlier]:
    """Ranks that do something else while the others wait; the more of them, the less each says."""
    share = len(outside) / max(1, len(everyone))
    strength = 0.95 if share <= FEW_SHARE or len(outside) == 1 else 0.6
    found = []
    for rank in outside:
        doing = mains[rank].doing
        kind = {Activity.DATA_WAIT: "waits for data", Activity.CHECKPOINT: "is in a checkpoint"}.get(doing.activity, "stands")
        says = f"{kind} in {doing.leaf} while {len(waiters.ranks)} of {len(everyone)} wait in {waiters.operation}"
        found.append(Outlier(rank, Reason.OUTSIDE, strength, doing.place, says))
    return found


def _absent(absent: Sequence[int], everyone: Sequence[int], waiters: Waiters, node_of: Mapping[int, str]) -> list[Outlier]:
    """Ranks that could not be sampled: stopped or gone. Many of them say more about the sampler than about ranks."""
    share = len(absent) / max(1, len(everyone))
    nodes = {node_of.get(r) for r in absent}
    is_one_node = len(nodes) == 1 and None not in nodes
    strength = 0.85 if share <= FEW_SHARE or (is_one_node and share <= 0.5) else 0.3
    says = f"could not be sampled while {len(waiters.ranks)} of {len(everyone)} wait in {waiters.operation}"
    return [Outlier(rank, Reason.UNSAMPLED, strength, (), says) for rank in absent]


def _other_collective(
    waiting: Sequence[int],
    mains: Mapping[int, Sample],
    groups: Mapping[int, Mapping[str, Sequence[int]]],
    earlier: Sequence[Snapshot],
) -> list[Outlier]:
    """Ranks in another operation than the rest: they skipped or added one.

    Surer where the place was not met before, and where a peer of its group is left waiting in a place of its own.
    """
    operations = Counter(mains[r].doing.what for r in waiting)
    if len(operations) < 2:
        return []
    usual, n_usual = operations.most_common(1)[0]
    odd = [r for r in waiting if mains[r].doing.what != usual]
    if len(odd) > max(1, FEW_SHARE * len(waiting)) or n_usual <= len(odd):
        return []
    known = {sample.doing.place for snapshot in earlier for sample in snapshot.mains.values()}
    places = Counter(mains[r].doing.place for r in waiting)
    lonely = {r for r in waiting if places[mains[r].doing.place] <= max(1, FEW_SHARE * len(waiting))} - set(odd)
    found = []
    for rank in odd:
        doing = mains[rank].doing
        peers = {peer for members in groups.get(rank, {}).values() for peer in members if len(members) < len(mains)}
        strength = 0.55 + 0.1 * (bool(known) and doing.place not in known) + 0.15 * bool(lonely & peers)
        says = f"waits in {doing.what} at {_caller(doing.place)} while {n_usual} of {len(waiting)} wait in {usual}"
        found.append(Outlier(rank, Reason.OTHER_COLLECTIVE, strength, doing.place, says))
    return found


def _caller(place: Sequence[str]) -> str:
    """The innermost frame outside of the framework's own distributed module."""
    own = [frame for frame in place if "distributed" not in frame]
    return own[-1] if own else (place[-1] if place else "?")


def worker_difference(rank: int, snapshot: Snapshot, process_type: str = "dataloader") -> tuple[str, tuple[str, ...]] | None:
    """What a rank's data worker does that those of other ranks do not: in words, and its path. None when nothing.

    A worker that waits for orders is idle; one that reads or decodes while those of the others are idle holds its
    trainer up.
    """
    workers = {r: sample for (kind, r), sample in snapshot.mains.items() if kind == process_type}
    mine = workers.pop(rank, None)
    if mine is None or not workers or not mine.frames or is_idle_worker(mine.stack):
        return None
    n_idle = sum(is_idle_worker(sample.stack) for sample in workers.values())
    if n_idle * 2 < len(workers):
        return None
    return f"its data worker stands in {mine.doing.leaf} while {n_idle} of {len(workers)} others are idle", mine.doing.place
