"""One job's logs on all three axes: the rows of `log_findings`, `node_findings` and `onsets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from ml.log_diffs import course, origins, progress
from ml.log_diffs.messages import Voice
from ml.log_diffs.origins import Utterance, words_of
from ml.log_diffs.spatial import Outlier, compare_peers
from ml.log_diffs.topology import Finding, Job, exact_groups, is_nearly_all, where

MAX_TEMPLATES = 60
EXAMPLE_CHARS = 1_000


@dataclass(frozen=True)
class TemplateFinding:
    """A finding about one template of one job, with what the contract shows of it."""

    finding: Finding
    template_id: str
    template: str
    alert: str | None
    n_events: int
    first_at: float | None
    rate: float | None
    baseline_rate: float | None
    q_value: float | None
    in_baselines: bool
    in_library: bool
    example: str


@dataclass(frozen=True)
class NodeFinding:
    """A finding of the spatial axis with its numbers."""

    finding: Finding
    distance: float | None = None
    forest_score: float | None = None
    separating: tuple[str, ...] = ()
    n_peers: int = 0


@dataclass(frozen=True)
class Count:
    """One template on one node in one role, with the ranks that printed it."""

    template_id: str
    node: str | None
    role: str | None
    n_events: int
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """All that the diff of one job needs. Times in seconds since 1970, clocks corrected.

    `diff` holds the verdicts across jobs (`cross_job.DIFF_COLUMNS`) and is empty without baselines. `steps` are operations
    summed by rank, step and name (`progress.STEP_COLUMNS`); `iterations` the printed progress lines.
    """

    job: Job
    utterances: tuple[Utterance, ...] = ()
    counts: tuple[Count, ...] = ()
    diff: pd.DataFrame = field(default_factory=pd.DataFrame)
    n_baselines: int = 0
    has_library: bool = True
    phases: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    phase_findings: tuple[Finding, ...] = ()
    iterations: pd.DataFrame = field(default_factory=pd.DataFrame)
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    last_at: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobDiff:
    """Findings of one job, by table."""

    templates: tuple[TemplateFinding, ...]
    logs: tuple[Finding, ...]
    nodes: tuple[NodeFinding, ...]
    onsets: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, each with its table."""
        return (*(t.finding for t in self.templates), *self.logs, *(n.finding for n in self.nodes), *self.onsets)


def diff_job(evidence: Evidence) -> JobDiff:
    """All findings of one job. A completed job has no origin to look for: only its course and its templates are compared."""
    job = evidence.job
    is_failed = job.state != "COMPLETED"
    said = origins.all_findings(job, evidence.utterances, dict(evidence.last_at)) if is_failed else []
    nodes = node_findings(evidence)
    onsets = onset_findings(evidence, said)
    templates = template_findings(evidence)
    return JobDiff(tuple(templates), tuple([*said, *evidence.phase_findings]), tuple(nodes), tuple(onsets))


def onset_findings(evidence: Evidence, said: Sequence[Finding]) -> list[Finding]:
    """The temporal axis: course, progress, silence, and the onset chosen from them."""
    job, steps, iterations = evidence.job, evidence.steps, evidence.iterations
    is_failed = job.state != "COMPLETED"
    times = progress.step_times(steps) if not steps.empty else course.iteration_times(iterations) if not iterations.empty else pd.DataFrame()
    found = course.slowdown_findings(times)
    if not iterations.empty:
        found += course.non_finite_findings(iterations) + course.loss_jump_findings(iterations)
    progress_at, step = course.last_progress(iterations, steps)
    failed_at = words_of(job, evidence.utterances).first_failure_at if is_failed else None
    if is_failed:
        left_out = progress.left_out_findings(job, steps)
        behind = progress.behind_findings(job, steps)
        found += left_out + [replace(f, is_echo=True) if left_out else f for f in behind]
        found += course.silence_findings(job, progress_at, failed_at, _usual_pace(times, iterations), step)
    if step is not None and _has_stepped(steps, iterations):
        found.append(
            Finding("logs", "temporal", "progressed", f"the job made steps up to {step}", 0.0, at=progress_at, iteration=step, phase="train",
                    subject="progress", table="onsets")
        )  # fmt: skip
    onset = course.choose_onset([*said, *found], progress_at, step, failed_at) if is_failed or found else None
    if onset is not None and (is_failed or onset.method in course.DEPARTURES):
        found.append(
            Finding("logs", "temporal", "onset", onset.statement, 0.0, at=onset.started_at, iteration=onset.iteration, phase=onset.phase,
                    subject=onset.method, table="onsets")
        )  # fmt: skip
    return [replace(f, table="onsets") for f in found]


def _has_stepped(steps: pd.DataFrame, iterations: pd.DataFrame) -> bool:
    """Whether a whole step was made: a progress line was printed, or some rank went on to a second step."""
    return not iterations.empty or (not steps.empty and steps["step"].nunique() > 1)


