"""Ends of processes and launchers: who was ended by a signal, from outside, or without a word, and in which order."""

from __future__ import annotations

import re

from ml.log_diffs.exits import Exit, signal_name
from ml.log_diffs.messages import Voice
from ml.log_diffs.topology import Finding, Job, is_nearly_all, where
from ml.log_diffs.utterances import TIE_S, End, Utterance, Words

_NODE_LOST = re.compile(
    r"\bnode failure on (?P<a>[\w.-]{1,253})"
    r"|\b(?:node|host)[ :\"'=]{1,3}(?P<b>[\w.-]{1,253})[\"']? (?:is |has |went |was |became )?(?:now )?"
    r"(?:not ?responding|down|unreachable|not ?ready|lost|rebooted|failed|dead)\b"
    r"|\blost (?:contact|connection|communication) (?:with|to) (?:the )?(?:remote )?(?:node|host|daemon on)[ :]{1,2}"
    r"(?P<c>[\w.-]{1,253})"
    r"|\bno heartbeat from (?:node |host |agent )?(?P<d>[\w.-]{1,253})",
    re.IGNORECASE,
)
_TOLD_TO_END = re.compile(r"(?:received|got|caught)[^\n]{0,40}\b(?:signal|sig(?:term|int|hup|usr[12]))\b|preempt", re.IGNORECASE)


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


def unplaced_exit_findings(words: Words) -> list[Finding]:
    """Nodes on which a process was ended by a signal or died, where no report says which rank it was: the first of them."""
    if any(end.exit.is_signal for end in words.ends.values()):
        return []
    bad = [(host, each, said) for host, each, said in words.unplaced if each.is_signal or (each.host and not each.is_orderly)]
    signalled = [one for one in bad if one[1].is_signal] or bad
    known = set(words.job.nodes)
    first: dict[str, tuple[Exit, Utterance]] = {}
    for host, each, said in sorted(signalled, key=lambda one: (one[2].first_at or 0.0, one[2].line or 0, one[0])):
        if host in known or not known:
            first.setdefault(host, (each, said))
    is_global = len(known) > 1 and is_nearly_all(len(first), len(known))
    return [
        Finding(
            "logs", "spatial", "node_exit_signal",
            f"a process on {host} {f'was ended by {signal_name(each.code)}' if each.is_signal else 'died'}, its launcher reports",
            0.85 / (1 if is_global else len(first)), (host,), words.job.ranks_on((host,)), is_global=is_global,
            at=said.first_at, subject=said.template_id, refs=said.ref,
        )
        for host, (each, said) in sorted(first.items())
    ]  # fmt: skip


def lost_node_findings(words: Words) -> list[Finding]:
    """Nodes that a scheduler, a launcher or a cluster's control plane reports as gone."""
    told: dict[str, Utterance] = {}
    for said in sorted(words.utterances, key=lambda u: (u.first_at or 0.0, u.template_id)):
        for found in _NODE_LOST.finditer(said.message[:4000]):
            host = next((name for name in found.groups() if name), "").rstrip(".")
            if host in words.job.nodes:
                told.setdefault(host, said)
    is_global = len(words.job.nodes) > 1 and is_nearly_all(len(told), len(words.job.nodes))
    return [
        Finding(
            "logs", "spatial", "node_lost", f"node {node} is reported as gone: {said.message.strip().splitlines()[0][:160]}",
            0.85 / len(told), (node,), words.job.ranks_on((node,)), is_global=is_global, at=said.first_at, phase=said.phase,
            subject=said.template_id, refs=said.ref,
        )
        for node, said in sorted(told.items())
    ]  # fmt: skip


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
            "logs",
            "spatial",
            "launcher_terminated",
            f"the launcher on {', '.join(nodes)} was told to end by a signal from outside",
            0.8 / len(groups),
            nodes,
            words.job.ranks_on(nodes),
            is_echo=is_late,
            is_global=is_global,
            at=told[nodes[0]].first_at,
            subject=told[nodes[0]].template_id,
            refs=told[nodes[0]].ref,
        )
        for nodes in groups
    ]


def silent_exit_findings(words: Words) -> list[Finding]:
    """The rank that ended first with a plain error code and not one word of its own, while later ones complain."""
    bad = {r: end for r, end in words.ends.items() if not end.exit.is_orderly and not end.exit.is_signal and end.at is not None}
    spoke = {u.rank for u in words.of(Voice.ORIGIN, Voice.CASCADE, Voice.WAITING)}
    mute = sorted(r for r in bad if r not in spoke)
    start = words.first_failure_at
    n_unplaced = sum(
        u.n_events for u in words.utterances if u.rank is None and u.voice is Voice.ORIGIN and u.raised and not u.exits
    )
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


def exit_code_findings(job: Job) -> list[Finding]:
    """Nodes whose launcher ended unlike the others: by a signal, or never."""
    codes = {node: code for node, code in job.node_exit_codes.items() if node}
    if codes:
        codes |= {node: None for node in job.nodes if node not in codes}
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
