"""The weights and the cause rules, read once from the YAML files beside this module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ml.fusion.types import Case, Cause, Symptom
from ml.log_diffs.topology import Finding

HERE = Path(__file__).parent
KEYS = frozenset(
    ("class", "confidence", "events", "codes", "symptoms", "kinds", "raised", "text", "metrics", "accuses", "about", "stack")
)
"""What a cause rule may name."""
UNMEASURED = frozenset({"machine_silent", "machine_frozen"})


@dataclass(frozen=True)
class Weight:
    """How far a kind of finding is trusted, and with which others it tells the same story."""

    reliability: float
    family: str
    is_direct: bool = False
    is_slow: bool = False


@dataclass(frozen=True)
class Weights:
    """All weights: by kind, by prefix of the kind, by source; and the families that may explain a slowdown."""

    kinds: Mapping[str, Weight]
    prefixes: Mapping[str, Weight]
    sources: Mapping[str, Weight]
    slow_families: frozenset[str]


@dataclass(frozen=True)
class Rule:
    """One rule of the cause file; empty conditions hold."""

    name: str
    confidence: float
    events: frozenset[str]
    codes: frozenset[int]
    symptoms: frozenset[str]
    kinds: frozenset[str]
    raised: re.Pattern[str] | None
    text: re.Pattern[str] | None
    metrics: re.Pattern[str] | None
    accuses: frozenset[str] = frozenset()
    about: re.Pattern[str] | None = None
    stack: re.Pattern[str] | None = None


@cache
def weights() -> Weights:
    """The weights of this package."""
    read: dict[str, Any] = yaml.safe_load((HERE / "weights.yaml").read_text())
    kinds, prefixes, sources = (
        {key: Weight(**values) for key, values in read[part].items()} for part in ("kinds", "prefixes", "sources")
    )
    return Weights(kinds, prefixes, sources, frozenset(read["slow_families"]))


def weight_of(finding: Finding) -> Weight:
    """The weight of a finding's kind, else of its kind's prefix, else of its source."""
    known = weights()
    if finding.kind in known.kinds:
        return known.kinds[finding.kind]
    for prefix, weight in known.prefixes.items():
        if finding.kind.startswith(prefix):
            return weight
    return known.sources.get(finding.source) or Weight(0.5, finding.source)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Rules of a YAML text; raises ValueError that names the rule when a key is unknown or a pattern does not compile."""
    found = []
    for number, raw in enumerate(yaml.safe_load(text)["rules"], 1):
        unknown = set(raw) - KEYS
        if unknown:
            raise ValueError(f"cause rule {number}: unknown {', '.join(sorted(unknown))}")
        found.append(
            Rule(
                raw["class"], float(raw.get("confidence", 0.5)), frozenset(raw.get("events", ())), frozenset(raw.get("codes", ())),
                frozenset(raw.get("symptoms", ())), frozenset(raw.get("kinds", ())), _pattern(raw, "raised", number, whole=True),
                _pattern(raw, "text", number), _pattern(raw, "metrics", number), frozenset(raw.get("accuses", ())),
                _pattern(raw, "about", number), _pattern(raw, "stack", number),
            )
        )  # fmt: skip
    return tuple(found)


def _pattern(raw: Mapping[str, Any], key: str, number: int, *, whole: bool = False) -> re.Pattern[str] | None:
    if key not in raw:
        return None
    try:
        return re.compile(f"(?:{raw[key]})\\Z" if whole else raw[key], re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"cause rule {number}: {key} is no pattern: {error}") from error


@cache
def cause_rules() -> tuple[Rule, ...]:
    """The rules of this package."""
    return parse_rules((HERE / "causes.yaml").read_text())


def cause_of(case: Case, symptom: Symptom, more: Iterable[Rule] = ()) -> Cause:
    """The class of the first rule that fits (`more` come first), or undetermined; without baselines it is less sure."""
    if symptom in (Symptom.NONE, Symptom.CANCELLED, Symptom.TIME_LIMIT):
        return Cause()
    origins = [f for f in case.findings if not f.is_echo]
    for rule in (*more, *cause_rules()):
        if _fits(rule, case, symptom, origins):
            sure = rule.confidence * (1.0 if case.baselines or case.has_library else 0.8)
            return Cause(rule.name, round(sure, 3))
    return Cause()


def _fits(rule: Rule, case: Case, symptom: Symptom, origins: list[Finding]) -> bool:
    raised, text = rule.raised, rule.text
    return (
        (not rule.symptoms or symptom in rule.symptoms)
        and (not rule.events or any(_is_event(f, rule) for f in origins))
        and (not rule.kinds or any(f.kind in rule.kinds for f in case.findings))
        and (raised is None or any(raised.match(kind) for kind in _raised(origins)))
        and (text is None or any(text.search(f.statement) for f in origins if f.source == "logs"))
        and (rule.metrics is None or any(_is_metric(f, rule) for f in origins))
        and (not rule.accuses or any(_is_accused(f, rule) for f in origins))
        and (rule.stack is None or any(f.source == "stacks" and f.score >= 0.5 and rule.stack.search(f.statement) for f in origins))
    )


def _is_accused(finding: Finding, rule: Rule) -> bool:
    """Whether a strong finding of one of the rule's kinds accuses a place, about what the rule says."""
    is_strong = finding.kind in rule.accuses and finding.accuses and finding.score >= 0.5
    return is_strong and (rule.about is None or bool(rule.about.search(finding.subject or "")))


def _is_event(finding: Finding, rule: Rule) -> bool:
    if finding.kind != "node_event" or finding.subject not in rule.events:
        return False
    return not rule.codes or any(re.search(rf"\b{code}\b", finding.statement) for code in rule.codes)


def _is_metric(finding: Finding, rule: Rule) -> bool:
    """Values tell of a cause; samples that are missing or frozen only tell that nobody measured."""
    is_told = finding.source == "metrics" and finding.score >= 0.5 and finding.kind not in UNMEASURED
    return is_told and rule.metrics is not None and bool(rule.metrics.search(finding.subject or ""))


def _raised(origins: list[Finding]) -> list[str]:
    """Classes of the exceptions in the statements of `rank_exception`, strongest and earliest first."""
    told = sorted((f for f in origins if f.kind == "rank_exception"), key=lambda f: (-f.score, f.at or 0.0))
    return [m.group(1) for f in told if (m := re.search(r"\braised (\w+)", f.statement))]
