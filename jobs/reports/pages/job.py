"""A job's page: the verdict first, then when, where, what, stacks, operations, metrics, baseline, look-alikes, gaps."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.reports.page import Page, build, file_name, table_lines
from jobs.reports.pages import job_pictures as pictures
from jobs.reports.pages.document import completed, undiagnosed
from jobs.reports.pages.verdict import confidence, headline, place
from jobs.reports.words import code, duration, features, listed, markdown, moment, number, percent, ranges, utc

PARTS = (
    "job",
    "diagnosis",
    "rank",
    "phase",
    "iteration",
    "activity",
    "work",
    "template_place",
    "template_baseline",
    "metric",
    "trie",
    "similar",
    "family",
    "node_event",
    "file",
    "quarantine",
    "straggler",
)
JOB_FIELDS = ("name", "user", "state", "exit_code", "started_at", "ended_at", "n_nodes", "world_size", "n_gpus", "config")
MAX_TEMPLATES = 40
MAX_CANDIDATES = 20

Parts = Mapping[str, Sequence[Mapping[str, Any]]]


def whole(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Parts with an empty list for each one that the job lacks."""
    return {name: parts.get(name) or [] for name in PARTS}


def job_page(given: Parts, versions: Mapping[str, int], lake: str = "LAKE") -> Page:
    """The page of one job.

    `given`: rows by part (see PARTS); `job` and `diagnosis` hold one row each, the others any number.
    `versions`: Delta version of each table that the page was made from.
    """
    parts = whole(given)
    job = {**dict.fromkeys(JOB_FIELDS), **parts["job"][0]}
    document = completed(parts["diagnosis"][0]) if parts["diagnosis"] else undiagnosed(job)
    axis = pictures.axis_of(parts)
    job_id = str(job["job_id"])
    values = {
        "job": job,
        "d": document,
        "headline": headline(document),
        "confidence": confidence(document),
        "gpu_hours": gpu_hours(job),
        "seconds": _seconds(job),
        "timeline": pictures.time_line(parts, document, axis) if axis else None,
        "map": pictures.machine_map(parts, document),
        "heat": pictures.rank_by_time(parts, document, axis) if axis else None,
        "step_heat": pictures.rank_by_step(parts, document),
        "waiting": pictures.waiting(parts, document),
        "stacks": pictures.stacks(parts, document),
        "metrics": pictures.metrics(parts, document, axis) if axis else [],
        "candidates": list(document.get("candidates") or [])[:MAX_CANDIDATES],
        "templates": templates(parts, document),
        "baselines": list(document.get("baselines") or [])[:5],
        "similar": sorted(parts["similar"], key=lambda r: (-(r.get("score") or 0.0), r["job_id"])),
        "family": parts["family"][0] if parts["family"] else None,
        "straggler": slowness(parts["straggler"][0]) if parts["straggler"] else "",
        "node_events": list(parts["node_event"])[:50],
        "gaps": gaps(parts, document),
        "commands": commands(job_id, lake),
        "versions": dict(sorted(versions.items())),
        "config": sorted(dict(job.get("config") or {}).items()),
        "place": place,
    }
    data = {
        "diagnosis": parts["diagnosis"][0] if parts["diagnosis"] else document,
        "job": job,
        "headline": values["headline"],
        "similar": values["similar"],
        "straggler": parts["straggler"][0] if parts["straggler"] else None,
        "family": values["family"],
        "gaps": values["gaps"],
        "node_events": values["node_events"],
        "table_versions": values["versions"],
    }
    return build(f"jobs/{file_name(job_id)}", "job.html.j2", values, data, job_text(values), depth=1)


def _seconds(job: Mapping[str, Any]) -> float | None:
    start, end = job.get("started_at"), job.get("ended_at")
    first, last = moment(start), moment(end)
    return (last - first).total_seconds() if first and last else None


def gpu_hours(job: Mapping[str, Any]) -> float | None:
    """Accelerators times hours; None when either is unknown."""
    seconds, devices = _seconds(job), job.get("n_gpus") or job.get("world_size")
    return None if seconds is None or not devices else max(seconds, 0.0) / 3600 * devices


