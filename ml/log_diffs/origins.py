"""Who broke first: exits, exceptions, echoes and silences of ranks, from what they and their launchers wrote.

An `Utterance` is one template as one writer printed it. From all utterances of a job the functions here make
findings: ends by signal, exceptions that no peer's exit explains, echoes (marked), and the few ranks or nodes that
said nothing while their peers complained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ml.log_diffs.exits import Exit, exits_in, signal_name
from ml.log_diffs.messages import Raised, Voice, raised, voice
from ml.log_diffs.topology import Finding, Job, is_nearly_all, rank_ranges, where

TIE_S = 2.0
"""Ends closer together than this have no order: launchers poll and print whole seconds."""


@dataclass(frozen=True)
class Utterance:
    """One template of one writer (a rank, or a node's launcher): how often, since when, and its first words."""

    template_id: str
    message: str
    node: str | None = None
    rank: int | None = None
    role: str | None = None
    stream: str | None = None
    level: str | None = None
    alert: str | None = None
    template: str | None = None
    n_events: int = 1
    first_at: float | None = None
    onset_at: float | None = None
    uncertainty_s: float = 0.0
    iteration: int | None = None
    phase: str | None = None
    file: str | None = None
    line: int | None = None
    is_normal: bool = False
    messages: tuple[str, ...] = ()

    @cached_property
    def voice(self) -> Voice:
        """Whom it speaks of."""
        return voice(self.message, is_failure=True if self.alert else None)

    @cached_property
    def raised(self) -> Raised | None:
        """The first exception that it tells of."""
        return raised(self.message)

    @cached_property
    def exits(self) -> tuple[Exit, ...]:
        """Ends of processes that it reports."""
        return tuple(each for text in (self.messages or (self.message,)) for each in exits_in(text))

    @property
    def ref(self) -> tuple[tuple[str, int | None], ...]:
        """Where it stands."""
        return ((self.file, self.line),) if self.file else ()


@dataclass(frozen=True)
class End:
    """How one rank ended: its exit, when, and where that is written."""

    rank: int
    exit: Exit
    at: float | None
    ref: tuple[tuple[str, int | None], ...]
    template_id: str


@dataclass(frozen=True)
class Words:
    """All that the ranks of a failed job said about its failure, sorted by whom it speaks of."""

    job: Job
    utterances: tuple[Utterance, ...]
    ends: dict[int, End] = field(default_factory=dict)

    def of(self, *voices: Voice) -> list[Utterance]:
        """Utterances of ranks with one of these voices that are not normal for the fleet, in order of time and rank."""
        chosen = [u for u in self.utterances if u.rank is not None and u.voice in voices and not u.is_normal]
        return sorted(chosen, key=lambda u: (u.first_at or 0.0, u.rank or 0, u.template_id))

    @cached_property
    def peers(self) -> list[int]:
        """Ranks that ought to speak: those of the topology, else those seen."""
        known = {place.rank for place in self.job.places} or set(range(self.job.world_size or 0))
        return sorted(known or {u.rank for u in self.utterances if u.rank is not None} | set(self.ends))

    @cached_property
    def first_failure_at(self) -> float | None:
        """When the first process ended badly or the first error of any kind was printed with a trustworthy time."""
        ends = [end.at for end in self.ends.values() if end.at is not None and not end.exit.is_orderly]
        said = [
            u.first_at
            for u in self.of(Voice.ORIGIN, Voice.CASCADE, Voice.WAITING)
            if u.raised and u.first_at is not None and u.uncertainty_s <= TIE_S
        ]
        return min([*ends, *said], default=None)


def words_of(job: Job, utterances: Sequence[Utterance]) -> Words:
    """Sort out who ended how; of several reports of one rank, the first that is not orderly counts, else the first."""
    ends: dict[int, End] = {}
    for said in sorted(utterances, key=lambda u: (u.first_at or 0.0, u.node or "", u.template_id)):
        for each in said.exits:
            rank = each.rank if each.rank is not None else job.rank_at(said.node, each.local_rank)
            if rank is None:
                continue
            at = _when(each, said)
            known = ends.get(rank)
            if known is None or (known.exit.is_orderly and not each.is_orderly) or (known.exit.code == each.code and _is_finer(at, known.at)):
                is_first = each.is_first or (known is not None and known.exit.code == each.code and known.exit.is_first)
                ends[rank] = End(rank, replace(each, is_first=is_first), at, said.ref, said.template_id)
    return Words(job, tuple(utterances), ends)


def _when(each: Exit, said: Utterance) -> float | None:
    """The launcher's log stamp is finer than the whole seconds inside its report, unless it was made much later."""
    if each.at is None:
        return said.first_at
    if said.first_at is not None and abs(said.first_at - each.at) <= TIE_S:
        return min(said.first_at, each.at + 1.0)
    return each.at


def _is_finer(new: float | None, old: float | None) -> bool:
    return new is not None and (old is None or (new % 1 > 0 and old % 1 == 0))


def exit_findings(words: Words) -> list[Finding]:
    """Ranks ended by a signal that no launcher sends: the origin where it came first, an echo where peers had failed before."""
    signalled = {r: end for r, end in words.ends.items() if end.exit.is_signal}
    complaining = {u.rank for u in words.of(Voice.CASCADE, Voice.WAITING)}
    is_global = is_nearly_all(len(signalled), len(words.peers)) and len(words.peers) > 1
    start = words.first_failure_at
    found = _terminated(words)
    for rank, end in sorted(signalled.items()):
        is_late = end.at is not None and start is not None and end.at > start + TIE_S
        is_echo = is_late or rank in complaining
        name = signal_name(end.exit.code)
        order = ", after other ranks had failed" if is_late else ", before any other rank failed" if end.at is not None else ""
        found.append(
            Finding(
                "logs", "spatial", "rank_exit_signal",
                f"{where(words.job, (rank,), ())} was ended by {name}{order}, its launcher reports",
                0.4 if is_echo else 0.93, _home(words, end), (rank,), is_echo=is_echo, is_global=is_global,
                at=end.at, subject=end.template_id, refs=end.ref,
            )
        )  # fmt: skip
    return found


def _terminated(words: Words) -> list[Finding]:
    """Ranks that their launcher names first and that ended by SIGTERM, which somebody else must have sent, before any failure."""
    start, told = words.first_failure_at, {f.nodes[0] for f in launcher_findings(words) if f.nodes}
    ended = [
        end for end in words.ends.values()
        if end.exit.code == -15 and end.exit.is_first and words.job.node_of.get(end.rank) not in told
        and (start is None or end.at is None or end.at <= start + TIE_S)
    ]  # fmt: skip
    if not ended or is_nearly_all(len(ended), len(words.peers)):
        return []
    return [
        Finding(
            "logs", "spatial", "rank_exit_terminated",
            f"{where(words.job, (e.rank,), ())} was ended by SIGTERM from outside, before any other rank failed", 0.85 / len(ended),
            _home(words, e), (e.rank,), at=e.at, subject=e.template_id, refs=e.ref,
        )
        for e in sorted(ended, key=lambda e: e.rank)
    ]  # fmt: skip


_TOLD_TO_END = re.compile(r"(?:received|got|caught)[^\n]{0,40}\b(?:signal|sig(?:term|int|hup|usr[12]))\b|preempt", re.IGNORECASE)


def launcher_findings(words: Words) -> list[Finding]:
    """Launchers that were told to end: all of them by the scheduler or a person; one alone is an origin, late ones are echoes."""
    told: dict[str, Utterance] = {}
    for said in sorted(words.utterances, key=lambda u: (u.first_at or 0.0, u.template_id)):
        if said.node and said.rank is None and _TOLD_TO_END.search(said.message[:2000]):
            told.setdefault(said.node, said)
    if not told:
        return []
    start = words.first_failure_at
    first = min(u.first_at or 0.0 for u in told.values())
    is_global = is_nearly_all(len(told), len(words.job.nodes))
    is_late = start is not None and first > start + TIE_S
    groups = [tuple(sorted(told))] if is_global else [(node,) for node in sorted(told)]
    return [
        Finding(
            "logs", "spatial", "launcher_terminated", f"the launcher on {', '.join(nodes)} was told to end by a signal from outside",
            0.8 / len(groups), nodes, words.job.ranks_on(nodes), is_echo=is_late, is_global=is_global, at=told[nodes[0]].first_at,
            subject=told[nodes[0]].template_id, refs=told[nodes[0]].ref,
        )
        for nodes in groups
    ]  # fmt: skip


def silent_exit_findings(words: Words) -> list[Finding]:
    """The rank that ended first with a plain error code and not one word of its own, while later ones complain."""
    bad = {r: end for r, end in words.ends.items() if not end.exit.is_orderly and not end.exit.is_signal and end.at is not None}
    spoke = {u.rank for u in words.of(Voice.ORIGIN, Voice.CASCADE, Voice.WAITING)}
    mute = sorted(r for r in bad if r not in spoke)
    start = words.first_failure_at
    n_unplaced = sum(u.n_events for u in words.utterances if u.rank is None and u.voice is Voice.ORIGIN and u.raised and not u.exits)
    if not mute or start is None or not (spoke or n_unplaced):
        return []
    score = 0.75 if n_unplaced < 2 else 0.5
    first = [r for r in mute if (bad[r].at or 0.0) <= start + TIE_S]
    first = [r for r in first if bad[r].exit.is_first] or first
    if not first or len(first) > max(1, len(words.peers) // 4):
        return []
    return [
        Finding(
            "logs", "spatial", "rank_exit_mute",
            f"{where(words.job, (r,), ())} ended first, with {signal_name(bad[r].exit.code)} and without a message of its own",
            score / len(first), _home(words, bad[r]), (r,), at=bad[r].at, subject=bad[r].template_id, refs=bad[r].ref,
        )
        for r in first
    ]  # fmt: skip


def _home(words: Words, end: End) -> tuple[str, ...]:
    """Node of a rank that ended: from the topology, else as its launcher calls the host."""
    return words.job.nodes_under((end.rank,)) or ((end.exit.host,) if end.exit.host else ())


def exception_findings(words: Words) -> list[Finding]:
    """Errors that speak of the rank's own trouble, one finding a kind: global when nearly every rank has that kind."""
    own: dict[str, list[Utterance]] = {}
    for said in words.of(Voice.ORIGIN):
        own.setdefault(said.raised.kind if said.raised else said.template_id, []).append(said)
    n_fatal = sum(1 for group in own.values() if any(u.raised for u in group))
    found = _unplaced(words)
    for kind, group in sorted(own.items(), key=lambda item: (item[1][0].first_at or 0.0, item[0])):
        ranks = tuple(sorted({u.rank for u in group if u.rank is not None}))
        is_global = is_nearly_all(len(ranks), len(words.peers)) and len(words.peers) > 1
        found.append(_exception(words, kind, group, ranks, is_global, n_fatal))
    return found


def _unplaced(words: Words) -> list[Finding]:
    """Exceptions whose rank nobody knows (one file for all ranks): they name a kind, not a place; nodes only where a node is known."""
    said = sorted(
        (u for u in words.utterances if u.rank is None and u.voice is Voice.ORIGIN and u.raised and not u.exits and not u.is_normal),
        key=lambda u: (u.first_at or 0.0, u.file or "", u.line or 0),
    )
    kinds: dict[str, list[Utterance]] = {}
    for each in said:
        kinds.setdefault(each.raised.kind if each.raised else "", []).append(each)
    found = []
    for kind, group in kinds.items():
        nodes = tuple(sorted({u.node for u in group if u.node}))
        n_processes = sum(u.n_events for u in group)
        is_global = len(words.job.nodes) > 1 and is_nearly_all(len(nodes), len(words.job.nodes))
        is_global |= len(words.peers) > 1 and is_nearly_all(n_processes, len(words.peers))
        text = next((u.raised.text[:160] for u in group if u.raised and u.raised.text), "")
        found.append(
            Finding(
                "logs", "spatial", "rank_exception", f"{'nodes ' + ', '.join(nodes) if nodes else 'a process'} raised {kind}: {text}",
                0.6 / max(1, len(nodes)), nodes, is_global=is_global, at=group[0].first_at, iteration=group[0].iteration, phase=group[0].phase,
                subject=group[0].template_id, refs=tuple(u.ref[0] for u in group[:4] if u.ref),
            )
        )  # fmt: skip
    return found


def _exception(
    words: Words, kind: str, group: list[Utterance], ranks: tuple[int, ...], is_global: bool, n_fatal: int
) -> Finding:
    first = min(group, key=lambda u: (words.ends[u.rank].at or u.first_at or 0.0) if u.rank in words.ends else (u.first_at or 0.0))
    nodes = words.job.nodes_under(ranks)
    is_fatal = any(u.raised for u in group)
    score = 0.9 if is_fatal else 0.45 if first.alert else 0.3
    if len(nodes) > 1 and not is_global:
        score *= 1.0 - (len(nodes) - 1) / max(2, len(words.job.nodes))
    if not is_fatal and n_fatal:
        score *= 0.5
    what = f"{first.raised.kind}: {first.raised.text[:160]}" if first.raised else first.message.strip().splitlines()[0][:160]
    whom = f"all {len(ranks)} ranks" if is_global else where(words.job, ranks, nodes)
    verb = "raised" if first.raised else "printed"
    end = words.ends.get(first.rank) if first.rank is not None else None
    at = first.first_at if first.uncertainty_s <= TIE_S or end is None else end.at
    return Finding(
        "logs", "spatial", "rank_exception" if is_fatal else "rank_error", f"{whom} {verb} {what}", score, nodes, ranks,
        is_global=is_global, at=at, iteration=first.iteration, phase=first.phase, subject=first.template_id,
        refs=tuple(u.ref[0] for u in group[:4] if u.ref),
    )  # fmt: skip


def echo_findings(words: Words) -> list[Finding]:
    """Complaints about peers, one finding a kind of complaint: marked as echoes, they accuse nobody."""
    found = []
    for each, verb, kind in (
        (Voice.CASCADE, "lost the connection to a peer", "peer_lost"),
        (Voice.WAITING, "gave up waiting for peers", "wait_timed_out"),
    ):
        group = words.of(each)
        ranks = tuple(sorted({u.rank for u in group if u.rank is not None}))
        if not group:
            continue
        first = min(group, key=lambda u: (u.onset_at or u.first_at or 0.0, u.rank or 0))
        found.append(
            Finding(
                "logs", "temporal", kind, f"ranks {rank_ranges(ranks)} {verb}: a consequence, not an origin", 0.5,
                words.job.nodes_under(ranks), ranks, is_echo=True, at=first.onset_at or first.first_at,
                iteration=first.iteration, phase=first.phase, subject=first.template_id,
                refs=tuple(u.ref[0] for u in group[:4] if u.ref),
            )
        )  # fmt: skip
    return found


def missing_voice_findings(words: Words) -> list[Finding]:
    """The few ranks without any complaint while most peers complain: they may have been gone, stopped or stuck first."""
    complaining = {u.rank for u in words.of(Voice.CASCADE, Voice.WAITING)}
    own = {u.rank for u in words.of(Voice.ORIGIN) if u.raised}
    peers = set(words.peers)
    silent = tuple(sorted(peers - complaining - own))
    if len(peers) < 3 or own or not silent or len(silent) > len(peers) / 3 or len(complaining) * 2 < len(peers):
        return []
    nodes = words.job.nodes_under(silent)
    score = 0.62 / max(1, len(nodes))
    return [
        Finding(
            "logs", "spatial", "no_complaint",
            f"{where(words.job, words.job.ranks_on((node,)) if not silent else _on(words.job, silent, node), (node,))} printed no error "
            f"although {len(complaining)} of {len(peers)} ranks complain about peers",
            score, (node,), _on(words.job, silent, node), subject="missing",
        )
        for node in nodes
    ]  # fmt: skip


def _on(job: Job, ranks: Sequence[int], node: str) -> tuple[int, ...]:
    return tuple(r for r in ranks if job.node_of.get(r) == node)


def missing_node_findings(job: Job, utterances: Sequence[Utterance], last_at: dict[str, float]) -> list[Finding]:
    """Nodes whose files just end: no exit report, no launcher's last word, while the other nodes report how they failed.

    `last_at` is the time of the last log line of each node, launcher included.
    """
    reporting = {u.node for u in utterances if u.node and u.voice is not Voice.PLAIN and not u.is_normal}
    gone = [n for n in job.nodes if n not in reporting]
    if len(job.nodes) < 2 or not gone or len(gone) > max(1, len(job.nodes) // 3) or len(reporting) * 2 < len(job.nodes):
        return []
    found = []
    for node in gone:
        ranks = job.ranks_on((node,))
        found.append(
            Finding(
                "logs", "spatial", "node_without_ending",
                f"node {node} wrote nothing about the end: neither its ranks nor its launcher, while {len(reporting)} other nodes did",
                0.85 / len(gone), (node,), ranks, at=last_at.get(node), subject="missing",
            )
        )  # fmt: skip
    return found


def exit_code_findings(job: Job) -> list[Finding]:
    """Nodes whose launcher ended unlike the others: by a signal, or never."""
    codes = {node: code for node, code in job.node_exit_codes.items() if node}
    usual = [node for node, code in codes.items() if code is not None and code >= 0]
    odd = sorted(node for node, code in codes.items() if code is None or (code < 0 and code not in (-15, -2)))
    if not odd or len(odd) > max(1, len(codes) // 3) or len(usual) * 2 < len(codes):
        return []
    return [
        Finding(
            "logs", "spatial", "node_exit_differs",
            f"the launcher on {node} "
            + ("never ended by itself" if codes[node] is None else f"was ended by {signal_name(codes[node] or 0)}")
            + f" while the others ended with an exit code ({len(usual)} of {len(codes)})",
            0.7 / len(odd), (node,), job.ranks_on((node,)), subject="exit_code",
        )
        for node in odd
    ]  # fmt: skip


def all_findings(job: Job, utterances: Sequence[Utterance], last_at: dict[str, float]) -> list[Finding]:
    """Every finding of this module for a job that did not complete."""
    words = words_of(job, utterances)
    return [
        *exit_findings(words), *launcher_findings(words), *silent_exit_findings(words), *exception_findings(words), *echo_findings(words),
        *missing_voice_findings(words), *missing_node_findings(job, utterances, last_at), *exit_code_findings(job),
    ]  # fmt: skip
