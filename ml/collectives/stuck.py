"""Ends of the chains of waiting that lie inside collectives or exchanges: whose members all came, and none goes on."""

from __future__ import annotations

from collections.abc import Sequence

from ml.collectives.matching import Buffers, base_op
from ml.collectives.reasons import BASE, Reason, Suspect, suspect, weighted, words_of
from ml.collectives.waits import End, Head

HOST_BACKENDS = ("gloo", "mpi", "ucc")
"""Back ends that run on the host: a rank that has not finished may just as well lack its peer's bytes."""
CIRCLES = 12
CLEARLY = 1.25
"""How many times as much blame as any other the rank of a circle must carry to lead it."""


def of_stuck(buffers: Buffers, end: End) -> list[Suspect]:
    """Ends inside a collective: not finished where peers have, stuck together, or waiting in a circle."""
    n_ranks = len(buffers.entries.known_ranks)
    stalled = [head for head in end.heads if head.finished and not head.waits_for]
    if stalled:
        return [s for head in stalled for s in _of_stalled(head, end, n_ranks)]
    idle = _of_idle_devices(end, n_ranks, buffers.overrun)
    if idle:
        return idle
    heads = sorted(end.heads, key=lambda h: (h.group, h.sequence, h.op))
    is_cycle = any(head.waits_for for head in heads)
    reason = Reason.WAIT_CYCLE if is_cycle else Reason.STUCK_TOGETHER
    told = "in a circle of waits" if is_cycle else "with every member present and none finished"
    leader = _leader(end) if is_cycle else None
    unequal = _unequal_exchange(buffers, heads)
    if unequal:
        return [
            suspect(rank, 0.5 * BASE[Reason.MISMATCH], Reason.MISMATCH, end.share, head, f"rank {rank} {said}")
            for rank, head, said in unequal
        ]
    suspects = []
    for rank in end.ranks:
        # Those who stand in the same place share the suspicion.
        score = weighted(reason, end.share, n_ranks) * (1.0 if rank == leader else 0.5 / len(end.ranks) ** 0.5)
        head = next((h for h in heads if rank in h.ranks), heads[0])
        first = "; most of the waits lead to it" if rank == leader else ""
        text = f"rank {rank} stands in {words_of(head)} {told} ({len(end.ranks)} ranks){first}"
        suspects.append(suspect(rank, score, reason, end.share, head, text))
    return suspects


def _unequal_exchange(buffers: Buffers, heads: Sequence[Head]) -> list[tuple[int, Head, str]]:
    """Both ends of a send and receive that do not agree on the amount or type of data; which of them errs stays open."""
    if len(heads) != 2 or any(len(head.ranks) != 1 for head in heads) or {base_op(h.op) for h in heads} != {"send", "recv"}:
        return []
    entries = buffers.entries
    told = [
        f"{entries.shapes[int(entries.shape[i])]} {entries.dtypes[int(entries.dtype[i])]}"
        for i in (buffers.heads[head.ranks[0]] for head in heads)
    ]
    if told[0] == told[1]:
        return []
    return [
        (head.ranks[0], head, f"has {told[n]} in {words_of(head)}, rank {heads[1 - n].ranks[0]} at its other end {told[1 - n]}")
        for n, head in enumerate(heads)
    ]


def _leader(end: End) -> int | None:
    """The rank of a circle to which clearly more of the waiting leads than to any other; None where there is none.

    Half of each rank's blame is passed on along its waits, in equal parts, again and again, as in PageRank.
    """
    blame = dict.fromkeys(end.ranks, 1.0)
    for _ in range(CIRCLES):
        passed = dict.fromkeys(end.ranks, 0.5)
        for head in end.heads:
            targets = [rank for rank in head.waits_for if rank in passed]
            for target in targets:
                passed[target] += 0.5 * sum(blame[rank] for rank in head.ranks) / len(targets)
        blame = passed
    ranked = sorted(blame.values(), reverse=True)
    is_clear = len(ranked) > 1 and ranked[0] >= CLEARLY * ranked[1]
    return min(blame, key=lambda rank: (-blame[rank], rank)) if is_clear else None


def _of_idle_devices(end: End, n_ranks: int, overrun: frozenset[int]) -> list[Suspect]:
    """Ranks that enqueued what their peers' devices are in already, and whose own device never came to it."""
    begun = {rank for head in end.heads for rank in head.begun}
    idle = [(rank, head) for head in end.heads for rank in head.ranks if rank not in begun]
    if any(rank in overrun for rank, _ in idle):
        return []
    if not begun or len(idle) > len(begun):
        return []
    score = weighted(Reason.NOT_STARTED, end.share, n_ranks)
    return [
        suspect(
            rank, score, Reason.NOT_STARTED, end.share, head,
            f"rank {rank} enqueued {words_of(head)} and its device never came to it, while those of {len(begun)} peers wait in it",
        )
        for rank, head in idle
    ]  # fmt: skip


def _of_stalled(head: Head, end: End, n_ranks: int) -> list[Suspect]:
    reason = Reason.NOT_COMPLETING
    score = weighted(reason, end.share, n_ranks) * (0.5 if head.backend in HOST_BACKENDS else 1.0)
    done = ", ".join(map(str, head.finished[:4])) + (" …" if len(head.finished) > 4 else "")
    # Where most are unfinished, those few that finished are the odd ones; nobody is named alone.
    score *= min(1.0, len(head.finished) / len(head.ranks)) ** 0.5
    return [
        suspect(
            rank, score, reason, end.share, head,
            f"rank {rank} enqueued {words_of(head)} and has not completed it, while rank {done} has",
        )
        for rank in head.ranks
    ]  # fmt: skip
