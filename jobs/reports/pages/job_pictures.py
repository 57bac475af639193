"""The pictures of a job page, each made from the job's parts; None where there is nothing to draw."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup

from jobs.reports.pages.peers import peer_band
from jobs.reports.svg.charts import Bar, metric_band, work_and_wait
from jobs.reports.svg.heat import HeatAxis, HeatRow, Place, fold, heat, topology
from jobs.reports.svg.icicle import grow, icicle, squeeze
from jobs.reports.svg.timeline import Axis, Lane, Span, Step, timeline
from jobs.reports.words import clock, moment, number
from ml.fusion.evaluate import ACCUSED

Parts = Mapping[str, Sequence[Mapping[str, Any]]]
MAX_STEPS = 400
MAX_BARS = 40
MAX_METRICS = 6
MAX_ICICLES = 6


def suspects(document: Mapping[str, Any]) -> tuple[dict[str, float], dict[int, float]]:
    """The best score of each node and of each rank that a candidate names with a score of ACCUSED or more."""
    nodes: dict[str, float] = {}
    ranks: dict[int, float] = {}
    for candidate in document.get("candidates") or []:
        score = float(candidate.get("score") or 0.0)
        if score < ACCUSED:
            continue
        for node in candidate.get("nodes") or []:
            nodes[node] = max(score, nodes.get(node, 0.0))
        for rank in candidate.get("ranks") or []:
            ranks[rank] = max(score, ranks.get(rank, 0.0))
    return nodes, ranks


def axis_of(parts: Parts) -> Axis | None:
    """From the job's start to its end, or as far as its iterations and phases reach."""
    job = parts["job"][0]
    seen = [moment(row["at"]) for row in parts["iteration"]]
    seen += [moment(row[key]) for row in parts["phase"] for key in ("first_at", "last_at")]
    known = sorted(when for when in seen if when)
    start = moment(job.get("started_at")) or (known[0] if known else None)
    end = moment(job.get("ended_at")) or (known[-1] if known else None)
    if start is None or end is None or end <= start:
        return None
    return Axis(start, end)


def onset_of(document: Mapping[str, Any], axis: Axis | None) -> Span | None:
    """The onset window, where the diagnosis has one."""
    onset = document.get("onset") or {}
    start, end = moment(onset.get("window_start_at")), moment(onset.get("window_end_at"))
    if start is None or axis is None:
        return None
    return Span("onset", start, max(end or start, start))


