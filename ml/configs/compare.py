"""Two configurations side by side: every differing key, what each difference means, and one score."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from ml.configs.classes import Follows, KeyClasses, Rule
from ml.configs.describe import SCALE_KEYS, Described, Item

BY_NAME_SCORE = 0.7
UNKNOWN_COST = 0.02
MAX_UNKNOWN_COST = 2.0
MAX_SCALE_COST = 3.0


class Kind(StrEnum):
    """What a difference is, worst first."""

    MUST = "must"
    SHOULD = "should"
    SCALE = "scale"
    EXPLAINED = "explained"
    FREE = "free"


_ORDER = list(Kind)


@dataclass(frozen=True)
class Difference:
    """One differing key with both texts as they were written; null where a side does not set it."""

    key: str
    name: str
    this: str | None
    baseline: str | None
    kind: Kind
    weight: float
    label: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The outcome: a score in [0, 1], differences in order of weight, and why the two are not comparable, if so."""

    score: float
    differences: tuple[Difference, ...]
    obstacles: tuple[str, ...]
    n_unknown: int = 0
    n_gpus: tuple[int, int] | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether the other job may stand as a baseline."""
        return not self.obstacles


def compare(this: Described, other: Described, classes: KeyClasses) -> Comparison:
    """Compare a job's configuration with a candidate's.

    The score is 1 - max(D / T, D / (D + H)): D is the summed weight of unexplained differences, each group's sum
    limited by its cap; T the summed weight of all settings that count; H the cost at which half of the score is gone
    (`half_cost`). So one difference weighs less among two hundred settings than among five, and many differences are
    never made good by many settings that agree. The formula is our own.
    """
    ratio = scale_ratio(this, other)
    differences: list[Difference] = []
    total, n_unknown = MAX_SCALE_COST, 0
    for name in sorted(this.items.keys() | other.items.keys()):
        mine, theirs = this.items.get(name), other.items.get(name)
        shown = mine or theirs
        assert shown is not None  # noqa: S101 - the name comes from one of the two
        total += shown.rule.weight if shown.rule.costs else 0.0
        if mine and theirs and mine.value == theirs.value:
            continue
        if (mine is None or theirs is None) and _is_unknown(name, *((this, other) if mine else (other, this))):
            n_unknown += 1
            continue
        differences.append(_difference(name, mine, theirs, ratio))
    cost = _cost(differences, ratio, classes) + min(n_unknown * UNKNOWN_COST, MAX_UNKNOWN_COST)
    score = 1 - max(cost / total, cost / (cost + classes.limit("half_cost"))) if cost else 1.0
    score = round(max(0.0, min(score, BY_NAME_SCORE if this.is_by_name else 1.0)), 4)
    ordered = tuple(sorted(differences, key=lambda d: (_ORDER.index(d.kind), -d.weight, d.name)))
    return Comparison(score, ordered, _obstacles(this, other, ordered, score, classes), n_unknown, _gpus(this, other))


def scale_ratio(this: Described, other: Described) -> float | None:
    """How many times larger this job is; None when both have the same size, or one's is unknown."""
    for name in (*SCALE_KEYS, "parallel.dp"):
        mine, theirs = this.items.get(name), other.items.get(name)
        if mine and theirs and mine.value != theirs.value:
            a, b = _number(mine.value), _number(theirs.value)
            if a and b:
                return a / b
    return None


def _is_unknown(name: str, holder: Described, lacking: Described) -> bool:
    """Whether the side that lacks a key may well have it, unseen.

    A job's own size may not have been recorded; a job that died early printed no argument block; of a new incident
    there may be nothing but the block.
    """
    if name in SCALE_KEYS:
        return True
    if not lacking.has_block:
        return name in holder.printed and name not in holder.declared
    return lacking.is_block_only and not holder.is_block_only and name in holder.declared


def _difference(name: str, mine: Item | None, theirs: Item | None, ratio: float | None) -> Difference:
    shown = mine or theirs
    assert shown is not None  # noqa: S101 - one of the two is given
    rule = shown.rule
    kind = Kind(rule.key_class)
    if kind == Kind.SHOULD and ratio is not None and _follows(rule, mine, theirs, ratio):
        kind = Kind.EXPLAINED
    return Difference(shown.key, name, mine.text if mine else None, theirs.text if theirs else None, kind, rule.weight, rule.label)


def _follows(rule: Rule, mine: Item | None, theirs: Item | None, ratio: float) -> bool:
    """Whether a difference follows from the other size: in proportion (or its root), inversely, or anyhow."""
    if rule.follows == Follows.ANY:
        return True
    a, b = _number(mine.value if mine else ""), _number(theirs.value if theirs else "")
    if rule.follows is None or not a or not b:
        return False
    expected = (ratio, math.sqrt(ratio)) if rule.follows == Follows.WITH else (1 / ratio,)
    return any(math.isclose(a / b, factor, rel_tol=0.02) for factor in expected)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _cost(differences: list[Difference], ratio: float | None, classes: KeyClasses) -> float:
    """Summed weight of unexplained differences by group, each limited by its cap, and of the other size."""
    by_group: dict[str, float] = defaultdict(float)
    for difference in differences:
        if difference.kind in (Kind.MUST, Kind.SHOULD):
            by_group[classes.rule(difference.name).group] += difference.weight
    cost = sum(min(by_group[group], classes.caps.get(group, math.inf)) for group in sorted(by_group))
    if any(difference.kind == Kind.SCALE for difference in differences):
        cost += min(abs(math.log2(ratio)), MAX_SCALE_COST) if ratio else 1.0
    return cost


def _obstacles(
    this: Described, other: Described, differences: tuple[Difference, ...], score: float, classes: KeyClasses
) -> tuple[str, ...]:
    """Every reason why the two are not comparable, in words."""
    found = []
    if not this.is_identified or not other.is_identified:
        found.append("its configuration does not name a model")
    wrong = [d for d in differences if d.kind == Kind.MUST]
    found += [f"{d.key} is {d.this or 'not set'}, there {d.baseline or 'not set'}" for d in wrong]
    is_scaled = any(d.kind == Kind.SCALE for d in differences)
    others = [d for d in differences if d.kind == Kind.SHOULD]
    if is_scaled and others and classes.limit("scale_alone"):
        found.append(f"its size differs, and {others[0].key} differs without following from that")
    if not found and score < classes.limit("minimum_score"):
        found.append(f"too much differs: {len(others)} settings, score {score:.2f}")
    return tuple(found)


def _gpus(this: Described, other: Described) -> tuple[int, int] | None:
    """Accelerators of both jobs, (this, baseline), where both are known."""
    mine, theirs = this.items.get("n_gpus"), other.items.get("n_gpus")
    if mine and theirs and mine.value.isdigit() and theirs.value.isdigit():
        return int(mine.value), int(theirs.value)
    return None
