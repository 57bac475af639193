"""From a job's stack samples to its findings: lack of progress, who waits, and whom they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ml.collectives.groups import smallest_group
from ml.collectives.ranks import compressed
from ml.stacks.blame import Blame, Outlier, Reason, blame, worker_difference
from ml.stacks.progress import Course, Standstill, is_allowed, standstill
from ml.stacks.samples import Sample, Snapshot, snapshots_of

UNCONFIRMED = 0.75
"""Weight of a standstill of which only the stacks are known, neither logs nor iterations."""
SINGLE = 0.45
"""Weight of one snapshot alone: a healthy rank may be met outside of a collective at any moment."""
COMPLETED = 0.4
"""Weight of anything in a job that completed."""


@dataclass(frozen=True)
class Placing:
    """What is known of the job's ranks: node, role and parallel groups by rank; empty where it is not."""

    node_of: Mapping[int, str] = field(default_factory=dict)
    groups: Mapping[int, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    trainers: tuple[int, ...] = ()


@dataclass(frozen=True)
class StackFinding:
    """One finding; the fields mean what the columns of `stack_findings` mean. `at` is in seconds since 1970."""

    axis: str
    kind: str
    score: float
    statement: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    group_kind: str | None = None
    is_echo: bool = False
    is_global: bool = False
    at: float | None = None
    iteration: int | None = None
    subject: str | None = None
    path: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    process_type: str = "trainer"
    n_ranks: int = 0
    n_snapshots: int = 1
    duration_s: float | None = None


def findings(samples: Sequence[Sample], placing: Placing | None = None, course: Course | None = None) -> list[StackFinding]:
    """A job's findings, strongest first. Without a standstill a job that went on gives none that names a node.

    `samples` are all threads of all processes at all moments.
    """
    placing, course = placing or Placing(), course or Course()
    snapshots = snapshots_of(samples)
    if not snapshots:
        return []
    still = standstill(snapshots, course)
    if still is not None and is_allowed(still):
        return [_allowed(still)]
    expected = set(placing.trainers) or {rank for s in snapshots for rank in s.trainers()}
    if still is not None:
        found = _of_standstill(still, snapshots, expected, placing)
    elif len(snapshots) == 1 and not course.is_known:
        found = _of_single(snapshots[0], expected, placing)
    else:
        found = []
    weight = COMPLETED if course.has_completed else 1.0
    return sorted((replace(f, score=round(f.score * weight, 4)) for f in found), key=_order)


def _order(finding: StackFinding) -> tuple[float, str, tuple[int, ...]]:
    return -finding.score, finding.kind, finding.ranks


def _of_standstill(still: Standstill, snapshots: Sequence[Snapshot], expected: set[int], placing: Placing) -> list[StackFinding]:
    earlier = [s for s in snapshots if s not in still.snapshots]
    seen_before = {rank for s in snapshots for rank in s.trainers()}
    mains = {rank: sample for rank, sample in still.mains.items() if rank not in still.moving}
    told = blame(mains, (expected | seen_before) - set(still.moving), placing.groups, placing.node_of, earlier)
    weight = 1.0 if still.is_confirmed else UNCONFIRMED
    found = _of_blame(told, weight, still.snapshots[-1], placing)
    length = _length(still)
    found = [
        replace(f, statement=f"{f.statement}; {length}", at=still.since, iteration=still.iteration,
                n_snapshots=len(still.snapshots), duration_s=still.duration_s)
        for f in found
    ]  # fmt: skip
    if told.waiters is None and still.exiting:
        return []
    return [*found, _lack_of_progress(still, told, weight)]


def _length(still: Standstill) -> str:
    text = f"unchanged in {len(still.snapshots)} samples over {still.seen_s:.0f} s"
    if still.is_confirmed and still.since is not None:
        text += f", no progress for {still.duration_s:.0f} s"
    return text


def _lack_of_progress(still: Standstill, told: Blame, weight: float) -> StackFinding:
    where = f", {len(told.waiters.ranks)} of them in {told.waiters.operation}" if told.waiters else ""
    quiet = "; no iteration and no log line in that time" if still.is_confirmed else "; logs were not looked at"
    after = f" after iteration {still.iteration}" if still.iteration is not None else ""
    text = f"{len(still.still)} of {told.n_ranks} training ranks do not move for {still.duration_s:.0f} s{after}{where}{quiet}"
    return StackFinding(
        "temporal", "lack_of_progress", 0.9 * weight, text, is_global=True, at=still.since, iteration=still.iteration,
        subject=told.waiters.operation if told.waiters else None, path=told.waiters.path if told.waiters else (),
        n_ranks=told.n_ranks, n_snapshots=len(still.snapshots), duration_s=still.duration_s,
        files=_files(still.snapshots[-1], still.still[:4]),
    )  # fmt: skip


def _allowed(still: Standstill) -> StackFinding:
    text = f"{len(still.still)} training ranks stand still for {still.duration_s:.0f} s in a phase that may block: {still.allowed}"
    return StackFinding(
        "temporal", "blocking_phase", 0.1, text, is_global=True, at=still.since, iteration=still.iteration,
        subject=str(still.allowed), n_ranks=len(still.mains), n_snapshots=len(still.snapshots),
        duration_s=still.duration_s,
    )  # fmt: skip


def _of_single(snapshot: Snapshot, expected: set[int], placing: Placing) -> list[StackFinding]:
    told = blame(snapshot.trainers(), expected, placing.groups, placing.node_of)
    found = _of_blame(told, SINGLE, snapshot, placing)
    return [replace(f, statement=f"{f.statement}; one sample only", at=snapshot.at) for f in found]


def _of_blame(told: Blame, weight: float, snapshot: Snapshot, placing: Placing) -> list[StackFinding]:
    if told.waiters is None:
        return []
    found = [
        f
        for _, group in groupby(sorted(told.outliers, key=_alike), key=_alike)
        for f in _of_outliers(list(group), told, weight, snapshot, placing)
    ]
    n = len(told.waiters.ranks)
    places = f" in {told.waiters.n_places} places" if told.waiters.n_places > 1 else ""
    text = f"{n} of {told.n_ranks} training ranks wait in {told.waiters.operation}{places}"
    kind = "waiters"
    if not told.outliers:
        kind, text = (
            str(Reason.NOBODY),
            f"{text}: whoever holds them up is not among the stacks, look upstream (network, storage, logs)",
        )
    found.append(
        StackFinding(
            "spatial", kind, 0.3 * weight, text, ranks=told.waiters.ranks, is_echo=bool(told.outliers),
            is_global=True, subject=told.waiters.operation, path=told.waiters.path, n_ranks=told.n_ranks,
            files=_files(snapshot, told.waiters.ranks[:4]),
        )
    )  # fmt: skip
    return found


def _alike(outlier: Outlier) -> tuple[str, float, tuple[str, ...], str]:
    return str(outlier.reason), -outlier.strength, outlier.path, outlier.says


def _of_outliers(outliers: list[Outlier], told: Blame, weight: float, snapshot: Snapshot, placing: Placing) -> list[StackFinding]:
    """One finding for ranks that stand out in the same way, and one for what sets their data workers apart."""
    ranks = tuple(sorted(o.rank for o in outliers))
    first = outliers[0]
    nodes = tuple(sorted({placing.node_of.get(r) or _node(snapshot, r) for r in ranks} - {""}))
    group = smallest_group(ranks, placing.groups, told.n_ranks)
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {compressed(ranks)}"
    where = f" ({', '.join(nodes)})" if nodes else ""
    smallest = f"; smallest group with them: {group[0]} {compressed(group[1])}" if group and len(ranks) > 1 else ""
    shared = StackFinding(
        "spatial", str(first.reason), first.strength * weight, f"{who}{where} {first.says}{smallest}", nodes, ranks,
        group[0] if group and list(ranks) == group[1] else None, subject=first.path[-1] if first.path else "no frames",
        path=first.path, files=_files(snapshot, ranks), n_ranks=told.n_ranks,
    )  # fmt: skip
    found = [shared]
    for rank in ranks[:8]:
        differs = worker_difference(rank, snapshot)
        if differs is not None:
            text = f"rank {rank} waits for data and {differs[0]}"
            found.append(
                replace(shared, kind="trainer_and_workers_differ", statement=text, ranks=(rank,), path=differs[1],
                        nodes=tuple(n for n in (placing.node_of.get(rank) or _node(snapshot, rank),) if n),
                        group_kind=None, subject=differs[1][-1] if differs[1] else None, process_type="dataloader")
            )  # fmt: skip
    return found


def _node(snapshot: Snapshot, rank: int) -> str:
    return next((s.node for s in snapshot.samples if s.rank == rank and s.node), "")


def _files(snapshot: Snapshot, ranks: Sequence[int]) -> tuple[str, ...]:
    wanted = set(ranks)
    return tuple(sorted({s.file for s in snapshot.samples if s.rank in wanted and s.file}))[:8]
