"""The verdict on a job's dumps: who holds up whom, in which collectives, and the kind of stop that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ml.collectives.entries import Entries, Group
from ml.collectives.matching import Buffers, Matched, matched
from ml.collectives.reasons import Reason, Suspect
from ml.collectives.slow import Slow, slow_ranks
from ml.collectives.suspects import link_suspects, slow_suspect, suspects_of
from ml.collectives.waits import waits

MAX_COLLECTIVES = 1000
LISTED_SCORE = 0.3


class Syndrome(StrEnum):
    """{communication, not communication} × {hang, slow}, after C4 (arXiv 2406.04594)."""

    COMM_HANG = "comm_hang"
    NONCOMM_HANG = "noncomm_hang"
    COMM_SLOW = "comm_slow"
    NONCOMM_SLOW = "noncomm_slow"
    NONE = "none"


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
    suspects = suspects_of(buffers, found, graph)
    n_ranks = len(entries.known_ranks)
    undumped = tuple(r for r in entries.known_ranks if r not in entries.dumped)
    is_open = any(one.present for one in found.values()) or any(graph.head_of.values())
    if not is_open:
        slow = slow_ranks(entries)
        suspects = [*suspects, *(slow_suspect(one) for one in slow.ranks)]
        suspects += [s for spot in slow.links for s in link_suspects(spot)]
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


def _hang_syndrome(suspects: list[Suspect]) -> Syndrome:
    if not suspects:
        return Syndrome.COMM_HANG
    first = suspects[0]
    nobody_leads = first.reason is Reason.WAIT_CYCLE and first.score < LISTED_SCORE
    return Syndrome.COMM_HANG if nobody_leads or first.reason is Reason.STUCK_TOGETHER else Syndrome.NONCOMM_HANG


def _slow_syndrome(slow: Slow) -> Syndrome:
    if slow.ranks:
        return Syndrome.NONCOMM_SLOW
    return Syndrome.COMM_SLOW if slow.groups or slow.links else Syndrome.NONE
