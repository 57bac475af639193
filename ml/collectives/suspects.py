"""Suspects: the ranks that others wait for, each with the reason for naming it and its strength.

Strengths are set by what the evidence means, not fitted: a rank that waits for nobody while others wait for it is the
strongest sign; a rank without a dump the next; ranks that all stand in the same collective say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ml.collectives.entries import Group
from ml.collectives.latency import HotKind, HotSpot
from ml.collectives.matching import Buffers, Matched, base_op
from ml.collectives.waits import End, Head, Waits

HOST_BACKENDS = ("gloo", "mpi", "ucc")
"""Back ends that run on the host: a rank that has not finished may just as well lack its peer's bytes."""
FEW_UNDUMPED = 0.25


class Reason(StrEnum):
    """Why a rank is suspected."""

    NEVER_CAME = "never_came"
    NO_DUMP = "no_dump"
    NOT_COMPLETING = "not_completing"
    MISMATCH = "mismatch"
    STUCK_TOGETHER = "stuck_together"
    WAIT_CYCLE = "wait_cycle"
    STOPPED_EARLIER = "stopped_earlier"
    ARRIVES_LAST = "arrives_last"
    SLOW_LINK = "slow_link"


BASE = {
    Reason.NEVER_CAME: 0.95,
    Reason.NO_DUMP: 0.85,
    Reason.NOT_COMPLETING: 0.9,
    Reason.MISMATCH: 0.9,
    Reason.WAIT_CYCLE: 0.5,
    Reason.STUCK_TOGETHER: 0.45,
    Reason.STOPPED_EARLIER: 0.4,
    Reason.ARRIVES_LAST: 0.7,
    Reason.SLOW_LINK: 0.6,
}


@dataclass(frozen=True)
class Suspect:
    """A rank with the reason for naming it. `share` of all ranks wait for it, directly or along a chain."""

    rank: int
    score: float
    reason: Reason
    share: float
    group: Group | None = None
    sequence: int | None = None
    op: str = ""
    frame: str = ""
    statement: str = ""


def suspects_of(buffers: Buffers, found: Mapping[tuple[Group, int], Matched], graph: Waits) -> list[Suspect]:
    """All suspects, strongest first; of equals, whoever enqueued nothing for longest."""
    best: dict[int, Suspect] = {}
    last_seen = _last_activity(buffers)
    candidates = [s for end in graph.ends for s in _of_end(buffers, end, graph)]
    candidates += _of_mismatches(found, buffers)
    candidates += _of_early_stops(buffers, graph)
    candidates += _of_absent(found, buffers, graph)
    candidates += _of_undumped(buffers, graph)
    for one in candidates:
        if one.rank not in best or one.score > best[one.rank].score:
            best[one.rank] = one
    late = max(last_seen.values(), default=0)
    return sorted(best.values(), key=lambda s: (-round(s.score, 3), last_seen.get(s.rank, late), s.rank))


def _last_activity(buffers: Buffers) -> dict[int, int]:
    """When each rank enqueued something for the last time, in µs; a rank that shows nothing is not in it."""
    entries = buffers.entries
    if not len(entries):
        return {}
    newest = np.full(int(entries.rank.max()) + 1, -1, np.int64)
    np.maximum.at(newest, entries.rank, entries.created_us)
    return {int(rank): int(newest[rank]) for rank in np.flatnonzero(newest >= 0)}


def _weighted(reason: Reason, share: float, n_ranks: int) -> float:
    """Base strength, less where hardly anyone waits: half of it for one rank of many, all of it for half of them."""
    alone = 1 / max(1, n_ranks)
    reach = min(1.0, max(0.0, share - alone) * 2)
    return BASE[reason] * (0.6 + 0.4 * reach**0.5)


def _of_end(buffers: Buffers, end: End, graph: Waits) -> list[Suspect]:
    """Suspects at one end of the chains of waiting."""
    if end.heads:
        return _of_stuck(buffers, end)
    rank = end.ranks[0]
    n_waiting = graph.waited_for.get(rank, 0)
    if not n_waiting:
        return []
    entries = buffers.entries
    has_dump = rank in entries.dumped
    reason = Reason.NEVER_CAME if has_dump else Reason.NO_DUMP
    score = _weighted(reason, end.share, len(graph.head_of))
    n_undumped = len(entries.known_ranks) - len(entries.dumped)
    if reason is Reason.NO_DUMP and n_undumped > max(2, FEW_UNDUMPED * len(entries.known_ranks)):
        score *= 0.5
    head = _first_waiting(graph, rank)
    what = f"{_words(head)}" if head else "a collective"
    said = "left no dump" if reason is Reason.NO_DUMP else "has nothing open and never came"
    text = f"rank {rank} {said}: {n_waiting} ranks wait for it directly in {what}, {_percent(end.share)} of all along chains"
    return [_suspect(rank, score, reason, end.share, head, text)]


