"""Suspects: the ranks that others wait for, each with the reason for naming it and its strength.

Strengths are set by what the evidence means, not fitted: a rank that waits for nobody while others wait for it is the
strongest sign; a rank without a dump the next; ranks that all stand in the same collective say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ml.collectives.entries import Group
from ml.collectives.latency import HotKind, HotSpot
from ml.collectives.matching import Buffers, Matched, Usual, base_op
from ml.collectives.reasons import BASE, Reason, Suspect, percent, suspect, weighted, words_of
from ml.collectives.stuck import of_stuck
from ml.collectives.waits import End, Head, Waits

FEW_UNDUMPED = 0.25


def suspects_of(buffers: Buffers, found: Mapping[tuple[Group, int], Matched], graph: Waits) -> list[Suspect]:
    """All suspects, strongest first; of equals, whoever enqueued nothing for longest."""
    best: dict[int, Suspect] = {}
    last_seen = _last_activity(buffers)
    first_waiting = _first_waiting(graph)
    candidates = [s for end in graph.ends for s in _of_end(buffers, end, graph, first_waiting)]
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


def _of_end(buffers: Buffers, end: End, graph: Waits, first_waiting: Mapping[int, Head]) -> list[Suspect]:
    """Suspects at one end of the chains of waiting; `first_waiting` tells in what a rank is waited for."""
    if end.heads:
        return of_stuck(buffers, end)
    rank = end.ranks[0]
    n_waiting = graph.waited_for.get(rank, 0)
    if not n_waiting:
        return []
    entries = buffers.entries
    has_dump = rank in entries.dumped
    reason = Reason.NEVER_CAME if has_dump else Reason.NO_DUMP
    score = weighted(reason, end.share, len(graph.head_of))
    n_undumped = len(entries.known_ranks) - len(entries.dumped)
    if reason is Reason.NO_DUMP and n_undumped > max(2, FEW_UNDUMPED * len(entries.known_ranks)):
        score *= 0.5
    head = first_waiting.get(rank)
    what = f"{words_of(head)}" if head else "a collective"
    said = "left no dump" if reason is Reason.NO_DUMP else "has nothing open and never came"
    text = f"rank {rank} {said}: {n_waiting} ranks wait for it directly in {what}, {percent(end.share)} of all along chains"
    return [suspect(rank, score, reason, end.share, head, text)]


def _first_waiting(graph: Waits) -> dict[int, Head]:
    """For each rank that is waited for, the operation in which most wait for it."""
    heads = {id(head): head for head in graph.head_of.values() if head is not None}
    first: dict[int, Head] = {}
    for head in sorted(heads.values(), key=lambda h: (-len(h.ranks), h.group, h.sequence, h.op)):
        for rank in head.waits_for:
            first.setdefault(rank, head)
    return first


def _of_mismatches(found: Mapping[tuple[Group, int], Matched], buffers: Buffers) -> list[Suspect]:
    """The first disagreement on op, sizes or type of every group that is not over."""
    suspects, seen = [], set()
    usual = Usual(buffers)
    for (group, sequence), one in sorted(found.items()):
        wrong = [m for m in one.mismatches if m.field != "state"]
        if not wrong or group in seen:
            continue
        seen.add(group)
        n_all = len({*one.present, *one.finished})
        if len({m.rank for m in wrong}) * 2 >= n_all:
            wrong = [m for m in wrong if usual.is_odd(one, m)] or wrong
        n_named = len({m.rank for m in wrong})
        is_few = n_named * 2 < n_all or n_named == 1
        score = BASE[Reason.MISMATCH] * (1.0 if is_few else 0.5) * (1.0 if one.present else 0.5)
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
            suspects.append(suspect(rank, BASE[Reason.STOPPED_EARLIER], Reason.STOPPED_EARLIER, 0.0, graph.head_of[rank], text))
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
    text = f"rank {rank} comes last to {percent(fraction)} of its collectives; the others wait in them {ratio:.1f} times as long"
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
