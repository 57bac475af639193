"""Stacks over time: frames that do not change, together with silent logs and no iterations, are lack of progress.

Unchanged frames alone are not: a healthy rank is often met in the same place. Phases that block by nature (checkpoint,
download, compile) are allowed their time; a process on its way out has no frames and is no hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ml.stacks.samples import Sample, Snapshot
from ml.stacks.states import ALLOWED_S, Activity, Doing

STILL_SHARE = 0.5
"""Share of the ranks sampled at least twice that must stand still."""
QUIET_S = 1.0
"""Logs may go on for this long after the frames froze: whoever waits may still print."""


@dataclass(frozen=True)
class Course:
    """What is known beside the stacks: moments of iterations and of log lines by rank, and of the job's end.

    Times in seconds since 1970. `iterations` are (moment, number), in order. `logs` are the moments of log lines
    printed by training ranks, None when the job has no logs.
    """

    iterations: tuple[tuple[float, int], ...] = ()
    logs: tuple[float, ...] | None = None
    ended_at: float | None = None
    has_completed: bool = False
    is_known: bool = False

    def last_iteration(self, before: float) -> tuple[float, int] | None:
        """The last iteration at or before a moment."""
        earlier = [one for one in self.iterations if one[0] <= before]
        return earlier[-1] if earlier else None


@dataclass(frozen=True)
class Standstill:
    """A run of snapshots in which most ranks did not move.

    `still` are ranks whose frames stayed the same, `moving` those whose did not, `exiting` those without frames on
    their way out. `since` is the last sign of progress before it, `until` the last sample or the job's end.
    `is_confirmed` says that iterations and logs were looked at and were silent too.
    """

    snapshots: tuple[Snapshot, ...]
    still: tuple[int, ...]
    moving: tuple[int, ...]
    exiting: tuple[int, ...]
    since: float | None
    until: float | None
    iteration: int | None
    is_confirmed: bool
    allowed: Activity | None = None
    mains: Mapping[int, Sample] = field(default_factory=dict)

    @property
    def seen_s(self) -> float:
        """Seconds between the first and the last sample of it."""
        times = [s.at for s in self.snapshots if s.at is not None]
        return max(times) - min(times) if times else 0.0

    @property
    def duration_s(self) -> float:
        """Seconds without progress, from the last sign of it to the end."""
        if self.since is None or self.until is None:
            return self.seen_s
        return max(self.until - self.since, self.seen_s)


def standstill(snapshots: Sequence[Snapshot], course: Course) -> Standstill | None:
    """The last run of at least two snapshots in which most training ranks stood still; None when there is none.

    With iterations or logs known, it counts only if none of them fell into it.
    """
    for first, last in _runs(snapshots):
        # Ranks may be met in one place twice by chance: the run is cut where most ranks stand still in what is left.
        found = [_judged(snapshots[begin : last + 1], course) for begin in range(first, last)]
        standing = [one for one in found if one is not None]
        if standing:
            return max(standing, key=lambda one: (len(one.still), len(one.snapshots)))
    return None


def _runs(snapshots: Sequence[Snapshot]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring snapshots between which nothing moved, the latest first."""
    joins = [_is_still(a, b) for a, b in pairwise(snapshots)]
    last = len(snapshots) - 1
    while last > 0:
        first = last
        while first > 0 and joins[first - 1]:
            first -= 1
        if first < last:
            yield first, last
        last = first - 1 if first < last else last - 1


def _is_still(a: Snapshot, b: Snapshot) -> bool:
    before, after = a.trainers(), b.trainers()
    both = [rank for rank in before if rank in after and before[rank].frames and after[rank].frames]
    still = [rank for rank in both if _same(before[rank], after[rank])]
    return bool(still) and len(still) >= STILL_SHARE * len(both)


def _same(a: Sample, b: Sample) -> bool:
    """The same process in the same frames at another moment."""
    return a.frames == b.frames and a.pid == b.pid and (a.at is None or a.at != b.at or a.snapshot != b.snapshot)


def _judged(run: Sequence[Snapshot], course: Course) -> Standstill | None:
    mains = [snapshot.trainers() for snapshot in run]
    last = {rank: sample for found in mains for rank, sample in found.items()}
    still, moving, exiting = [], [], []
    for rank, sample in sorted(last.items()):
        seen = [found[rank] for found in mains if rank in found]
        if not sample.frames:
            exiting.append(rank)
        elif len(seen) > 1 and all(_same(a, b) for a, b in pairwise(seen)):
            still.append(rank)
        elif len(seen) > 1:
            moving.append(rank)
    if not still or len(still) < STILL_SHARE * (len(still) + len(moving) + len(exiting)):
        return None
    begin, end = run[0].at, run[-1].at
    if begin is None or end is None:
        return Standstill(tuple(run), tuple(still), tuple(moving), tuple(exiting), None, None, None, False, mains=last)
    if any(begin < moment <= end for moment, _ in course.iterations) or _talks(course, begin, end):
        return None
    before = course.last_iteration(begin)
    since = before[0] if before else begin
    until = course.ended_at if course.ended_at is not None and course.ended_at > end else end
    found = Standstill(
        tuple(run), tuple(still), tuple(moving), tuple(exiting), since, until, before[1] if before else None,
        course.is_known, _allowance([last[rank].doing for rank in still]), last,
    )  # fmt: skip
    return found


def _talks(course: Course, begin: float, end: float) -> bool:
    """Whether training ranks went on printing through most of it."""
    inside = [moment for moment in course.logs or () if begin + QUIET_S < moment <= end]
    return len(inside) > 0


def _allowance(doings: Sequence[Doing]) -> Activity | None:
    """The phase that blocks by nature in which ranks stand, the commonest of them, None when they stand in none.

    Peers that wait in a collective for the rank that writes a checkpoint are in its phase too.
    """
    counts = Counter(d.activity for d in doings if d.activity in ALLOWED_S)
    return min(counts, key=lambda activity: (-counts[activity], activity)) if counts else None


def is_allowed(found: Standstill) -> bool:
    """Whether a standstill is no longer than its phase may take."""
    return found.allowed is not None and found.duration_s <= ALLOWED_S[found.allowed]
