"""One job in a row: what the night's page, the machines' page and the search need to know of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.reports.page import file_name, plain
from jobs.reports.pages.document import completed, undiagnosed
from jobs.reports.pages.job import gpu_hours
from jobs.reports.pages.verdict import headline, place
from ml.fusion.evaluate import ACCUSED

CENSORED = frozenset({"CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE", "REVOKED", "REQUEUED", "RESIZING"})
"""States in which a run was cut short from outside: neither a success nor a failure of its own."""


def summary(job: Mapping[str, Any], document: Mapping[str, Any] | None) -> dict[str, Any]:
    """The row of one job, made of values that JSON can hold.

    `is_failed`: ended neither completed nor cut short from outside. `lost_gpu_hours`: accelerators times half an hour, or the
    run's length when it was shorter (an hour between checkpoints loses half of it on average); 0 for jobs that did not fail.
    """
    d = completed(document) if document else undiagnosed(job)
    state, hours = str(job.get("state") or "UNKNOWN"), gpu_hours(job)
    is_failed = state not in CENSORED and state not in ("COMPLETED", "UNKNOWN")
    devices = job.get("n_gpus") or job.get("world_size") or 0
    first = d["candidates"][0] if d["candidates"] else None
    row = {
        "job_id": job["job_id"],
        "page": file_name(str(job["job_id"])),
        "name": job.get("name"),
        "user": job.get("user"),
        "state": state,
        "started_at": job.get("started_at"),
        "ended_at": job.get("ended_at"),
        "n_nodes": job.get("n_nodes"),
        "world_size": job.get("world_size"),
        "batch": job.get("ingest_batch") or 0,
        "gpu_hours": hours,
        "is_failed": is_failed,
        "symptom": d["symptom"],
        "cause_class": d["cause_class"],
        "lost_gpu_hours": min(hours or 0.0, 0.5 * devices) if is_failed else 0.0,
        "confidence": float(d["cause_confidence"] or 0.0),
        "spatial": d["spatial_signal"],
        "headline": headline(d),
        "candidate": place(first) if first else None,
        "score": float(first["score"] or 0.0) if first else None,
        "accused": sorted({n for c in d["candidates"] if (c["score"] or 0.0) >= ACCUSED for n in c["nodes"]}),
        "template": d["templates"][0]["template"][:300] if d["templates"] else None,
        "verified": bool(d["verified"]),
    }
    return dict(plain(row))


def page_key(job: Mapping[str, Any], document: str | None, extra: str, code: str) -> str:
    """Hash of what a job's page is made from: while it stays, the page need not be written again."""
    parts = json.dumps([job.get("job_hash"), document, extra, code], ensure_ascii=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]
