"""From matched collectives to suspects: which ranks the others wait for, and the kind of stop that it is.

Scores are set by what the evidence means, not fitted: a rank that waits for nobody while others wait for it is the
strongest sign; a rank without a dump the next; ranks that all stand in the same collective say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ml.collectives.entries import Entries, Group
from ml.collectives.matching import Buffers, Matched, base_op, matched
from ml.collectives.slow import Slow, slow_ranks
from ml.collectives.waits import End, Head, Waits, waits

HOST_BACKENDS = ("gloo", "mpi", "ucc")
"""Back ends that run on the host: a rank that has not finished may just as well lack its peer's bytes."""
MAX_COLLECTIVES = 1000
LISTED_SCORE = 0.3
FEW_UNDUMPED = 0.25


class Syndrome(StrEnum):
    """{communication, not communication} × {hang, slow}, after C4 (arXiv 2406.04594)."""

    COMM_HANG = "comm_hang"
    NONCOMM_HANG = "noncomm_hang"
    COMM_SLOW = "comm_slow"
    NONCOMM_SLOW = "noncomm_slow"
    NONE = "none"


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


BASE = {
    Reason.NEVER_CAME: 0.95,
    Reason.NO_DUMP: 0.85,
    Reason.NOT_COMPLETING: 0.9,
    Reason.MISMATCH: 0.9,
    Reason.WAIT_CYCLE: 0.5,
    Reason.STUCK_TOGETHER: 0.45,
    Reason.STOPPED_EARLIER: 0.4,
    Reason.ARRIVES_LAST: 0.7,
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


@dataclass(frozen=True)
class Verdict:
    """What the dumps of one job say."""

    n_ranks: int
    suspects: tuple[Suspect, ...]
    syndrome: Syndrome
    collectives: tuple[Matched, ...]
    undumped: tuple[int, ...]
    is_global: bool = False

    @property
    def faulty_ranks(self) -> list[int]:
        """Ranks to look at, most suspicious first."""
        return [s.rank for s in self.suspects if s.score >= LISTED_SCORE]


def judge(entries: Entries) -> Verdict:
    """Match all entries and say who holds up whom.

    `collectives` come with each group's first ones in front, the smallest sequence first within a group.
    """
    buffers = Buffers(entries)
    found = {(one.group, one.sequence): one for one in matched(buffers)}
    graph = waits(buffers, found)
    suspects = _suspects(buffers, found, graph)
    n_ranks = len(entries.known_ranks)
    undumped = tuple(r for r in entries.known_ranks if r not in entries.dumped)
    is_open = any(one.present for one in found.values()) or any(graph.head_of.values())
    if not is_open:
        slow = slow_ranks(entries)
        suspects = [*suspects, *(_slow_suspect(entries, one) for one in slow.ranks)]
        suspects.sort(key=lambda s: (-s.score, s.rank))
        return Verdict(n_ranks, tuple(suspects), _slow_syndrome(slow), _in_order(found), undumped)
    named = [s for s in suspects if s.score >= LISTED_SCORE]
    return Verdict(n_ranks, tuple(suspects), _hang_syndrome(suspects), _in_order(found), undumped, not named)


def _in_order(found: Mapping[tuple[Group, int], Matched]) -> tuple[Matched, ...]:
    """Every group's first collective that lacks a rank in front, then its first open one, and so on down the sequences."""
    depth: dict[tuple[Group, bool], int] = {}
    keyed = []
    for (group, sequence), one in sorted(found.items()):
        is_complete = not (one.missing or one.undumped)
        place = depth.get((group, is_complete), 0) if one.present else 1 << 30
        if one.present:
            depth[group, is_complete] = place + 1
        keyed.append(((place, is_complete, one.created_us, group, sequence), one))
    return tuple(one for _, one in sorted(keyed, key=lambda pair: pair[0])[:MAX_COLLECTIVES])


def _suspects(buffers: Buffers, found: Mapping[tuple[Group, int], Matched], graph: Waits) -> list[Suspect]:
    best: dict[int, Suspect] = {}
    last_seen = _last_activity(buffers)
    candidates = [s for end in graph.ends for s in _of_end(buffers, end, graph)]
    candidates += _of_mismatches(found, buffers)
    candidates += _of_early_stops(buffers, graph)
    candidates += _of_undumped(buffers, graph)
    for one in candidates:
        if one.rank not in best or one.score > best[one.rank].score:
            best[one.rank] = one
    late = max(last_seen.values(), default=0)
    return sorted(best.values(), key=lambda s: (-round(s.score, 3), last_seen.get(s.rank, late), s.rank))


def _last_activity(buffers: Buffers) -> dict[int, int]:
    """When each rank enqueued something for the last time, in µs; a rank that shows nothing is not in it."""
    entries = buffers.entries
    last: dict[int, int] = {}
    order = entries.created_us.argsort(kind="stable")
    for rank, created in zip(entries.rank[order], entries.created_us[order]):
        if created >= 0:
            last[int(rank)] = int(created)
    return last


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


def _of_undumped(buffers: Buffers, graph: Waits) -> list[Suspect]:
    """Ranks without a dump for which nobody waits visibly: weak, and only while they are few."""
    entries = buffers.entries
    undumped = [r for r in entries.known_ranks if r not in entries.dumped]
    if not any(graph.head_of.values()) or len(undumped) > max(2, FEW_UNDUMPED * len(entries.known_ranks)):
        return []
    return [Suspect(r, 0.45 * BASE[Reason.NO_DUMP], Reason.NO_DUMP, 0.0, statement=f"rank {r} left no dump") for r in undumped]


def _hang_syndrome(suspects: list[Suspect]) -> Syndrome:
    if not suspects:
        return Syndrome.COMM_HANG
    together = (Reason.STUCK_TOGETHER, Reason.WAIT_CYCLE)
    return Syndrome.COMM_HANG if suspects[0].reason in together else Syndrome.NONCOMM_HANG


def _slow_syndrome(slow: Slow) -> Syndrome:
    if slow.ranks:
        return Syndrome.NONCOMM_SLOW
    return Syndrome.COMM_SLOW if slow.groups else Syndrome.NONE


def _slow_suspect(entries: Entries, one: tuple[int, float, float]) -> Suspect:
    rank, fraction, ratio = one
    text = f"rank {rank} comes last to {_percent(fraction)} of its collectives; the others wait in them {ratio:.1f} times as long"
    return Suspect(rank, BASE[Reason.ARRIVES_LAST] * min(1.0, fraction), Reason.ARRIVES_LAST, 0.0, statement=text)