def _first_waiting(graph: Waits, rank: int) -> Head | None:
    heads = {head for head in graph.head_of.values() if head is not None and rank in head.waits_for}
    return min(heads, key=lambda h: (-len(h.ranks), h.group, h.sequence, h.op), default=None)


def _words(head: Head) -> str:
    return f"{base_op(head.op)} {head.sequence} of {head.group.name}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _suspect(rank: int, score: float, reason: Reason, share: float, head: Head | None, text: str) -> Suspect:
    if head is None:
        return Suspect(rank, min(1.0, score), reason, share, statement=text)
    return Suspect(rank, min(1.0, score), reason, share, head.group, head.sequence, head.op, head.frame, text)


def _of_stuck(buffers: Buffers, end: End) -> list[Suspect]:
    """Ends inside a collective: not finished where peers have, stuck together, or waiting in a circle."""
    n_ranks = len(buffers.entries.known_ranks)
    stalled = [head for head in end.heads if head.finished and not head.waits_for]
    if stalled:
        return [s for head in stalled for s in _of_stalled(head, end, n_ranks)]
    heads = sorted(end.heads, key=lambda h: (h.group, h.sequence, h.op))
    is_cycle = any(head.waits_for for head in heads)
    reason = Reason.WAIT_CYCLE if is_cycle else Reason.STUCK_TOGETHER
    behind = _furthest_behind(buffers, end.ranks)
    suspects = []
    for rank in end.ranks:
        # Those who stand in the same place share the suspicion; one that is behind in other groups carries more.
        share_of = 1.0 if rank in behind and len(behind) < len(end.ranks) else 1 / len(end.ranks) ** 0.5
        score = _weighted(reason, end.share, n_ranks) * share_of
        head = next((h for h in heads if rank in h.ranks), heads[0])
        told = "in a circle of waits" if is_cycle else "with every member present and none finished"
        text = f"rank {rank} stands in {_words(head)} {told} ({len(end.ranks)} ranks)"
        suspects.append(_suspect(rank, score, reason, end.share, head, text))
    return suspects


def _of_stalled(head: Head, end: End, n_ranks: int) -> list[Suspect]:
    reason = Reason.NOT_COMPLETING
    score = _weighted(reason, end.share, n_ranks) * (0.5 if head.backend in HOST_BACKENDS else 1.0)
    done = ", ".join(map(str, head.finished[:4])) + (" …" if len(head.finished) > 4 else "")
    # Where most are unfinished, those few that finished are the odd ones; nobody is named alone.
    score *= min(1.0, len(head.finished) / len(head.ranks)) ** 0.5
    return [
        _suspect(
            rank, score, reason, end.share, head,
            f"rank {rank} enqueued {_words(head)} and has not completed it, while rank {done} has",
        )
        for rank in head.ranks
    ]  # fmt: skip


def _furthest_behind(buffers: Buffers, ranks: tuple[int, ...]) -> set[int]:
    """Those of some ranks that completed less than their peers in most groups."""
    newest: dict[int, int] = {}
    for (_, code), (_, completed) in buffers.reached.items():
        newest[code] = max(newest.get(code, -1), completed)
    lags = dict.fromkeys(ranks, 0)
    for (rank, code), (_, completed) in buffers.reached.items():
        if rank in lags and completed < newest[code]:
            lags[rank] += 1
    most = max(lags.values(), default=0)
    return {rank for rank, n in lags.items() if n == most and most > 0}


def _of_mismatches(found: Mapping[tuple[Group, int], Matched], buffers: Buffers) -> list[Suspect]:
    """The first disagreement on op, sizes or type of every group that is not over."""
    suspects, seen = [], set()
    for (group, sequence), one in sorted(found.items()):
        wrong = [m for m in one.mismatches if m.field != "state"]
        if not wrong or group in seen:
            continue
        seen.add(group)
        n_named = len({m.rank for m in wrong})
        n_all = len({*one.present, *one.finished})
        score = BASE[Reason.MISMATCH] * (1.0 if n_named * 2 < n_all else 0.5) * (1.0 if one.present else 0.5)
        for m in wrong:
            text = f"rank {m.rank} has {m.field} {m.this} in {base_op(one.op)} {sequence} of {group.name}, others {m.others}"
            suspects.append(
                Suspect(m.rank, score, Reason.MISMATCH, n_named / max(1, n_all), group, sequence, one.op, one.frame, text)
            )
    return suspects


