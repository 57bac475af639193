"""Entries of flight recorders, cut down to what a verdict needs before they leave the table.

A buffer holds thousands of finished entries a rank that all agree. Only what is open, what ranks disagree in, and the
newest timed entries go to the verdict; how far each rank came in each group is kept of all. Workers put these queries to the table
itself: Spark took twenty times as long for them, most of it on texts and lists of entries that nobody keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import pyarrow as pa

from jobs.core.query import literal
from ml.collectives.matching import SAME_SIZE

Ask = Callable[[str], pa.Table]
"""Answers a query in which the table of entries is called `lookup`."""
N_TIMED = 48
"""Newest sequence numbers of each group whose durations are looked at."""
BY_GROUP = ["job_id", "rank", "group"]
WITH_ENTRIES = "SELECT DISTINCT job_id FROM lookup WHERE job_id IN ({jobs})"
TELLING = """
WITH entries AS (
    SELECT *, substr("group", strpos("group", ' ') + 1) AS described,
           CASE WHEN split_part(op, ':', -1) IN ({same_size}) THEN input_sizes END AS even_sizes
    FROM lookup WHERE job_id IN ({jobs}) AND (op IS NOT NULL OR sequence IS NOT NULL)),
-- Where ranks of one group disagree, groups of the same description are kept at that sequence number: they say who is odd.
odd AS (
    SELECT DISTINCT job_id, described, sequence, TRUE AS is_odd
    FROM (SELECT job_id, described, sequence, min(op) AS op_0, max(op) AS op_1, min(input_dtypes) AS type_0,
                 max(input_dtypes) AS type_1, min(even_sizes) AS size_0, max(even_sizes) AS size_1
          FROM entries WHERE NOT is_p2p GROUP BY job_id, described, "group", sequence)
    WHERE op_0 <> op_1 OR type_0 <> type_1 OR size_0 <> size_1),
newest AS (SELECT job_id, "group", max(sequence) AS newest FROM entries WHERE duration_ms IS NOT NULL GROUP BY job_id, "group")
SELECT e.job_id, e.node, e.rank, e.record_id, e."group", e.sequence, e.is_p2p, e.op, e.input_sizes, e.input_dtypes, e.state,
       e.created_at, e.duration_ms, e.frames, e.file
FROM entries e
LEFT JOIN odd o ON e.job_id = o.job_id AND e.described = o.described AND e.sequence = o.sequence
LEFT JOIN newest n ON e.job_id = n.job_id AND e."group" = n."group"
WHERE coalesce(e.state <> 'completed', TRUE) OR coalesce(o.is_odd, FALSE)
   OR coalesce(e.duration_ms IS NOT NULL AND e.sequence > n.newest - {n_timed}, FALSE)
"""
PROGRESS = """
SELECT job_id, rank, "group", max(node) AS node, max(file) AS file, max(last_enqueued) AS told_enqueued,
       max(last_completed) AS told_completed, max(CASE WHEN NOT is_p2p THEN sequence END) AS seen_enqueued,
       max(CASE WHEN NOT is_p2p AND state = 'completed' THEN sequence END) AS seen_completed,
       coalesce(max(CASE WHEN is_p2p THEN 1 END), 0) AS has_p2p
FROM lookup WHERE job_id IN ({jobs}) GROUP BY job_id, rank, "group"
"""
MEMBERS = """SELECT job_id, rank, "group", group_ranks FROM lookup WHERE job_id IN ({jobs}) AND array_length(group_ranks) > 0"""


def jobs_with_entries(ask: Ask, jobs: Sequence[str]) -> list[str]:
    """Which of the jobs left dumps, in order."""
    return sorted(_asked(ask, WITH_ENTRIES, jobs)["job_id"])


def telling(ask: Ask, jobs: Sequence[str]) -> pd.DataFrame:
    """Entries that are open, in whose collective ranks disagree, or that are timed and among the newest.

    Columns of `collectives` as `ml.collectives.rows.entries_of` reads them, with one `frame` instead of all.
    """
    rows = _asked(ask, TELLING, jobs)
    return rows.assign(frame=pd.Series([_own_frame(frames) for frames in rows["frames"]], rows.index, object)).drop(
        columns="frames"
    )


def progress(ask: Ask, jobs: Sequence[str]) -> pd.DataFrame:
    """A row a job, rank and group: its ranks, the last collective enqueued and completed, from status and entries.

    Where a group carries sends and receives the status counts them together with the collectives, and is not used.
    """
    rows = _asked(ask, PROGRESS, jobs)
    has_p2p = rows.groupby(["job_id", "group"], dropna=False)["has_p2p"].transform("max") > 0
    for word in ("enqueued", "completed"):
        told = rows[f"told_{word}"].where(~has_p2p)
        rows[f"last_{word}"] = pd.concat([told, rows[f"seen_{word}"]], axis=1).max(axis=1)
    members = _asked(ask, MEMBERS, jobs).drop_duplicates(BY_GROUP)
    return rows[[*BY_GROUP, "node", "file", "last_enqueued", "last_completed"]].merge(members, "left", BY_GROUP)


def _asked(ask: Ask, query: str, jobs: Sequence[str]) -> pd.DataFrame:
    listed, same_size = ", ".join(map(literal, jobs)), ", ".join(map(literal, SAME_SIZE))
    return ask(query.format(jobs=listed or "NULL", same_size=same_size, n_timed=N_TIMED)).to_pandas()


def _own_frame(frames: Sequence[str] | None) -> str | None:
    """The innermost call that is not the library's own; of a stack without any, the innermost."""
    if frames is None or not len(frames):
        return None
    return next((frame for frame in reversed(frames) if "torch/distributed" not in frame), frames[-1])
