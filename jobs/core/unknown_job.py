"""What to say when a job is asked for that the lake does not have: the ids that come nearest."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from jobs.core import lake
from jobs.core.errors import NotFoundError

N_COMPARED = 5000
"""Comparing letters takes time: in a larger lake only ids of about the same length, the last of them in order, are compared."""


def require_job(root: str, job_id: str) -> None:
    """Raise `unknown_job` when the lake does not have the job."""
    if not lake.rows(root, "training_jobs", ["job_id"], [("job_id", "=", job_id)]).num_rows:
        raise unknown_job(root, job_id)


def unknown_job(root: str, job_id: str) -> NotFoundError:
    """The error for a job that the lake does not have, with the ids nearest to it, or where they are listed."""
    near = nearest(job_id, lake.rows(root, "training_jobs", ["job_id"])["job_id"].to_pylist())
    mend = f"did you mean {' or '.join(near)}?" if near else f"`fleetdiff diagnosis --all --lake {root}` lists them"
    return NotFoundError(f"{root}: no job {job_id} in this lake; {mend}")


def nearest(asked: str, known: Sequence[str], limit: int = 3) -> list[str]:
    """Ids that hold what was asked for, or else differ from it by a few letters; the likeliest first.

    >>> nearest("7107", ["job-7107", "job-8000"]), nearest("job-7170", ["job-7107", "x"]), nearest("a", ["b"])
    (['job-7107'], ['job-7107'], [])
    """
    held = sorted(each for each in known if len(asked) > 1 and asked.lower() in each.lower())
    if held:
        return held[:limit]
    alike = sorted(each for each in known if abs(len(each) - len(asked)) <= 3)[-N_COMPARED:]
    return get_close_matches(asked, alike, n=limit, cutoff=0.75)