def _of_early_stops(buffers: Buffers, graph: Waits) -> list[Suspect]:
    """Ranks that wait as their peers do but had stopped enqueuing before them.

    Peers are the ranks whose first open operation has the same kind, sequence and description in whatever group; they
    ran on alike until the queue held them. Needs three peers, of which most went on equally far.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, head in graph.head_of.items():
        if head is not None and rank in buffers.n_open:
            description = head.group.name.split(" ", 1)[-1]
            alike.setdefault((description, head.op), []).append(rank)
    suspects = []
    for ranks in alike.values():
        counts = sorted(buffers.n_open[r] for r in ranks)
        usual = counts[len(counts) // 2]
        behind = [r for r in ranks if buffers.n_open[r] < usual]
        if len(ranks) < 3 or not behind or len(behind) * 3 > len(ranks):
            continue
        for rank in behind:
            text = f"rank {rank} stopped after {buffers.n_open[rank]} open operations where its peers went on to {usual}"
            suspects.append(_suspect(rank, BASE[Reason.STOPPED_EARLIER], Reason.STOPPED_EARLIER, 0.0, graph.head_of[rank], text))
    return suspects


def _of_absent(found: Mapping[tuple[Group, int], Matched], buffers: Buffers, graph: Waits) -> list[Suspect]:
    """Ranks that are at nothing and are missing from collectives that nobody is at yet: a second fault behind the first.

    Their peers wait for somebody else in an earlier operation and would come to wait for them.
    """
    absent: dict[int, Matched] = {}
    for one in found.values():
        for rank in (*one.missing, *one.undumped) if one.present else ():
            if graph.head_of.get(rank) is None:
                absent.setdefault(rank, one)
    if len(absent) > max(2, FEW_UNDUMPED * len(buffers.entries.known_ranks)):
        return []
    suspects = []
    for rank, one in sorted(absent.items()):
        reason = Reason.NEVER_CAME if rank in buffers.entries.dumped else Reason.NO_DUMP
        said = "is at nothing" if reason is Reason.NEVER_CAME else "left no dump"
        text = f"rank {rank} {said} and is missing from {base_op(one.op)} {one.sequence} of {one.group.name}"
        suspects.append(Suspect(rank, 0.6 * BASE[reason], reason, 0.0, one.group, one.sequence, one.op, one.frame, text))
    return suspects


def _of_undumped(buffers: Buffers, graph: Waits) -> list[Suspect]:
    """Ranks without a dump for which nobody waits visibly: weak, and only while they are few."""
    entries = buffers.entries
    undumped = [r for r in entries.known_ranks if r not in entries.dumped]
    if not any(graph.head_of.values()) or len(undumped) > max(2, FEW_UNDUMPED * len(entries.known_ranks)):
        return []
    return [Suspect(r, 0.45 * BASE[Reason.NO_DUMP], Reason.NO_DUMP, 0.0, statement=f"rank {r} left no dump") for r in undumped]


def slow_suspect(one: tuple[int, float, float]) -> Suspect:
    """The rank that comes last: rank, share of its collectives, and how much longer the others are in them."""
    rank, fraction, ratio = one
    text = f"rank {rank} comes last to {_percent(fraction)} of its collectives; the others wait in them {ratio:.1f} times as long"
    return Suspect(rank, BASE[Reason.ARRIVES_LAST] * min(1.0, fraction), Reason.ARRIVES_LAST, 0.0, statement=text)


def link_suspects(spot: HotSpot) -> list[Suspect]:
    """The rank behind a slow row or column of the latency matrix; both ends of a slow cell, each less surely."""
    ends = [rank for rank in (spot.source, spot.destination) if rank is not None]
    words = {
        HotKind.SENDER: f"what rank {spot.source} sends",
        HotKind.RECEIVER: f"what rank {spot.destination} receives",
        HotKind.LINK: f"what rank {spot.source} sends to rank {spot.destination}",
    }
    score = BASE[Reason.SLOW_LINK] / len(ends) ** 0.5
    text = f"{words[spot.kind]} takes {spot.ratio:.1f} times as long as is usual between ranks"
    return [Suspect(rank, score, Reason.SLOW_LINK, 0.0, statement=text) for rank in ends]
