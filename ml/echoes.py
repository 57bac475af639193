"""Kinds of victim: what a process prints when another one went first, and whose end was the first of a job.

A crash spreads: peers see their connection closed, agents stop their remaining workers, whoever is left waits until a
time-out. Such endings are echoes; they say that something happened elsewhere. torchelastic's own "first observed
failure" holds for one node: its workers that die of an echo have one too, so that it is compared across the nodes.

    >>> victim_kind("RuntimeError: Connection closed by peer [10.0.0.3]:40001")
    <VictimKind.CONNECTION_CLOSED: 'connection_closed'>
    >>> failures = first_failures({"n1": agent_log_1, "n2": agent_log_2})   # doctest: +SKIP
    >>> origin_of(failures, {0: VictimKind.CONNECTION_CLOSED})              # doctest: +SKIP
    Origin(node='n2', rank=3, lead_s=4.0, …)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

_MAX_LINE = 2000
SAME_MOMENT_S = 2.0
"""Stamps of agents have whole seconds and clocks differ: endings closer than this came at the same time."""
SIGTERM = -15


class VictimKind(StrEnum):
    """How a process ended because of another."""

    CONNECTION_CLOSED = "connection_closed"
    TERMINATED_BY_AGENT = "terminated_by_agent"
    TIMED_OUT_WAITING = "timed_out_waiting"
    ABORTED_BY_WATCHDOG = "aborted_by_watchdog"
    RENDEZVOUS_LEFT = "rendezvous_left"


_KINDS: tuple[tuple[VictimKind, re.Pattern[str]], ...] = (
    (VictimKind.ABORTED_BY_WATCHDOG, re.compile(
        r"watchdog (?:thread )?(?:caught collective|got stuck|terminated|found)|taking the entire process down"
        r"|collective operation timeout|ncclCommAbort|NCCL communicator was aborted", re.IGNORECASE)),
    (VictimKind.TIMED_OUT_WAITING, re.compile(
        r"timed? ?out (?:after )?waiting|wait(?:ing)? timeout|(?:recv|send|barrier|operation|store|rendezvous)\b.{0,80}"
        r"\btimed? ?out|DistStoreError|\bran for \d{1,12} milliseconds before timing out", re.IGNORECASE)),
    (VictimKind.CONNECTION_CLOSED, re.compile(
        r"connection (?:was )?(?:closed|reset|aborted|refused|lost)\b|broken pipe|remote (?:process|worker|peer) "
        r"(?:exited|crash|has left|closed)|socket (?:closed|timeout)|peer closed|ncclRemoteError"
        r"|EOF(?:Error)?: .{0,40}connection|ConnectionResetError|ConnectionRefusedError|BrokenPipeError",
        re.IGNORECASE)),
    (VictimKind.TERMINATED_BY_AGENT, re.compile(
        r"closing signal SIGTERM|Signal 15 \(SIGTERM\)|received (?:the )?(?:signal )?SIGTERM|exitcode\s{0,8}: -15"
        r"|SignalException: .{0,60}signal: 15|Received 15 death signal", re.IGNORECASE)),
    (VictimKind.RENDEZVOUS_LEFT, re.compile(r"Rendezvous(?:Closed|Timeout|Connection)Error|rendezvous .{0,60}closed")),
)  # fmt: skip

_BLOCK = re.compile(r"first observed failure", re.IGNORECASE)
_PAIR = re.compile(r"^\s{0,8}(?:\[[^\]\n]{0,60}\]:?\s{0,4})?(time|host|rank|exitcode)\s{0,8}: ?(.{0,300})$")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,5})\)")


def victim_kind(message: str) -> VictimKind | None:
    """What kind of victim a message tells of; None when it tells of none.

    Looks at no more than the first 2,000 characters; the time is linear in them.
    """
    text = message[:_MAX_LINE]
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), None)


@dataclass(frozen=True)
class FirstFailure:
    """The first failure that one node's agent observed. `at` is in the agent's own whole seconds, None if unreadable."""

    node: str
    rank: int | None
    local_rank: int | None
    exit_code: int | None
    at: datetime | None

    @property
    def is_signal(self) -> bool:
        """Ended by a signal from outside or by its own fault, other than the agent's own SIGTERM."""
        return self.exit_code is not None and self.exit_code < 0 and self.exit_code != SIGTERM