def templates(parts: Parts, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The diagnosis' templates, each with its count by node and in each baseline."""
    by_node: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    in_baseline: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in parts["template_place"]:
        by_node[row["template_id"]][row["node"] or "node not recorded"] += row["n_events"]
    for row in parts["template_baseline"]:
        in_baseline[row["template_id"]][row["job_id"]] += row["n_events"]
    names = [b["job_id"] for b in document.get("baselines") or []][:5]
    found = []
    for template in list(document.get("templates") or [])[:MAX_TEMPLATES]:
        key = template["template_id"]
        found.append(
            {
                **template,
                "n_nodes_more": max(len(by_node[key]) - 12, 0),
                "by_node": sorted(by_node[key].items(), key=lambda item: (-item[1], item[0]))[:12],
                "baseline_counts": [(name, in_baseline[key].get(name, 0)) for name in names],
            }
        )
    return found


def gaps(parts: Parts, document: Mapping[str, Any]) -> list[str]:
    """What was missing, in sentences: silent ranks, uncovered sources, notes, files that could not be read."""
    said = []
    for row in document.get("missing") or []:
        where = ", ".join(
            text
            for text in (
                f"node {row['node']}" if row.get("node") else "",
                f"rank {row['rank']}" if row.get("rank") is not None else "",
            )
            if text
        )
        said.append(f"{where}: {row.get('what')}" if where else str(row.get("what")))
    coverage = document.get("coverage") or {}
    for source in ("logs", "stacks", "operations", "metrics"):
        share = float(coverage.get(source) or 0.0)
        if share < 1:
            said.append(f"no {source} at all" if share == 0 else f"{source} cover {percent(share, 0)} of what they could")
    said += [str(note) for note in coverage.get("notes") or []]
    said += [str(note) for note in parts["job"][0].get("notes") or [] if note not in said]
    said += [f"{row['n']:,} rows or files in quarantine: {str(row['reason']).replace('_', ' ')}" for row in parts["quarantine"]]
    return said[:60]


def slowness(report: Mapping[str, Any]) -> str:
    """What stragglers and slow steps cost, in sentences; empty when nothing is known."""
    said = []
    if report.get("slowdown") is not None:
        waste = percent(report.get("waste"))
        said.append(
            f"Stragglers made steps {number(report['slowdown'], 2)} times as long: {waste} of the time was waiting for them"
        )
        if report.get("cause") not in (None, "none"):
            said[-1] += f"; by the fixed rule the candidate cause is a {report['cause']}"
        if report.get("gpu_hours_wasted"):
            said[-1] += f", {number(report['gpu_hours_wasted'])} GPU-hours"
    elif report.get("refused"):
        said.append(f"No straggler analysis: {report['refused']}")
    if report.get("typical_step_time_s") is not None:
        said.append(
            f"A step usually took {duration(report['typical_step_time_s'])}, at best {duration(report.get('best_step_time_s'))}"
        )
        if report.get("baseline_step_time_s") is not None:
            said[-1] += f", in the baselines {duration(report['baseline_step_time_s'])}"
    if report.get("is_degraded") and report.get("slow_from_iteration") is not None:
        said.append(f"A slower level lasts from iteration {number(report['slow_from_iteration'])}")
    return ". ".join(said) + ("." if said else "")


def commands(job_id: str, lake: str) -> list[tuple[str, str]]:
    """Commands that show the same again, quoted for a shell."""
    job, where = shlex.quote(job_id), shlex.quote(lake)
    return [
        ("this diagnosis", f"fleetdiff diagnosis {job} --lake {where} --json"),
        ("its baselines", f"fleetdiff baseline {job} --lake {where}"),
        ("failures that look alike", f"fleetdiff similar {job} --lake {where}"),
        ("everything, from the archive", f"fleetdiff run ARCHIVE --lake {where} --report DIR"),
    ]


def job_text(v: Mapping[str, Any]) -> list[str]:
    """The Markdown twin."""
    job, d = v["job"], v["d"]
    lines = [f"# {markdown(job['job_id'])}", "", f"**{markdown(v['headline'], 2000)}**", "", markdown(v["confidence"], 2000), ""]
    lines += table_lines(
        ("Job", ""),
        [
            ("name", job.get("name") or "–"),
            ("user", job.get("user") or "–"),
            ("state", job.get("state") or "–"),
            ("started", utc(job.get("started_at"))),
            ("ended", utc(job.get("ended_at"))),
            ("ran for", duration(v["seconds"])),
            ("nodes", number(job.get("n_nodes"))),
            ("ranks", number(job.get("world_size"))),
            ("GPU-hours", number(v["gpu_hours"])),
        ],
    )
    lines += ["## Candidates", ""]
    for n, c in enumerate(v["candidates"], 1):
        lines.append(f"{n}. {markdown(place(c), 800)}: score {number(c.get('score'), 2)}")
        lines += [f"    - {e['source'].replace('_', ' ')}: {markdown(e['statement'], 600)}" for e in c.get("evidence") or []]
    lines += ["none" if not v["candidates"] else "", "", "## Templates", ""]
    lines += table_lines(
        ("score", "events", "alert", "in baselines", "in library", "template", "example"),
        [
            (
                number(t.get("score"), 2),
                number(t.get("n_events")),
                t.get("alert") or "–",
                "yes" if t.get("in_baselines") else "no",
                "yes" if t.get("in_library") else "no",
                t.get("template"),
                t.get("example") or "–",
            )
            for t in v["templates"]
        ],
    )
    lines += ["## Baselines", ""]
    for b in v["baselines"]:
        differing = "; ".join(f"{x['key']}: {x['this']} here, {x['baseline']} there" for x in b.get("differing") or [])
        lines.append(
            f"- {markdown(b['job_id'])}: score {number(b.get('score'), 2)}; {markdown(differing or 'nothing differs', 1500)}"
        )
    lines += ["", "## Similar incidents", ""]
    lines += [
        f"- {markdown(s['job_id'])}: score {number(s.get('score'), 2)}; {markdown(listed(features(s.get('shared') or []), 6), 900)}"
        for s in v["similar"]
    ]
    lines += ["", "## What was missing", "", *(f"- {markdown(gap, 600)}" for gap in v["gaps"])]
    lines += [
        "",
        "## How to see this again",
        "",
        *(f"- {what}: {code(command)}" for what, command in v["commands"]),
        "",
    ]
    lines.append("Ranks named: " + ranges({r for c in d.get("candidates") or [] for r in c.get("ranks") or []}))
    return lines