def _usual_pace(times: pd.DataFrame, iterations: pd.DataFrame) -> float | None:
    """Seconds between signs of life: the step time, or the time between printed lines where that is longer."""
    pace = [float(times["step_time_s"].median())] if not times.empty else []
    if not iterations.empty and iterations["iteration"].nunique() > 2:
        printed = iterations.groupby("iteration", sort=True)["occurred_at"].median().diff().median()
        if times.empty and np.isfinite(printed):
            pace.append(float(printed))
    return max(pace) if pace else None


def node_findings(evidence: Evidence) -> list[NodeFinding]:
    """The spatial axis: in each role, nodes (and ranks) whose news and alerts set them apart, and who lacks what all others have."""
    if not evidence.counts:
        return []
    told = _news(evidence)
    found: list[NodeFinding] = []
    for role in sorted({c.role or "trainer" for c in evidence.counts}):
        rows = [c for c in evidence.counts if (c.role or "trainer") == role]
        found += _compare(evidence, rows, told, "node")
        found += _compare(evidence, rows, told, "rank")
    return found


def _news(evidence: Evidence) -> set[str]:
    """Templates that may accuse: news to the fleet or alerts, that speak of the writer itself."""
    speaks = {u.template_id: u for u in evidence.utterances}
    known = set(evidence.diff.loc[evidence.diff["change"] == "same", "template_id"]) if len(evidence.diff) else set()
    return {
        t for t, u in speaks.items()
        if not u.is_normal and (u.alert or t not in known) and u.voice in (Voice.ORIGIN, Voice.PLAIN) and not u.exits
    }  # fmt: skip


def _compare(evidence: Evidence, rows: Sequence[Count], told: set[str], scope: str) -> list[NodeFinding]:
    job = evidence.job
    table: dict[tuple[object, str], float] = {}
    for count in rows:
        if scope == "node":
            keys: list[object] = [count.node] if count.node else []
        else:
            keys = list(count.ranks)
        for key in keys:
            table[key, count.template_id] = table.get((key, count.template_id), 0.0) + count.n_events / max(1, len(keys))
    peers = _peers(job, rows, scope)
    ids = sorted({t for _, t in table})
    if len(peers) < 3 or not ids:
        return []
    counts = np.array([[table.get((p, t), 0.0) for t in ids] for p in peers])
    spoken = _spokesmen(job, rows)
    may = [t in told and t not in spoken for t in ids]
    compared = compare_peers(counts, may)
    texts = {u.template_id: u for u in evidence.utterances}
    return [_outlier(job, peers, ids, texts, o, scope) for o in compared.outliers]


def _peers(job: Job, rows: Sequence[Count], scope: str) -> list[object]:
    seen: set[object] = {c.node for c in rows if c.node} if scope == "node" else {r for c in rows for r in c.ranks}
    known: list[object] = list(job.nodes) if scope == "node" else [p.rank for p in job.places]
    role_wide = [k for k in known if k in seen]
    return role_wide or sorted(seen, key=str)


def _spokesmen(job: Job, rows: Sequence[Count]) -> set[str]:
    """Templates that only the first or only the last rank prints: these ranks speak for all, by design. What they raise is judged by `origins`."""
    ranks = [p.rank for p in job.places] or [r for c in rows for r in c.ranks]
    if not ranks:
        return set()
    by_template: dict[str, set[int]] = {}
    for count in rows:
        by_template.setdefault(count.template_id, set()).update(count.ranks)
    return {t for t, said in by_template.items() if said in ({min(ranks)}, {max(ranks)}, {min(ranks), max(ranks)})}


def _outlier(job: Job, peers: Sequence[object], ids: Sequence[str], texts: Mapping[str, Utterance], outlier: Outlier, scope: str) -> NodeFinding:
    peer = peers[outlier.index]
    nodes = (str(peer),) if scope == "node" else job.nodes_under((int(str(peer)),))
    ranks = () if scope == "node" else (int(str(peer)),)
    separating = tuple(ids[c] for c in outlier.separating)
    first = texts.get(separating[0]) if separating else None
    words = f": {first.message.strip().splitlines()[0][:120]}" if first and first.message.strip() else ""
    statement = f"{where(job, ranks, nodes)} logs unlike its {len(peers) - 1} peers (distance {outlier.distance:.1f}){words}"
    finding = Finding(
        "logs", "spatial", f"{scope}_outlier", statement, round(outlier.score, 4), nodes, ranks, at=first.first_at if first else None,
        iteration=first.iteration if first else None, subject=separating[0] if separating else None, refs=first.ref if first else (),
        table="node_findings",
    )  # fmt: skip
    return NodeFinding(finding, outlier.distance, outlier.forest_score, separating, len(peers))


