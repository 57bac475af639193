"""The spatial axis over one job's counts: which nodes and ranks write unlike their peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ml.log_diffs.evidence import Count, Evidence, NodeFinding
from ml.log_diffs.messages import Voice
from ml.log_diffs.spatial import Outlier, compare_peers
from ml.log_diffs.topology import Finding, Job, where
from ml.log_diffs.utterances import Utterance


def node_findings(evidence: Evidence) -> list[NodeFinding]:
    """The spatial axis: in each role, the nodes and ranks whose news and alerts set them apart."""
    if not evidence.counts:
        return []
    told = _news(evidence)
    found: list[NodeFinding] = []
    for role in sorted({c.role or "trainer" for c in evidence.counts}):
        rows = [c for c in evidence.counts if (c.role or "trainer") == role]
        found += _compare(evidence, rows, told, "node")
        found += _compare(evidence, rows, told, "rank")
    return found


def _news(evidence: Evidence) -> set[str]:
    """Templates that may accuse: news to the fleet or alerts, that speak of the writer itself.

    Without a baseline every other framework's chatter is news: then only what tells of a failure may accuse.
    """
    voices = (Voice.ORIGIN, Voice.PLAIN) if evidence.n_baselines else (Voice.ORIGIN,)
    speaks = {u.template_id: u for u in evidence.utterances}
    known = set(evidence.diff.loc[evidence.diff["change"] == "same", "template_id"]) if len(evidence.diff) else set()
    return {
        t for t, u in speaks.items()
        if not u.is_normal and (u.alert or t not in known) and u.voice in voices and not u.exits
    }  # fmt: skip


def _compare(evidence: Evidence, rows: Sequence[Count], told: set[str], scope: str) -> list[NodeFinding]:
    job = evidence.job
    table: dict[tuple[object, str], float] = {}
    for count in rows:
        if scope == "node":
            keys: list[object] = [count.node] if count.node else []
        else:
            keys = list(count.ranks)
        for key in keys:
            table[key, count.template_id] = table.get((key, count.template_id), 0.0) + count.n_events / max(1, len(keys))
    peers = _peers(job, rows, scope)
    ids = sorted({t for _, t in table})
    if len(peers) < 3 or not ids:
        return []
    counts = np.array([[table.get((p, t), 0.0) for t in ids] for p in peers])
    spoken = _spokesmen(job, rows)
    may = [t in told and t not in spoken for t in ids]
    compared = compare_peers(counts, may)
    texts = {u.template_id: u for u in evidence.utterances}
    lacking = _lacking(evidence, peers, ids, compared.missing) if scope == "node" else []
    return [_outlier(job, peers, ids, texts, o, scope) for o in compared.outliers] + lacking


def _lacking(
    evidence: Evidence, peers: Sequence[object], ids: Sequence[str], missing: Sequence[tuple[int, tuple[int, ...]]]
) -> list[NodeFinding]:
    """Nodes of a failed job without what nearly all others print: they may have died, or never come, before it."""
    if evidence.job.state == "COMPLETED":
        return []
    ending = {u.template_id for u in evidence.utterances if u.voice is Voice.TEARDOWN or u.exits}
    found = []
    for row, columns in missing:
        lacked = tuple(ids[c] for c in columns if ids[c] not in ending)
        if not lacked:
            continue
        node = str(peers[row])
        finding = Finding(
            "logs",
            "spatial",
            "lacks_templates",
            f"node {node} lacks {len(lacked)} templates that nearly all of its {len(peers) - 1} peers print",
            round(0.45 / len(missing), 4),
            (node,),
            evidence.job.ranks_on((node,)),
            subject="missing",
            table="node_findings",
        )
        found.append(NodeFinding(finding, None, None, lacked[:5], len(peers)))
    return found


def _peers(job: Job, rows: Sequence[Count], scope: str) -> list[object]:
    seen: set[object] = {c.node for c in rows if c.node} if scope == "node" else {r for c in rows for r in c.ranks}
    known: list[object] = list(job.nodes) if scope == "node" else [p.rank for p in job.places]
    role_wide = [k for k in known if k in seen]
    return role_wide or sorted(seen, key=str)


def _spokesmen(job: Job, rows: Sequence[Count]) -> set[str]:
    """Templates that only the first or the last rank prints: they speak for all, by design; what they raise `origins` judges."""
    ranks = [p.rank for p in job.places] or [r for c in rows for r in c.ranks]
    if not ranks:
        return set()
    by_template: dict[str, set[int]] = {}
    for count in rows:
        by_template.setdefault(count.template_id, set()).update(count.ranks)
    return {t for t, said in by_template.items() if said in ({min(ranks)}, {max(ranks)}, {min(ranks), max(ranks)})}


def _outlier(
    job: Job, peers: Sequence[object], ids: Sequence[str], texts: Mapping[str, Utterance], outlier: Outlier, scope: str
) -> NodeFinding:
    peer = peers[outlier.index]
    nodes = (str(peer),) if scope == "node" else job.nodes_under((int(str(peer)),))
    ranks = () if scope == "node" else (int(str(peer)),)
    separating = tuple(ids[c] for c in outlier.separating)
    first = texts.get(separating[0]) if separating else None
    words = f": {first.message.strip().splitlines()[0][:120]}" if first and first.message.strip() else ""
    statement = f"{where(job, ranks, nodes)} logs unlike its {len(peers) - 1} peers (distance {outlier.distance:.1f}){words}"
    finding = Finding(
        "logs",
        "spatial",
        f"{scope}_outlier",
        statement,
        round(outlier.score, 4),
        nodes,
        ranks,
        at=first.first_at if first else None,
        iteration=first.iteration if first else None,
        subject=separating[0] if separating else None,
        refs=first.ref if first else (),
        table="node_findings",
    )
    return NodeFinding(finding, outlier.distance, outlier.forest_score, separating, len(peers))
