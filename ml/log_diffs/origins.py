"""Who broke first: exceptions, echoes and silences of ranks, from what they and their launchers wrote.

Findings on exceptions that no peer's end explains, on echoes (marked), and on the few ranks or nodes that said nothing
while their peers complained.
"""

from __future__ import annotations

from collections.abc import Sequence

from ml.log_diffs.ends import (
    exit_code_findings,
    exit_findings,
    launcher_findings,
    lost_node_findings,
    silent_exit_findings,
    unplaced_exit_findings,
)
from ml.log_diffs.messages import Voice
from ml.log_diffs.topology import Finding, Job, is_nearly_all, rank_ranges, where
from ml.log_diffs.utterances import TIE_S, Utterance, Words, words_of


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
    """Exceptions whose rank nobody knows (one file for all ranks): a kind, not a place, unless the node is known."""
    said = sorted(
        (
            u
            for u in words.utterances
            if u.rank is None and u.voice is Voice.ORIGIN and u.raised and not u.exits and not u.is_normal
        ),
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
                "logs",
                "spatial",
                "rank_exception",
                f"{'nodes ' + ', '.join(nodes) if nodes else 'a process'} raised {kind}: {text}",
                0.6 if is_global else 0.6 / max(1, len(nodes)),
                nodes,
                is_global=is_global,
                at=group[0].first_at,
                iteration=group[0].iteration,
                phase=group[0].phase,
                subject=group[0].template_id,
                refs=tuple(u.ref[0] for u in group[:4] if u.ref),
            )
        )
    return found


def _exception(words: Words, kind: str, group: list[Utterance], ranks: tuple[int, ...], is_global: bool, n_fatal: int) -> Finding:
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
        group = words.of(each) or words.unranked(each)
        ranks = tuple(sorted({u.rank for u in group if u.rank is not None}))
        if not group:
            continue
        whom = f"ranks {rank_ranges(ranks)}" if ranks else "processes"
        nodes = words.job.nodes_under(ranks) or tuple(sorted({u.node for u in group if u.node}))
        first = min(group, key=lambda u: (u.onset_at or u.first_at or 0.0, u.rank or 0))
        found.append(
            Finding(
                "logs", "temporal", kind, f"{whom} {verb}: a consequence, not an origin", 0.5,
                nodes, ranks, is_echo=True, at=first.onset_at or first.first_at,
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
    others = f"{len(complaining)} of {len(peers)} ranks complain about peers"
    score = 0.62 / max(1, len(nodes))
    return [
        Finding(
            "logs",
            "spatial",
            "no_complaint",
            f"{where(words.job, _on(words.job, silent, node), (node,))} printed no error although {others}",
            score,
            (node,),
            _on(words.job, silent, node),
            subject="missing",
        )
        for node in nodes
    ]


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
                "logs",
                "spatial",
                "node_without_ending",
                f"node {node} wrote nothing about the end, its launcher included, while {len(reporting)} other nodes did",
                0.85 / len(gone),
                (node,),
                ranks,
                at=last_at.get(node),
                subject="missing",
            )
        )
    return found


def all_findings(job: Job, utterances: Sequence[Utterance], last_at: dict[str, float]) -> list[Finding]:
    """Every finding of this module for a job that did not complete."""
    words = words_of(job, utterances)
    return [
        *exit_findings(words),
        *launcher_findings(words),
        *silent_exit_findings(words),
        *unplaced_exit_findings(words),
        *lost_node_findings(words),
        *exception_findings(words),
        *echo_findings(words),
        *missing_voice_findings(words),
        *missing_node_findings(job, utterances, last_at),
        *exit_code_findings(job),
    ]