@dataclass(frozen=True)
class Origin:
    """The first of all failures: `lead_s` seconds before the next node's, `followers` nodes after it, with why."""

    node: str
    rank: int | None
    exit_code: int | None
    at: datetime | None
    lead_s: float
    followers: tuple[str, ...]
    score: float
    statement: str


def first_failure(node: str, lines: Sequence[str]) -> FirstFailure | None:
    """torchelastic's first observed failure in one node's agent log, given as lines or as events of several lines.

    The last block counts, for attempts follow each other in one log.
    """
    flat = [line[:_MAX_LINE] for text in lines for line in text.split("\n")]
    starts = [i for i, line in enumerate(flat) if _BLOCK.search(line)]
    if not starts:
        return None
    found: dict[str, str] = {}
    for line in flat[starts[-1] + 1 : starts[-1] + 16]:
        match = _PAIR.match(line)
        if match and match[1] not in found:
            found[match[1]] = match[2].strip()
    if not found:
        return None
    rank = _RANK.search(found.get("rank", ""))
    code = re.match(r"-?\d{1,5}", found.get("exitcode", ""))
    return FirstFailure(
        found.get("host") or node,
        int(rank[1]) if rank else None,
        int(rank[2]) if rank else None,
        int(code[0]) if code else None,
        _stamp(found.get("time", "")),
    )


def _stamp(text: str) -> datetime | None:
    match = re.match(r"\d{4}-\d\d-\d\d[_ T]\d\d:\d\d:\d\d", text)
    try:
        return datetime.fromisoformat(match[0].replace("_", "T")).replace(tzinfo=UTC) if match else None
    except ValueError:
        return None


def first_failures(agent_logs: Mapping[str, Sequence[str]]) -> list[FirstFailure]:
    """Each node's first observed failure, by node, from its agent's log lines; nodes without one are left out."""
    found = (first_failure(node, lines) for node, lines in sorted(agent_logs.items()))
    return [one for one in found if one is not None]


def origin_of(
    failures: Sequence[FirstFailure], kind_of: Mapping[int, VictimKind | None] | None = None, n_nodes: int | None = None
) -> Origin | None:
    """The node whose failure came first, or None when nothing sets one apart.

    `kind_of` says, by rank, what kind of victim its own messages make it; a victim is no origin, however early.
    A rank that a signal ended beats one that left with an exit code at the same moment. When two nodes that are no
    victims fell at the same moment, nobody is named. `n_nodes` is the number of nodes that the job had.
    """
    kinds = kind_of or {}
    dated = sorted((one for one in failures if one.at is not None), key=lambda one: (one.at, not one.is_signal, one.node))
    own = [one for one in dated if one.exit_code != SIGTERM and (one.rank is None or not kinds.get(one.rank))]
    if not own or len({one.node for one in dated}) < 2:
        return None
    rivals = [one for one in own if one.node != own[0].node and _seconds(own[0], one) <= SAME_MOMENT_S]
    signalled = [one for one in (own[0], *rivals) if one.is_signal]
    if rivals and len({one.node for one in signalled}) != 1:
        return None
    first = signalled[0] if rivals else own[0]
    followers = [one for one in dated if one.node != first.node]
    lead = min(_seconds(first, one) for one in followers)
    all_echo = all(one.rank is not None and kinds.get(one.rank) for one in followers)
    score = 0.55 + 0.2 * min(1.0, max(0.0, lead) / 5) + 0.1 * first.is_signal + 0.1 * all_echo
    if n_nodes and len(dated) < n_nodes:
        score -= 0.15
    text = f"{first.node} failed first (rank {first.rank}, exit code {first.exit_code}), {lead:.0f} s before the next node"
    nodes = tuple(sorted({one.node for one in followers}))
    return Origin(first.node, first.rank, first.exit_code, first.at, lead, nodes, round(max(0.0, score), 3), text)


def _seconds(one: FirstFailure, other: FirstFailure) -> float:
    return (other.at - one.at).total_seconds() if one.at and other.at else 0.0