def time_line(parts: Parts, document: Mapping[str, Any], axis: Axis) -> Markup:
    """Phases, iterations, onset and events by node."""
    phases = [
        Span(str(row["phase"]), start, end)
        for row in sorted(parts["phase"], key=lambda r: str(r["first_at"]))
        if (start := moment(row["first_at"])) and (end := moment(row["last_at"]))
    ]
    rows = [r for r in parts["iteration"] if moment(r["at"])]
    rows = sorted(rows, key=lambda r: (r["iteration"], str(r["at"])))
    every = max(1, len(rows) // MAX_STEPS)
    kept = rows[::every] + ([rows[-1]] if rows and (len(rows) - 1) % every else [])
    steps = [Step(int(r["iteration"]), at, r.get("step_time_s")) for r in kept if (at := moment(r["at"]))]
    return timeline(axis, phases, steps, onset_of(document, axis), _lanes(parts, document, axis))


def _lanes(parts: Parts, document: Mapping[str, Any], axis: Axis) -> list[Lane]:
    by_node: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
    texts = {t["template_id"]: t for t in document.get("templates") or []}
    for row in parts["template_place"]:
        template, at = texts.get(row["template_id"]), moment(row["first_at"])
        if template and at and row["node"]:
            kind = "alert" if template.get("alert") else "info"
            by_node[row["node"]].append((at, kind, f"{row['n_events']:,} × {template['template'][:160]}"))
    for row in parts["node_event"]:
        if (at := moment(row["occurred_at"])) and row["node"]:
            kind = {"critical": "alert", "warning": "warning"}.get(row["severity"], "info")
            by_node[row["node"]].append((at, kind, f"{row['kind']}: {row['message'][:160]}"))
    for row in document.get("missing") or []:
        if row.get("node"):
            by_node[row["node"]].append((axis.end, "silence", row.get("what") or "silent"))
    nodes, _ = suspects(document)
    names = list(dict.fromkeys([*nodes, *(parts["job"][0].get("nodes") or []), *by_node]))
    return [Lane(name, sorted(by_node[name], key=lambda e: (e[0], e[2])), name in nodes) for name in names]


def machine_map(parts: Parts, document: Mapping[str, Any]) -> Markup | None:
    """Switches, nodes, ranks; candidates marked."""
    by_node: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(parts["rank"], key=lambda r: r["rank"]):
        by_node[row["node"] or "unknown node"].append(row)
    if not by_node:
        return None
    nodes, ranks = suspects(document)
    places = [
        Place(
            node, rows[0].get("switch") or "switch not recorded", [r["rank"] for r in rows],
            {r["rank"]: ranks[r["rank"]] for r in rows if r["rank"] in ranks}, nodes.get(node, 0.0),
        )
        for node, rows in by_node.items()
    ]  # fmt: skip
    return topology(places)


def rank_by_time(parts: Parts, document: Mapping[str, Any], axis: Axis) -> Markup | None:
    """Log events of each rank over the job's time."""
    if not parts["activity"]:
        return None
    nodes, ranks = suspects(document)
    rows = []
    for row in sorted(parts["activity"], key=lambda r: (r["rank"] is None, r["rank"] or 0, r["node"] or "")):
        label = f"{row['node'] or ''} r{row['rank']}" if row["rank"] is not None else str(row["node"])
        is_suspect = row["rank"] in ranks if row["rank"] is not None else row["node"] in nodes
        rows.append((row["rank"] or 0, HeatRow(label, _compressed(row["bins"]), is_suspect)))
    span = axis.end - axis.start
    labels = [(share, clock(axis.start + span * share)) for share in (0.04, 0.25, 0.5, 0.75, 0.96)]
    onset = onset_of(document, axis)
    shares = None
    if onset:
        shares = tuple(min(max((when - axis.start) / span, 0.0), 1.0) for when in (onset.start, onset.end))
    said = "Each row is a rank, each column a stretch of time; the stronger the colour, the more it logged."
    return heat("Rank × time: log events", fold(rows), HeatAxis(labels, "UTC", shares), "events (log scale)", said, _count_of)  # type: ignore[arg-type]


def _compressed(bins: Sequence[float]) -> list[float]:
    """Counts on a log scale: bursts must not hide silence."""
    return [math.log10(1 + value) for value in bins]


def _count_of(logged: float) -> str:
    return number(round(10**logged - 1))


def rank_by_step(parts: Parts, document: Mapping[str, Any]) -> Markup | None:
    """Each rank's own time (waiting taken out) in each step."""
    rows_in = [row for row in parts["work"] if row.get("steps")]
    if not rows_in:
        return None
    _, ranks = suspects(document)
    rows = [(r["rank"], HeatRow(f"{r['node'] or ''} r{r['rank']}", r["steps"], r["rank"] in ranks)) for r in rows_in]
    rows.sort(key=lambda pair: pair[0])
    first, last = rows_in[0]["first_step"], rows_in[0]["last_step"]
    onset = (document.get("onset") or {}).get("iteration")
    shares = None
    if onset is not None and last > first and first <= onset <= last:
        at = (onset - first) / (last - first + 1)
        shares = (at, at + 1 / (last - first + 1))
    labels = [(share, f"{round(first + (last - first) * share):,}") for share in (0.02, 0.25, 0.5, 0.75, 0.98)]
    said = "Each row is a rank, each column a step; the stronger the colour, the longer its own work took, waiting taken out."
    return heat("Rank × step: own time", fold(rows), HeatAxis(labels, "step", shares), "ms", said)


def waiting(parts: Parts, document: Mapping[str, Any]) -> Markup | None:
    """Working against waiting, for suspects, for the ranks that wait least and most, and for the middle."""
    if not parts["work"]:
        return None
    _, ranks = suspects(document)
    rows = sorted(parts["work"], key=lambda r: r["rank"])
    if len(rows) > MAX_BARS:
        by_wait = sorted(rows, key=lambda r: (r["wait_us"] / max(r["wait_us"] + r["work_us"], 1), r["rank"]))
        middle = len(by_wait) // 2
        chosen = {r["rank"] for r in (*by_wait[:12], *by_wait[middle - 4 : middle + 4], *by_wait[-8:])} | set(list(ranks)[:12])
        rows = [r for r in rows if r["rank"] in chosen]
    bars = [Bar(f"{r['node'] or ''} r{r['rank']}", r["work_us"] / 1e6, r["wait_us"] / 1e6, r["rank"] in ranks) for r in rows]
    return work_and_wait(bars)


def metrics(parts: Parts, document: Mapping[str, Any], axis: Axis) -> list[tuple[str, Markup]]:
    """Each scored metric: the suspects against the band of their peers."""
    by_metric: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in parts["metric"]:
        by_metric[row["metric"]].append(row)
    nodes, _ = suspects(document)
    pictures = []
    for name, rows in sorted(by_metric.items(), key=lambda item: (min(r.get("position") or 0 for r in item[1]), item[0]))[
        :MAX_METRICS
    ]:
        band = peer_band(rows, nodes)
        if band is None:
            continue
        seen = Axis(min(axis.start, band.times[0]), max(axis.end, band.times[-1], axis.start + timedelta(seconds=1)))
        pictures.append((name, metric_band(name, rows[0].get("unit") or "", band, seen, onset_of(document, axis))))
    return pictures


def stacks(parts: Parts, document: Mapping[str, Any]) -> list[tuple[str, Markup]]:
    """An icicle for each process type and snapshot; snapshots in which nothing moved share one."""
    _, ranks = suspects(document)
    by_title: dict[str, list[tuple[tuple[str, ...], frozenset[int], frozenset[int]]]] = defaultdict(list)
    for row in parts["trie"]:
        by_title[str(row["title"])].append((tuple(row["frames"]), frozenset(row["has"]), frozenset(row["missing"])))
    alike: dict[tuple[Any, ...], list[str]] = {}
    for title, paths in by_title.items():
        kind = title.split(", ")[0]
        alike.setdefault((kind, tuple(sorted((frames, tuple(sorted(has))) for frames, has, _ in paths))), []).append(title)
    found = []
    for titles in list(alike.values())[:MAX_ICICLES]:
        roots = squeeze(grow(by_title[titles[0]][:2000]))
        others = [title.split(", ", 1)[-1] for title in titles[1:]]
        name = titles[0] + (f" and unchanged in {', '.join(others)}" if others else "")
        if roots:
            found.append((name, icicle(f"Merged stacks: {name}", roots, frozenset(ranks))))
    return found
