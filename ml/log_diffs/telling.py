"""Templates that tell most of a failure: every alert, what is new, what changed its rate; best first."""

from __future__ import annotations

import pandas as pd

from ml.log_diffs.evidence import Evidence, TemplateFinding
from ml.log_diffs.messages import Voice
from ml.log_diffs.topology import Finding, exact_groups, is_nearly_all
from ml.log_diffs.utterances import Utterance

MAX_TEMPLATES = 60
EXAMPLE_CHARS = 1_000


def template_findings(evidence: Evidence) -> list[TemplateFinding]:
    """Templates that matter: every alert, what is new, what changed its rate, what never came; best first."""
    by_template: dict[str, list[Utterance]] = {}
    for said in evidence.utterances:
        by_template.setdefault(said.template_id, []).append(said)
    diff = {str(row["template_id"]): row for _, row in evidence.diff.iterrows()}
    peers = [p.rank for p in evidence.job.places]
    found = []
    for template_id, group in by_template.items():
        row = diff.get(template_id)
        change = str(row["change"]) if row is not None else "same"
        first = min(group, key=lambda u: (u.first_at or 0.0, u.rank if u.rank is not None else -1))
        if (
            first.alert is None
            and (first.is_normal or change == "same")
            and not (evidence.n_baselines == 0 and not first.is_normal)
        ):
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
        "logs",
        "cross_job",
        kind,
        statement,
        round(score, 4),
        nodes,
        ranks,
        (),
        exact[0][0] if exact else None,
        told.voice in (Voice.CASCADE, Voice.WAITING, Voice.TEARDOWN),
        is_global,
        told.onset_at or first_at,
        told.iteration,
        told.phase,
        template_id,
        tuple(u.ref[0] for u in group[:4] if u.ref),
    )
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
