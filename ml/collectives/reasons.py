"""Why a rank is suspected, how strongly, and in what words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ml.collectives.entries import Group
from ml.collectives.matching import base_op
from ml.collectives.waits import Head


class Reason(StrEnum):
    """Why a rank is suspected."""

    NEVER_CAME = "never_came"
    NO_DUMP = "no_dump"
    NOT_COMPLETING = "not_completing"
    NOT_STARTED = "not_started"
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
    Reason.NOT_STARTED: 0.9,
    Reason.MISMATCH: 0.9,
    Reason.WAIT_CYCLE: 0.75,
    Reason.STUCK_TOGETHER: 0.45,
    Reason.STOPPED_EARLIER: 0.28,
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


def weighted(reason: Reason, share: float, n_ranks: int) -> float:
    """Base strength, less where hardly anyone waits: half of it for one rank of many, all of it for half of them."""
    alone = 1 / max(1, n_ranks)
    reach = min(1.0, max(0.0, share - alone) * 2)
    return BASE[reason] * (0.6 + 0.4 * reach**0.5)


def words_of(head: Head) -> str:
    """Operation, sequence and group of what ranks are at."""
    return f"{base_op(head.op)} {head.sequence} of {head.group.name}"


def percent(share: float) -> str:
    """A share as people read it."""
    return f"{100 * share:.0f} %"


def suspect(rank: int, score: float, reason: Reason, share: float, head: Head | None, text: str) -> Suspect:
    """A suspect with the place of what it is at, where that is known."""
    if head is None:
        return Suspect(rank, min(1.0, score), reason, share, statement=text)
    return Suspect(rank, min(1.0, score), reason, share, head.group, head.sequence, head.op, head.frame, text)
