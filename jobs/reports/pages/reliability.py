"""The reliability page: every figure with its interval, its exposure and its source rows, by subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.reports.page import Page, build, table_lines
from jobs.reports.svg.charts import Interval, intervals
from jobs.reports.words import markdown, number, sentence_case

Rows = Sequence[Mapping[str, Any]]

SECTIONS = (
    (
        "How often jobs fail",
        "Failures over exposure, with exact Poisson intervals. Runs that were cancelled, pre-empted or timed out count as exposure,"
        " never as failures. Measured and projected times to failure are two figures: projections assume that every node fails "
        "at the fleet's rate.",
        ("failures_per_node_day", "infrastructure_failures_per_node_day", "mttf_h"),
    ),
    (
        "What failures cost",
        "Lost work: half an hour of every accelerator a failure, or the run's length when it was shorter.",
        (
            "lost_goodput_gpu_h",
            "straggler_waste_share",
            "straggler_waste_gpu_h",
            "straggling_jobs_share",
            "state_share_by_count",
            "state_share_by_gpu_time",
            "category_share_by_count",
            "category_share_by_gpu_time",
            "cause_share_by_count",
            "cause_share_by_gpu_time",
        ),
    ),
    (
        "How much of the time was productive",
        "Effective training time ratio: productive over wall-clock time, measured by task and expected from the failure rate.",
        ("ettr", "optimal_checkpoint_interval_min"),
    ),
    (
        "Machines",
        "Fault intervals with overlaps merged, time to repair, recurrence.",
        (
            "failures_per_day_of_work",
            "availability",
            "down_node_days",
            "fault_intervals",
            "faults_per_1000_node_days",
            "repair_median_days",
            "repair_mean_days",
            "repair_p90_days",
            "recurrence_share_top_5_percent",
            "recurrence_share_3_or_more",
            "lemon_nodes",
        ),
    ),
    (
        "Trend and change",
        "Failure rates by week and by version of the code, compared by exact tests.",
        ("failures_per_node_day_week", "failure_rate_factor_per_week", "failure_rate_ratio"),
    ),
)


def reliability_page(figures: Rows, nodes: Rows) -> Page:
    """The page. `figures`: rows of reliability_figures; `nodes`: rows of reliability_nodes."""
    known = {name for _, _, names in SECTIONS for name in names}
    extra = tuple(sorted({str(r["figure"]) for r in figures} - known))
    figures = sorted(figures, key=_by_size)
    sections = []
    for title, note, names in (*SECTIONS, ("Other figures", "", extra)):
        rows = [
            dict(r, words=figure_words(str(r["figure"])), scope=scope_words(r)) for n in names for r in figures if r["figure"] == n
        ]
        if rows:
            sections.append(
                {
                    "title": title,
                    "note": note,
                    "rows": rows,
                    "methods": list(dict.fromkeys(r["method"] for r in rows)),
                    "picture": _picture(title, rows),
                }
            )
    lemons = [n for n in nodes if n.get("is_lemon")]
    said = headline(figures)
    text = ["# Reliability", "", markdown(said, 900), ""]
    for s in sections:
        body = [
            (
                r["words"],
                r["scope"],
                r["basis"],
                f"{number(r['value'])} {r['unit']}",
                _interval(r),
                number(r["n_events"]),
                f"{number(r['exposure'])} {r['exposure_unit'] or ''}",
            )
            for r in s["rows"]
        ]
        text += [
            f"## {s['title']}",
            "",
            *table_lines(("figure", "of", "basis", "value", "95 % interval", "events", "exposure"), body),
        ]
    values = {"sections": sections, "nodes": lemons, "headline": said}
    return build("reliability", "reliability.html.j2", values, {"headline": said, "figures": figures, "nodes": nodes}, text)


def headline(figures: Rows) -> str:
    """The fleet's rate in a sentence, with its interval."""
    fleet = next((r for r in figures if r["figure"] == "failures_per_node_day" and r["scope_kind"] == "fleet"), None)
    if fleet is None or fleet["value"] is None:
        return "There is not enough exposure yet to say how reliable the fleet is."
    said = f"{number(fleet['value'])} failures per node-day (95 % interval {_interval(fleet)}): "
    said += f"{number(fleet['n_events'])} failures in {number(fleet['exposure'])} node-days."
    return said + (" These are small numbers: read the interval." if fleet["is_small"] else "")


def figure_words(name: str) -> str:
    """A figure's name for people: `mttf_h` as `MTTF`, units left to the unit column."""
    words = {
        "mttf_h": "MTTF",
        "ettr": "ETTR",
        "availability": "Availability",
        "optimal_checkpoint_interval_min": "Optimal checkpoint interval",
    }
    return words.get(name) or sentence_case(name.removesuffix("_gpu_h").removesuffix("_days").removesuffix("_share"))


def scope_words(row: Mapping[str, Any]) -> str:
    """What a figure is of: `the fleet`, `1,024 GPUs`, `cause class network`."""
    kind, scope = str(row["scope_kind"]), str(row["scope"])
    if kind == "fleet":
        return "the fleet"
    if kind == "n_gpus":
        return f"{number(float(scope))} GPUs" if scope.isdigit() else f"{scope} GPUs"
    return f"{kind.replace('_', ' ')} {scope.replace('_', ' ')}"


def _by_size(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Figures by name, those of job sizes by the size."""
    scope = str(row["scope"])
    return str(row["figure"]), str(row["scope_kind"]), scope.zfill(12) if scope.isdigit() else scope, str(row["basis"])


def _interval(row: Mapping[str, Any]) -> str:
    if row["low"] is None and row["high"] is None:
        return "–"
    return f"{number(row['low'])} to {number(row['high']) if row['high'] is not None else '∞'}"


def _picture(title: str, rows: Rows) -> Any:
    first = rows[0]["figure"] if rows else ""
    wanted = {"How often jobs fail": "mttf_h", "Trend and change": "failures_per_node_day_week"}.get(title, first)
    shown = [r for r in rows if r["figure"] == wanted and r["value"] is not None and r["low"] is not None][:20]
    if len(shown) < 2:
        return None
    return intervals(
        figure_words(str(wanted)),
        str(shown[0]["unit"]),
        [Interval(r["scope"], r["value"], r["low"], r["high"], r["basis"]) for r in shown],
    )
