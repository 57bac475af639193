"""The pages about the whole fleet: machines, failure families, the library of normal templates, data quality."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.reports.page import Page, build, table_lines
from jobs.reports.svg.charts import Interval, intervals
from jobs.reports.words import listed, markdown, number, percent

Rows = Sequence[Mapping[str, Any]]
MAX_ROWS = 500


def machines_page(jobs: Rows, nodes: Rows) -> Page:
    """Machines by the jobs whose candidates name them, and their record over the reliability window.

    `jobs`: job summaries. `nodes`: rows of reliability_nodes.
    """
    naming: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in jobs:
        for node in row["accused"]:
            naming[node].append(row)
    record = {row["node"]: row for row in nodes}
    rows: list[dict[str, Any]] = []
    for node in sorted(set(naming) | set(record)):
        seen: Mapping[str, Any] = record.get(node, {})
        named = sorted(naming[node], key=lambda r: (-(r["score"] or 0.0), r["job_id"]))
        rows.append(
            {
                "node": node,
                "n_named": len(named),
                "jobs": [{"job_id": r["job_id"], "page": r["page"]} for r in named[:8]],
                "symptoms": Counter(r["symptom"] for r in named).most_common(3),
                **{
                    k: seen.get(k)
                    for k in ("n_jobs", "n_failures", "exposure_days", "failures_per_day", "low", "high", "availability", "q_value")
                },
                "is_lemon": bool(seen.get("is_lemon")),
                "fired": list(seen.get("fired") or []),
            }
        )
    rows.sort(key=lambda r: (not r["is_lemon"], -r["n_named"], -(r["failures_per_day"] or 0.0), r["node"]))
    worst = [r for r in rows if r["failures_per_day"] and r["n_failures"]][:20]
    picture = None
    if worst:
        dots = [
            Interval(
                r["node"],
                r["failures_per_day"],
                r["low"],
                r["high"],
                f"{number(r['n_failures'])} in {number(r['exposure_days'])} d",
            )
            for r in worst
        ]
        picture = intervals("Failures per day of work, with 95 % intervals", "a day", dots)
    lemons = [r for r in rows if r["is_lemon"]]
    n_named = sum(r["n_named"] > 0 for r in rows)
    said = f"{number(len(rows))} machines; {number(n_named)} are named by at least one candidate; "
    said += f"{number(len(lemons))} stand out over the window after correction."
    head = ("machine", "named by", "jobs", "failures", "failures per day", "stands out")
    body = [
        (
            r["node"],
            r["n_named"],
            number(r["n_jobs"]),
            number(r["n_failures"]),
            number(r["failures_per_day"]),
            "yes" if r["is_lemon"] else "no",
        )
        for r in rows
    ]
    values = {"rows": rows[:MAX_ROWS], "n_rows": len(rows), "picture": picture, "headline": said}
    return build(
        "machines",
        "machines.html.j2",
        values,
        {"headline": said, "machines": rows},
        ["# Machines", "", markdown(said, 900), "", *table_lines(head, body)],
    )


def families_page(families: Rows, jobs: Rows, family_of: Mapping[str, str]) -> Page:
    """Failures that look alike, largest families first. `families`: family_id, label, n_jobs and what else there is."""
    by_id = {row["job_id"]: row for row in jobs}
    members: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for job, family_id in family_of.items():
        if job in by_id:
            members[family_id].append(by_id[job])
    rows: list[dict[str, Any]] = []
    for family in families:
        own = sorted(members[family["family_id"]], key=lambda r: (str(r["ended_at"] or ""), r["job_id"]), reverse=True)
        rows.append(
            {
                **family,
                "jobs": [{"job_id": r["job_id"], "page": r["page"], "headline": r["headline"]} for r in own[:12]],
                "n_shown": len(own[:12]),
                "gpu_hours": sum(float(r["gpu_hours"] or 0.0) for r in own),
                "n_jobs": family.get("n_jobs") or len(own),
                "symptoms": Counter(r["symptom"] for r in own).most_common(3),
                "machines": Counter(n for r in own for n in r["accused"]).most_common(5),
                "last_at": own[0]["ended_at"] if own else family.get("last_at"),
                "first_at": own[-1]["ended_at"] if own else family.get("first_at"),
            }
        )
    rows.sort(key=lambda r: (-int(r["n_jobs"]), -r["gpu_hours"], str(r["family_id"])))
    said = f"{number(len(rows))} failure families hold {number(sum(int(r['n_jobs']) for r in rows))} jobs."
    text = ["# Failure families", "", said, ""]
    for r in rows:
        text += [
            f"## {markdown(r['label'])}",
            "",
            f"{number(r['n_jobs'])} jobs, {number(r['gpu_hours'])} GPU-hours",
            "",
            *(f"- {markdown(j['job_id'])}: {markdown(j['headline'])}" for j in r["jobs"]),
            "",
        ]
    return build(
        "families", "families.html.j2", {"rows": rows[:MAX_ROWS], "headline": said}, {"headline": said, "families": rows}, text
    )


def library_page(figures: Mapping[str, Any], growth: Rows, newest: Rows) -> Page:
    """The library of normal templates: how large, how it grew, what came last.

    `growth`: rows of {at (date), n_templates (library's size after it)}. `newest`: rows of {template, n_jobs, first_at}.
    """
    from jobs.reports.svg.growth import growth_picture

    picture = growth_picture(growth) if len(growth) > 1 else None
    n_normal, n_jobs, n_templates, n_alert = (number(figures.get(k)) for k in ("n_normal", "n_jobs", "n_templates", "n_alert"))
    said = f"{n_normal} templates are normal, learned from {n_jobs} successful jobs; "
    said += f"{n_templates} templates are known in all, {n_alert} of them high-risk by rule and never normal."
    body = [(r.get("template"), number(r.get("n_jobs")), str(r.get("first_at") or "–")) for r in newest]
    text = ["# The library", "", markdown(said, 900), "", *table_lines(("template", "jobs", "first seen"), body)]
    data = {"headline": said, "figures": figures, "growth": growth, "newest": newest}
    return build(
        "library", "library.html.j2", {"headline": said, "picture": picture, "newest": newest, "figures": figures}, data, text
    )


def quality_page(expectations: Rows, files: Rows, quarantine: Rows, coverage: Mapping[str, float]) -> Page:
    """What was read, kept and refused, and which expectations hold.

    `files`: rows of {adapter, state, n_files, n_read, n_kept, n_quarantined, n_understood, size_bytes}.
    `quarantine`: rows of {reason, n, n_jobs, detail}.
    """
    broken = sorted((r for r in expectations if not r["is_success"]), key=lambda r: (r["severity"], r["suite"], r["expectation"]))
    n_read, n_kept, n_bad = (sum(int(r[k] or 0) for r in files) for k in ("n_read", "n_kept", "n_quarantined"))
    understood = sum(int(r["n_understood"] or 0) for r in files)
    adds_up = n_read == n_kept + n_bad
    said = f"{number(n_read)} records read = {number(n_kept)} kept + {number(n_bad)} in quarantine" + (
        "" if adds_up else ": this does not add up"
    )
    said += f". {percent(understood / n_kept) if n_kept else '–'} of what was kept was understood beyond plain text. "
    said += f"{number(len(broken))} of {number(len(expectations))} expectations are broken."
    ordered = sorted(files, key=lambda r: (-int(r["n_files"]), str(r["adapter"]), str(r["state"])))
    reasons = sorted(quarantine, key=lambda r: (-int(r["n"]), str(r["reason"])))
    suites = Counter(r["suite"] for r in expectations)
    values = {
        "headline": said,
        "broken": broken[:MAX_ROWS],
        "files": ordered[:MAX_ROWS],
        "quarantine": reasons,
        "coverage": sorted(coverage.items()),
        "suites": sorted(suites.items()),
    }
    data = {
        "headline": said,
        "adds_up": adds_up,
        "broken": broken,
        "files": ordered,
        "quarantine": reasons,
        "coverage": dict(coverage),
    }
    text = ["# Data quality", "", markdown(said, 900), ""]
    text += table_lines(("reason", "records", "jobs"), [(r["reason"], number(r["n"]), number(r.get("n_jobs"))) for r in reasons])
    text += table_lines(
        ("table", "expectation", "severity", "rows that break it"),
        [(r["suite"], r["expectation"], r["severity"], number(r["n_unexpected"])) for r in broken],
    )
    text += [f"Tables checked: {markdown(listed([s for s, _ in sorted(suites.items())], 40), 2000)}"]
    return build("quality", "quality.html.j2", values, data, text)
