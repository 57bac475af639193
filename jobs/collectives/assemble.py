"""One job's flight-recorder rows as the typed things of `ml.collectives`, and the verdict on it as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from ml.collectives.groups import group_kind, groups_from_pg_config, smallest_group
from ml.collectives.matching import Matched
from ml.collectives.ranks import compressed
from ml.collectives.reasons import Reason, Suspect
from ml.collectives.rows import entries_of
from ml.collectives.verdict import Syndrome, Verdict, judge

COMPLETED = 0.4
"""Weight of suspicion in a job that completed: its dumps were taken in normal running."""
MOST_COLLECTIVES = 40


@dataclass(frozen=True)
class About:
    """What is known of a job beside its dumps: nodes and dump files by rank, parallel groups, and whether it completed."""

    node_of: Mapping[int, str]
    file_of: Mapping[int, str]
    groups: Mapping[int, Mapping[str, Sequence[int]]]
    has_completed: bool


def about(rows: pd.DataFrame, facts: Mapping[str, Any]) -> About:
    """Places from the topology, where it does not say from the dumps; groups likewise."""
    placed = facts.get("ranks") or []
    node_of = {int(r): str(n) for r, n in zip(rows["rank"], rows["node"]) if isinstance(n, str)}
    node_of |= {r["rank"]: r["node"] for r in placed if r["node"]}
    told = rows[rows["group_ranks"].map(lambda ranks: np.size(ranks) > 0 and np.ndim(ranks) > 0)]
    # Every rank of a group tells the same list.
    distinct = {(str(g), np.asarray(ranks, np.int64).tobytes()): ranks for g, ranks in zip(told["group"], told["group_ranks"])}
    groups = groups_from_pg_config((name, [int(r) for r in ranks]) for (name, _), ranks in distinct.items())
    files = {int(r): str(f) for r, f in zip(rows["rank"], rows["file"]) if isinstance(f, str)}
    return About(node_of, files, groups, facts.get("state") == "COMPLETED")


def finding_rows(job_id: str, rows: pd.DataFrame, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of `collective_findings` of one job, in order of their ids; empty when nothing is open and nobody is slow."""
    known = about(rows, facts)
    world = facts.get("world_size") or 0
    verdict = judge(entries_of(rows))
    if verdict.syndrome is Syndrome.NONE and not verdict.collectives:
        return []
    found = [_suspect_row(job_id, s, verdict, known) for s in verdict.suspects]
    found += [_collective_row(job_id, one, verdict, known) for one in verdict.collectives[:MOST_COLLECTIVES]]
    if verdict.is_global or not verdict.suspects:
        found.append(_global_row(job_id, verdict, known, world))
    best: dict[str, dict[str, Any]] = {}
    for row in found:
        best.setdefault(row["finding_id"], row)
    return [best[key] for key in sorted(best)]


def _row(job_id: str, known: About, **given: Any) -> dict[str, Any]:
    ranks = given.get("ranks", [])
    subject = given.get("subject")
    shared: dict[str, Any] = {
        "job_id": job_id, "source": "collectives", "axis": "spatial", "nodes": [], "ranks": ranks, "devices": [],
        "group_kind": None, "is_echo": False, "is_global": False, "at": None, "iteration": None, "phase": None,
        "refs": [{"file": known.file_of[r], "line": None} for r in ranks[:8] if r in known.file_of],
        "group_ranks": [], "missing_ranks": [], "waiting_ranks": [],
    }  # fmt: skip
    key = f"{job_id}|{given['kind']}|{subject}|{given.get('nodes', [])}{ranks}"
    return shared | given | {"finding_id": hashlib.sha256(key.encode()).hexdigest()[:16]}


def _suspect_row(job_id: str, one: Suspect, verdict: Verdict, known: About) -> dict[str, Any]:
    node = known.node_of.get(one.rank)
    matched = next((m for m in verdict.collectives if (m.group, m.sequence) == (one.group, one.sequence)), None)
    together = one.reason in (Reason.STUCK_TOGETHER, Reason.WAIT_CYCLE)
    members = list(one.group.ranks) if one.group else []
    group = smallest_group(members, known.groups) if together and members else None
    return _row(
        job_id, known, kind=f"rank_{one.reason}", score=one.score * (COMPLETED if known.has_completed else 1.0),
        nodes=[node] if node else [], ranks=[one.rank], group_kind=group[0] if group else None,
        at=_time(matched.created_us if matched else -1), statement=one.statement,
        subject=_subject(one.group.name if one.group else None, one.sequence), syndrome=str(verdict.syndrome),
        reason=str(one.reason), group=one.group.name if one.group else None, group_ranks=members,
        sequence=one.sequence, op=one.op or None, frame=one.frame or None,
        missing_ranks=sorted({*matched.missing, *matched.undumped}) if matched else [],
        waiting_ranks=list(matched.present) if matched else [],
    )  # fmt: skip


def _collective_row(job_id: str, one: Matched, verdict: Verdict, known: About) -> dict[str, Any]:
    missing = sorted({*one.missing, *one.undumped})
    said = (
        f"missing {compressed(missing)}, waiting {compressed(one.present)}"
        if missing
        else (
            f"not completed by {compressed(one.present)}" + (f", completed by {compressed(one.finished)}" if one.finished else "")
        )
    )
    wrong = [m for m in one.mismatches if m.field != "state"]
    if wrong:
        said += f"; rank {wrong[0].rank} has {wrong[0].field} {wrong[0].this[:80]}, others {wrong[0].others[:80]}"
    return _row(
        job_id, known, kind="open_collective" if one.present else "mismatched_collective", score=0.2, is_echo=True,
        is_global=True, ranks=[], group_kind=group_kind(one.group.name.split(" ", 1)[-1]), at=_time(one.created_us),
        statement=f"{one.op} {one.sequence} of {one.group.name}: {said}", subject=_subject(one.group.name, one.sequence),
        syndrome=str(verdict.syndrome), reason=None, group=one.group.name, group_ranks=list(one.group.ranks),
        sequence=one.sequence, op=one.op or None, frame=one.frame or None, missing_ranks=missing,
        waiting_ranks=list(one.present),
    )  # fmt: skip


def _global_row(job_id: str, verdict: Verdict, known: About, world: int) -> dict[str, Any]:
    words = {
        Syndrome.COMM_HANG: "ranks stand in collectives that every member has entered and none has finished",
        Syndrome.COMM_SLOW: "groups are slow in communication and no rank comes late",
    }
    n_ranks = max(verdict.n_ranks, world)
    text = f"{words.get(verdict.syndrome, 'collectives are not over')}; no rank stands out of {n_ranks}: look at the network"
    return _row(
        job_id, known, kind=f"syndrome_{verdict.syndrome}", score=0.6 * (COMPLETED if known.has_completed else 1.0),
        is_global=True, ranks=[], statement=text, subject=str(verdict.syndrome), syndrome=str(verdict.syndrome),
        reason=None, group=None, sequence=None, op=None, frame=None,
    )  # fmt: skip


def _subject(group: str | None, sequence: int | None) -> str | None:
    return None if group is None else f"{group} #{sequence}"


def _time(created_us: int) -> datetime | None:
    return datetime.fromtimestamp(created_us / 1e6, UTC) if created_us > 0 else None
