"""The night's page: how many jobs, how many failed, what it cost, what is new, what to look at first; all jobs with a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.reports.page import Page, build, table_lines
from jobs.reports.words import count, markdown, number, percent, utc

Rows = Sequence[Mapping[str, Any]]
N_FIRST = 6
QUALITY = ("n_files", "n_read", "n_kept", "n_quarantined", "n_broken", "n_expectations")
N_MACHINES = 8
MAX_ROWS = 2000
"""Jobs in the list: the newest ingest and its failures first; a page of that many opens within a second."""


@dataclass(frozen=True)
class Night:
    """What the page is made from: job summaries (see `summary`), families, and counts of the data's quality."""

    jobs: Rows
    families: Rows = ()
    family_of: Mapping[str, str] = field(default_factory=dict)
    quality: Mapping[str, int] = field(default_factory=dict)
    n_left_out: int = 0


def newest(jobs: Rows) -> list[Mapping[str, Any]]:
    """The jobs of the newest ingest."""
    batch = max((int(row["batch"] or 0) for row in jobs), default=0)
    return [row for row in jobs if int(row["batch"] or 0) == batch]


def new_families(night: Night) -> list[Mapping[str, Any]]:
    """Families that were not there before the newest ingest."""
    return [row for row in night.families if row.get("is_new")]


def first_look(night: Night) -> list[tuple[Mapping[str, Any], str]]:
    """Failed jobs of the night in the order of what they cost and how firmly they are explained, and why each is there.

    One job a family: the others of the family are counted in the reason.
    """
    fresh = {row["family_id"] for row in new_families(night)}
    failed = [
        row
        for row in newest(night.jobs)
        if row["is_failed"] or row["symptom"] not in ("none", "cancelled", "time_limit", "undetermined")
    ]

    def weight(row: Mapping[str, Any]) -> float:
        sure = 0.5 + 0.5 * max(float(row["confidence"]), float(row["score"] or 0.0))
        return (0.1 + float(row["gpu_hours"] or 0.0)) * sure * (1.5 if night.family_of.get(row["job_id"]) in fresh else 1.0)

    chosen: list[tuple[Mapping[str, Any], str]] = []
    alike = Counter(night.family_of[row["job_id"]] for row in failed if row["job_id"] in night.family_of)
    seen: set[str] = set()
    for row in sorted(failed, key=lambda r: (-weight(r), r["job_id"])):
        family = night.family_of.get(row["job_id"], "")
        if family and family in seen:
            continue
        seen.add(family)
        why = [f"{number(row['gpu_hours'])} GPU-hours"] if row["gpu_hours"] is not None else []
        if family and alike[family] > 1:
            why.append(f"{count(alike[family], 'job')} failed alike")
        if family in fresh:
            why.append("not seen before")
        chosen.append((row, ", ".join(why)))
    return chosen[:N_FIRST]


def top_machines(jobs: Rows) -> list[tuple[str, int, float]]:
    """Machines that candidates name, with the number of jobs and the best score; most jobs first."""
    best: dict[str, float] = {}
    n: Counter[str] = Counter()
    for row in jobs:
        for node in row["accused"]:
            n[node] += 1
            best[node] = max(best.get(node, 0.0), float(row["score"] or 0.0))
    return [(node, n[node], best[node]) for node in sorted(n, key=lambda x: (-n[x], -best[x], x))[:N_MACHINES]]


def night_page(night: Night) -> Page:
    """The page, `index`."""
    tonight = newest(night.jobs)
    failed = [row for row in tonight if row["is_failed"]]
    hours = sum(float(row["gpu_hours"] or 0.0) for row in tonight)
    fresh = new_families(night)
    ends = sorted(str(row["ended_at"]) for row in tonight if row["ended_at"])
    figures = {
        "n_jobs": len(tonight),
        "n_failed": len(failed),
        "n_all_jobs": len(night.jobs),
        "gpu_hours": hours,
        "failed_gpu_hours": sum(float(row["gpu_hours"] or 0.0) for row in failed),
        "lost_gpu_hours": sum(float(row["lost_gpu_hours"]) for row in tonight),
        "n_new_families": len(fresh),
        "n_localised": sum(bool(row["accused"]) for row in failed),
        "first_end_at": ends[0] if ends else None,
        "last_end_at": ends[-1] if ends else None,
        **dict.fromkeys(QUALITY, 0),
        **dict(night.quality),
    }
    first = first_look(night)
    machines = top_machines(tonight)
    ordered = sorted(night.jobs, key=lambda r: (str(r["ended_at"] or ""), r["job_id"]), reverse=True)
    ordered.sort(key=lambda r: (-int(r["batch"] or 0), not r["is_failed"]))
    values = {
        "f": figures,
        "first": first,
        "machines": machines,
        "fresh": fresh,
        "jobs": ordered[:MAX_ROWS],
        "symptoms": Counter(r["symptom"] for r in tonight).most_common(),
        "newest_batch": max((int(r["batch"] or 0) for r in night.jobs), default=0),
        "states": sorted({r["state"] for r in night.jobs}),
        "n_left_out": night.n_left_out + max(len(ordered) - MAX_ROWS, 0),
        "headline": night_headline(figures),
    }
    data = {
        "figures": figures,
        "first": [
            {"job_id": r["job_id"], "page": f"jobs/{r['page']}.html", "headline": r["headline"], "why": why} for r, why in first
        ],
        "machines": [{"node": n, "n_jobs": k, "score": s} for n, k, s in machines],
        "new_families": fresh,
        "jobs": ordered,
    }
    return build("index", "night.html.j2", values, data, _text(values))


def night_headline(f: Mapping[str, Any]) -> str:
    """The night in one sentence."""
    if not f["n_jobs"]:
        return "No job has been read yet."
    said = f"{count(f['n_jobs'], 'job')} ended; {count(f['n_failed'], 'job')} failed ({percent(f['n_failed'] / f['n_jobs'])}), "
    said += f"and took {number(f['failed_gpu_hours'])} of {number(f['gpu_hours'])} GPU-hours"
    if f["n_failed"]:
        said += f". {count(f['n_localised'], 'failure')} point{'s' if f['n_localised'] == 1 else ''} at a machine"
    return said + "."


def _text(v: Mapping[str, Any]) -> list[str]:
    lines = ["# The night", "", markdown(v["headline"], 1000), "", "## What to look at first", ""]
    lines += [
        f"{n}. [{markdown(r['job_id'])}](jobs/{r['page']}.md): {markdown(r['headline'], 600)} ({markdown(why)})"
        for n, (r, why) in enumerate(v["first"], 1)
    ]
    lines += [
        "",
        "## Machines",
        "",
        *table_lines(("machine", "jobs", "best score"), [(n, number(k), number(s, 2)) for n, k, s in v["machines"]]),
    ]
    lines += ["## Jobs", ""]
    rows = [
        (r["job_id"], r["name"] or "–", r["state"], r["symptom"], utc(r["ended_at"]), number(r["gpu_hours"]), r["candidate"] or "–")
        for r in v["jobs"]
    ]
    return lines + table_lines(("job", "name", "state", "symptom", "ended", "GPU-hours", "first candidate"), rows)
