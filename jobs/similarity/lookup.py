"""Look-alikes of one failure straight from the lake, without Spark, and the verdicts that people leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.core import lake
from jobs.core.errors import FleetdiffError
from jobs.core.query import listed
from jobs.core.unknown_job import require_job, unknown_job
from ml.similarity.families import ranked
from ml.similarity.fingerprint import most_alike, scores, shared_words

FINGERPRINTS = "job_fingerprints"
MIN_SCORE = 0.25
N_SHOWN = 10
N_POOL = 200
DETAILS = ("job_id", "words", "symptom", "cause_class", "state", "user", "lineage", "ended_at", "nodes", "versions", "family_id")


@dataclass(frozen=True)
class LookAlike:
    """One past failure that looks alike, what both show, and what a person found out about it."""

    job_id: str
    score: float
    shared: dict[str, list[str]]
    verdict: dict[str, Any] | None
    details: dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """How often such a failure was seen, where and when: the look-alikes together."""

    n_jobs: int
    n_lineages: int
    nodes: list[str]
    versions: list[str]
    users: list[str]
    first_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True)
class Similar:
    """Look-alikes, verified ones first, then the most alike; their sum; the family; or why there is none."""

    alike: tuple[LookAlike, ...]
    seen: Seen | None
    family: dict[str, Any] | None
    verdict: dict[str, Any] | None
    refused: str | None


def of_job(root: str, job_id: str) -> Similar:
    """Failures of the lake that look like this one; raises NotFoundError when the lake does not have the job."""
    own = listed(lake.rows(root, FINGERPRINTS, ["tokens", *DETAILS], [("job_id", "=", job_id)]))
    if not own:
        return Similar((), None, None, None, _why_unknown(root, job_id))
    known = lake.rows(root, FINGERPRINTS, ["job_id", "tokens"], [("job_id", "!=", job_id)])
    verdicts = newest_verdicts(root)
    names = known["job_id"].to_pylist()
    lists = known["tokens"].combine_chunks() if names else pa.array([], pa.list_(pa.int64()))
    offsets = lists.offsets.to_numpy().astype(np.int64)
    tokens = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    found = scores(np.array(own[0]["tokens"], dtype=np.int64), tokens, offsets - offsets[0])
    pool = most_alike(found, names, N_POOL, MIN_SCORE)
    n_alike = int((np.round(found, 4) >= MIN_SCORE).sum())
    verified = {job for job, verdict in verdicts.items() if verdict["is_verified"]}
    late = [each for each in most_alike(found, names, len(names), MIN_SCORE) if names[each.row] in verified] if verified else []
    chosen = {names[each.row]: each.score for each in [*late[:N_SHOWN], *pool]}
    family = _family(root, own[0]["family_id"])
    if not chosen:
        best = f"the best score is {found.max():.2f}, below {MIN_SCORE}" if len(names) else "it is the only failure here"
        return Similar((), None, family, verdicts.get(job_id), f"no past failure looks alike: {best}")
    wanted = [("job_id", "in", sorted(chosen))]
    details = {row["job_id"]: row for row in listed(lake.rows(root, FINGERPRINTS, list(DETAILS), wanted))}
    order = sorted(chosen, key=lambda job: (job not in verified, -chosen[job], job))[:N_SHOWN]
    shared = {job: shared_words(own[0]["tokens"], own[0]["words"], details[job]["words"]) for job in order}
    texts = _texts(root, {word for words in shared.values() for word in words})
    alike = [LookAlike(job, chosen[job], _by_kind(shared[job], texts), verdicts.get(job), details[job]) for job in order]
    return Similar(tuple(alike), _seen(list(details.values()), n_alike), family, verdicts.get(job_id), None)


def newest_verdicts(root: str) -> dict[str, dict[str, Any]]:
    """The newest verdict on each job."""
    rows = listed(lake.rows(root, "verdicts"))
    return {row["job_id"]: row for row in sorted(rows, key=lambda row: (row["written_at"], row["cause"]))}


def write_verdict(root: str, row: dict[str, Any]) -> None:
    """Append one verdict; raises NotFoundError when the lake does not have the job."""
    from deltalake import write_deltalake

    job_id = row["job_id"]
    require_job(root, job_id)
    path = lake.table_path(root, "verdicts")
    write_deltalake(path, pa.Table.from_pylist([row], schema=lake.arrow_schema("verdicts")), mode="append")


def _why_unknown(root: str, job_id: str) -> str:
    """Why a job has no fingerprint: it did not fail; raises when it is not in the lake, or not yet looked at."""
    jobs = lake.rows(root, "training_jobs", ["job_id", "state"], [("job_id", "=", job_id)]).to_pylist()
    if not jobs:
        raise unknown_job(root, job_id)
    if jobs[0]["state"] != "COMPLETED":
        raise FleetdiffError(
            f"{lake.table_path(root, FINGERPRINTS)}: {job_id} has no fingerprint yet; run `fleetdiff similarity --lake {root}`"
        )
    return f"{job_id} completed without a symptom: there is no failure to compare"


def _family(root: str, family_id: str) -> dict[str, Any] | None:
    columns = ["family_id", "label", "n_jobs", "n_new", "is_new", "n_nodes", "n_users", "n_versions", "first_at", "last_at"]
    rows = listed(lake.rows(root, "failure_families", columns, [("family_id", "=", family_id)]))
    return rows[0] if rows else None


def _texts(root: str, words: set[str]) -> dict[str, str]:
    """Texts of the templates among these words."""
    ids = sorted({word.split(":", 1)[1] for word in words if word.startswith(("template:", "alert_template:"))})
    rows = lake.rows(root, "templates", ["template_id", "template"], [("template_id", "in", ids)]).to_pylist() if ids else []
    return {row["template_id"]: row["template"] for row in rows}


def _by_kind(words: Sequence[str], texts: dict[str, str]) -> dict[str, list[str]]:
    """Shared words by kind, templates as their text."""
    found: dict[str, list[str]] = {}
    for word in words:
        kind, _, value = word.partition(":")
        name = "templates" if kind.endswith("template") else kind
        found.setdefault(name, []).append(texts.get(value, value) if name == "templates" else value)
    return found


def _seen(details: list[dict[str, Any]], n_alike: int) -> Seen:
    """The look-alikes together."""
    ended = [row["ended_at"] for row in details if row["ended_at"] is not None]
    return Seen(
        n_jobs=n_alike,
        n_lineages=len({row["lineage"] for row in details}),
        nodes=ranked([node for row in details for node in row["nodes"]]),
        versions=ranked([version for row in details for version in row["versions"]]),
        users=ranked([row["user"] for row in details]),
        first_at=min(ended, default=None),
        last_at=max(ended, default=None),
    )