def template_findings(evidence: Evidence) -> list[TemplateFinding]:
    """Templates that matter: every alert, what is new, what changed its rate, what never came; best first."""
    by_template: dict[str, list[Utterance]] = {}
    for said in evidence.utterances:
        by_template.setdefault(said.template_id, []).append(said)
    diff = evidence.diff.set_index("template_id") if len(evidence.diff) else pd.DataFrame()
    peers = [p.rank for p in evidence.job.places]
    found = []
    for template_id, group in by_template.items():
        row = diff.loc[template_id] if template_id in diff.index else None
        change = str(row["change"]) if row is not None else "same"
        first = min(group, key=lambda u: (u.first_at or 0.0, u.rank if u.rank is not None else -1))
        if first.alert is None and (first.is_normal or change == "same") and not (evidence.n_baselines == 0 and not first.is_normal):
            continue
        found.append(_template(evidence, template_id, group, row, change, peers))
    found.sort(key=lambda t: (-t.finding.score, t.first_at or 0.0, t.template_id))
    return found[:MAX_TEMPLATES]


def _template(
    evidence: Evidence, template_id: str, group: list[Utterance], row: pd.Series | None, change: str, peers: list[int]
) -> TemplateFinding:
    told = _speaker(group)
    ranks = tuple(sorted({u.rank for u in group if u.rank is not None}))
    nodes = evidence.job.nodes_under(ranks) or tuple(sorted({u.node for u in group if u.node}))
    n_events = sum(u.n_events for u in group)
    in_baselines = row is not None and int(row["n_baselines_with"]) > 0
    score = template_score(told, change, in_baselines, evidence.job.state == "COMPLETED")
    is_global = len(peers) > 1 and is_nearly_all(len(ranks), len(peers))
    kind = f"alert_{told.alert}" if told.alert else f"template_{change if change != 'same' else 'new'}"
    exact = exact_groups(evidence.job.places, ranks)
    first_at = min((u.first_at for u in group if u.first_at is not None), default=None)
    statement = f"{_of_change(change, row)}: {told.message.strip().splitlines()[0][:160] if told.message.strip() else template_id}"
    finding = Finding(
        "logs", "cross_job", kind, statement, round(score, 4), nodes, ranks, (), exact[0][0] if exact else None,
        told.voice in (Voice.CASCADE, Voice.WAITING, Voice.TEARDOWN), is_global, told.onset_at or first_at, told.iteration, told.phase, template_id,
        tuple(u.ref[0] for u in group[:4] if u.ref),
    )  # fmt: skip
    return TemplateFinding(
        finding, template_id, told.template or told.message[:500], told.alert, n_events, first_at,
        None if row is None else float(row["rate"]), None if row is None else float(row["median_rate"]),
        None if row is None else float(row["q_value"]), in_baselines, told.is_normal, example_of(told),
    )  # fmt: skip


def _speaker(group: list[Utterance]) -> Utterance:
    """The utterance that shows a template best: one that reports a signal, else the first."""
    ordered = sorted(group, key=lambda u: (u.first_at or 0.0, u.rank if u.rank is not None else -1))
    return next((u for u in ordered if any(e.is_signal for e in u.exits)), ordered[0])


def _of_change(change: str, row: pd.Series | None) -> str:
    if change == "new" and row is not None:
        return f"new: none of {int(row['n_baselines'])} baselines prints it"
    if change in ("more", "fewer") and row is not None:
        return f"{change} often: {float(row['rate']):.3g} a rank-hour, {float(row['median_rate']):.3g} in the baselines"
    return "an alert" if row is not None else "not compared: no baseline"


VOICE_SCORES = {Voice.ORIGIN: 0.7, Voice.WAITING: 0.6, Voice.CASCADE: 0.5, Voice.TEARDOWN: 0.3, Voice.PLAIN: 0.25}


def template_score(said: Utterance, change: str, in_baselines: bool, is_completed: bool) -> float:
    """How much a template tells of the failure: whom it speaks of, whether it is an alert, new, and not normal."""
    score = VOICE_SCORES[said.voice]
    if any(e.is_signal for e in said.exits):
        score = 0.85
    elif said.exits:
        score = 0.35
    elif said.voice is Voice.ORIGIN and said.raised:
        score = 0.9
    elif said.alert and said.alert in ("oom", "xid", "non_finite", "hardware", "storage"):
        score += 0.15
    if said.is_normal or in_baselines:
        score *= 0.25 if change == "same" else 0.6
    return score * (0.5 if is_completed else 1.0)


def example_of(said: Utterance) -> str:
    """The message, or the part of a long one that tells how a process ended or what was raised."""
    text = said.message
    if len(text) <= EXAMPLE_CHARS:
        return text
    worst = next((e for e in said.exits if e.is_signal), None)
    marks = [f"exitcode  : {worst.code}"] if worst else [f"{said.raised.kind}: {said.raised.text[:40]}"] if said.raised else []
    for mark in marks:
        place = text.find(mark)
        if place >= 0:
            start = max(0, place - EXAMPLE_CHARS // 2)
            return text[start : start + EXAMPLE_CHARS]
    return text[: EXAMPLE_CHARS // 2] + "\n…\n" + text[-EXAMPLE_CHARS // 2 :]
