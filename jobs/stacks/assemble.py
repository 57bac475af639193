"""One job's stack samples and facts as the typed things of `ml.stacks`, and its findings and tries as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ml.stacks.findings import Placing, StackFinding, findings
from ml.stacks.merged import everyone, tries_of
from ml.stacks.progress import Course
from ml.stacks.samples import Sample, snapshots_of

NODE_BUDGET = 16_000_000
"""Ranks written over all nodes of one trie: more ranks, fewer nodes."""
MOST_NODES = 4000
TRAINER_ROLES = (None, "trainer", "train", "worker", "actor", "learner")
SAMPLE_COLUMNS = (
    "job_id", "sampled_at", "snapshot", "node", "rank", "process_type", "pid", "thread_id", "thread_name", "is_active",
    "frames", "file",
)  # fmt: skip


def samples_of(rows: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Samples from rows of `stack_samples`, in an order that does not depend on how they were read."""
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    found = []
    for row in rows:
        frames = tuple(row["frames"] or ())
        found.append(
            Sample(
                shared.setdefault(frames, frames), row["rank"], row["node"], row["process_type"] or "trainer", row["pid"],
                row["thread_id"], row["thread_name"], row["is_active"], _seconds(row["sampled_at"]),
                row["snapshot"] or "", row["file"],
            )
        )  # fmt: skip
    return sorted(found, key=lambda s: (s.snapshot, s.at or 0.0, s.process_type, _or(s.rank), s.pid or 0, s.thread_id or ""))


def placing_of(facts: Mapping[str, Any]) -> Placing:
    """Nodes, groups and trainers of a job from its row of facts."""
    ranks = sorted(facts.get("ranks") or [], key=lambda r: r["rank"])
    groups = {r["rank"]: {k: list(v) for k, v in _items(r["groups"]) if v is not None} for r in ranks}
    trainers = [r["rank"] for r in ranks if (r["role"] or "").lower() in {role or "" for role in TRAINER_ROLES}]
    world = facts.get("world_size") or 0
    known = [r["rank"] for r in ranks]
    if not known and 0 < world <= 1 << 20:
        trainers = list(range(world))
    return Placing({r["rank"]: r["node"] for r in ranks if r["node"]}, groups, tuple(trainers or known))


def course_of(facts: Mapping[str, Any]) -> Course:
    """Iterations, log activity and end of a job from its row of facts."""
    pairs = [(i["at"], i["iteration"]) for i in facts.get("iterations") or [] if i["at"] is not None]
    iterations = tuple(sorted((_seconds(at) or 0.0, int(number)) for at, number in pairs))
    logs = facts.get("logs")
    return Course(
        iterations,
        None if logs is None else tuple(sorted(float(moment) for moment in logs)),
        _seconds(facts.get("ended_at")),
        facts.get("state") == "COMPLETED",
        bool(iterations) or logs is not None,
    )


def finding_rows(job_id: str, samples: Sequence[Sample], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of `stack_findings` of one job, in order of their ids."""
    found = findings(samples, placing_of(facts), course_of(facts))
    best: dict[str, dict[str, Any]] = {}
    for row in (_finding_row(job_id, each) for each in found):
        best.setdefault(row["finding_id"], row)
    return [best[key] for key in sorted(best)]


def _finding_row(job_id: str, found: StackFinding) -> dict[str, Any]:
    return {
        "job_id": job_id, "finding_id": _hash(job_id, found.kind, found.subject, found.nodes, found.ranks),
        "source": "stacks", "axis": found.axis, "kind": found.kind, "nodes": list(found.nodes),
        "ranks": list(found.ranks), "devices": [], "group_kind": found.group_kind, "score": min(1.0, max(0.0, found.score)),
        "is_echo": found.is_echo, "is_global": found.is_global, "at": _time(found.at), "iteration": found.iteration,
        "phase": None, "statement": found.statement, "subject": found.subject,
        "refs": [{"file": file, "line": None} for file in found.files], "process_type": found.process_type,
        "path": list(found.path), "n_ranks": found.n_ranks, "n_snapshots": found.n_snapshots,
        "duration_s": found.duration_s,
    }  # fmt: skip


def trie_rows(job_id: str, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Rows of `stack_tries` of one job: every node of every snapshot's tries, as many as the ranks allow."""
    snapshots = snapshots_of(samples)
    ranks = everyone(snapshots)
    n_ranks = max((len(members) for members in ranks.values()), default=1)
    most = max(200, min(MOST_NODES, NODE_BUDGET // max(1, n_ranks)))
    return [
        {
            "job_id": job_id, "node_id": _hash(job_id, snapshot.tag, kind, node.path), "snapshot": snapshot.tag,
            "sampled_at": _time(min((s.at for s in snapshot.samples if s.at is not None), default=None)),
            "process_type": kind, "path": list(node.path), "has_ranks": list(node.has_ranks),
            "missing_ranks": list(node.missing_ranks), "n": node.n, "is_leaf": node.is_leaf,
        }
        for snapshot in snapshots
        for kind, trie in tries_of(snapshot, ranks, most).items()
        for node in trie.nodes
    ]  # fmt: skip


def _hash(*parts: object) -> str:
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]


def _items(mapping: Any) -> list[tuple[Any, Any]]:
    return sorted(mapping.items() if isinstance(mapping, Mapping) else mapping or [])


def _or(value: int | None) -> int:
    return -1 if value is None else value


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(round(at, 6), UTC)
