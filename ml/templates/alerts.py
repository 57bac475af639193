"""Alert rules: which kind of trouble a message tells of, whatever program worded it.

    >>> alert_of("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB")
    'oom'
    >>> alert_of("iteration 5/ 140 | lm loss: 5.86 | grad norm: 0.4") is None
    True

The rules are data (`alerts.yaml`); a site puts its own before them. They are RE2 expressions run by Arrow over
whole columns: linear time on hostile lines, whoever wrote the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from ml.templates.masking import arrow_numbers, arrow_texts

MAX_CHARACTERS = 8_000


@dataclass(frozen=True)
class AlertRule:
    """One kind of alert: `pattern` is searched in the text from which `cut` was removed."""

    alert: str
    pattern: str
    cut: str | None = None
    examples: tuple[str, ...] = ()
    calm: tuple[str, ...] = ()


def parse_rules(text: str) -> tuple[AlertRule, ...]:
    """Rules from YAML; raises ValueError that names the rule when one is not usable."""
    rules = []
    for number, entry in enumerate(yaml.safe_load(text) or [], 1):
        try:
            rules.append(_rule(entry))
        except (KeyError, TypeError, AttributeError, pa.ArrowInvalid) as error:
            raise ValueError(f"alert rule {number}: {error}") from error
    return tuple(rules)


def _rule(entry: dict[str, Any]) -> AlertRule:
    joined = {key: "(?i)" + "|".join(f"(?:{each})" for each in entry.get(key, ())) for key in ("any", "except")}
    rule = AlertRule(
        str(entry["alert"]), joined["any"], joined["except"] if entry.get("except") else None,
        tuple(entry.get("examples", ())), tuple(entry.get("calm", ())),
    )  # fmt: skip
    if not entry.get("any"):
        raise KeyError("any")
    pc.match_substring_regex(arrow_texts(["probe"]), rule.pattern)
    if rule.cut:
        pc.replace_substring_regex(arrow_texts(["probe"]), rule.cut, " ")
    return rule


@cache
def default_rules() -> tuple[AlertRule, ...]:
    """The rules that come with the package."""
    return parse_rules(resources.files("ml.templates").joinpath("alerts.yaml").read_text())


def alerts_of(texts: Sequence[str] | pa.Array | pa.ChunkedArray, rules: tuple[AlertRule, ...] | None = None) -> list[str | None]:
    """The alert of each text (a template, a masked or a raw message), None for none; the first rule that fits wins."""
    array = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else arrow_texts(texts)
    lines = pc.utf8_slice_codeunits(array, 0, MAX_CHARACTERS)
    found = np.full(len(lines), None, dtype=object)
    open_rows = np.arange(len(lines))
    for rule in rules if rules is not None else default_rules():
        if not len(open_rows):
            break
        searched = lines.take(arrow_numbers(open_rows))
        if rule.cut:
            searched = pc.replace_substring_regex(searched, rule.cut, " ")
        hit = np.zeros(len(open_rows), bool)
        hit[pc.indices_nonzero(pc.match_substring_regex(searched, rule.pattern)).to_pylist()] = True
        found[open_rows[hit]] = rule.alert
        open_rows = open_rows[~hit]
    return list(found)


@lru_cache(maxsize=4096)
def _one(text: str) -> str | None:
    return alerts_of([text])[0]


def alert_of(text: str) -> str | None:
    """The alert of one text by the rules of the package."""
    return _one(text) if len(text) < 1_000 else alerts_of([text])[0]
