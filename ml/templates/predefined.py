"""Predefined templates: fixed ids for what matters or is noisy, whatever its wording; and whose code speaks.

    >>> predefined_of(["NVRM: Xid (<*>): 79, GPU has fallen off the bus."])[0].template_id
    'nvidia.xid.79'

Data in `predefined.yaml`; a site's own come before. RE2 by Arrow over whole columns: linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from ml.templates.alerts import MAX_CHARACTERS, AlertRule, default_rules, parse_rules
from ml.templates.masking import arrow_texts

INHERIT = "inherit"


@dataclass(frozen=True)
class Predefined:
    """One entry; `{class}` in `template_id` and `template` stands for the pattern's group `class`.

    Without an `alert` it claims only messages that raise none; with `inherit` it takes the message's own.
    """

    template_id: str
    template: str
    pattern: str
    provenance: str
    alert: str | None = None
    needs: str | None = None
    examples: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A message's predefined template."""

    template_id: str
    template: str
    alert: str | None
    provenance: str


@dataclass(frozen=True)
class Rules:
    """All rules of a site: predefined templates, provenance patterns, alert rules; earlier ones win."""

    predefined: tuple[Predefined, ...]
    provenance: tuple[tuple[str, str], ...]
    alerts: tuple[AlertRule, ...]


def parse(text: str) -> Rules:
    """Rules from YAML with any of `predefined`, `provenance`, `alerts`; raises ValueError that names the bad entry."""
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"template rules: no YAML of plain data: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ValueError("template rules: not a mapping with `predefined`, `provenance` and `alerts`")
    for part in ("predefined", "provenance", "alerts"):
        if not isinstance(content.get(part) or [], list):
            raise ValueError(f"template rules: `{part}` is not a list")
    entries, provenance = [], []
    for number, entry in enumerate(content.get("predefined") or (), 1):
        try:
            entries.append(_entry(entry))
        except (KeyError, TypeError, AttributeError, pa.ArrowInvalid) as error:
            raise ValueError(f"predefined template {number}: {error}") from error
    for number, entry in enumerate(content.get("provenance") or (), 1):
        try:
            pc.match_substring_regex(arrow_texts(["probe"]), entry["pattern"])
            provenance.append((str(entry["provenance"]), str(entry["pattern"])))
        except (KeyError, TypeError, AttributeError, pa.ArrowInvalid) as error:
            raise ValueError(f"provenance rule {number}: {error}") from error
    return Rules(tuple(entries), tuple(provenance), parse_rules(yaml.safe_dump(content.get("alerts") or [])))


def _entry(entry: dict[str, Any]) -> Predefined:
    pc.match_substring_regex(arrow_texts(["probe"]), entry["pattern"])
    return Predefined(
        str(entry["id"]), str(entry["template"]), entry["pattern"], str(entry.get("provenance", "user")), entry.get("alert"),
        entry.get("needs"), tuple(entry.get("examples", ())), tuple(entry.get("others", ())),
    )  # fmt: skip


@cache
def default() -> Rules:
    """The rules that come with the package."""
    own = parse(resources.files("ml.templates").joinpath("predefined.yaml").read_text())
    return Rules(own.predefined, own.provenance, default_rules())


@cache
def rules_of(site: str | None = None) -> Rules:
    """The package's rules, with those of a site (YAML text) before them."""
    if not site:
        return default()
    own = parse(site)
    base = default()
    return Rules(own.predefined + base.predefined, own.provenance + base.provenance, own.alerts + base.alerts)


def predefined_of(masked: Sequence[str], rules: Rules | None = None) -> list[Found | None]:
    """The predefined template of each masked message, None for none; the first entry that fits wins."""
    texts = pc.utf8_slice_codeunits(arrow_texts(masked), 0, MAX_CHARACTERS)
    found: list[Found | None] = [None] * len(texts)
    for entry in (rules or default()).predefined:
        hit = pc.match_substring_regex(texts, entry.pattern)
        if entry.needs:
            hit = pc.and_(hit, pc.match_substring(texts, entry.needs))
        for row in pc.indices_nonzero(hit).to_pylist():
            if found[row] is None:
                found[row] = _named(entry, texts[row])
    return found


def _named(entry: Predefined, text: pa.StringScalar) -> Found:
    name, shown = entry.template_id, entry.template
    if "{class}" in name:
        groups = pc.extract_regex(text, entry.pattern).as_py() or {}
        name, shown = (word.replace("{class}", groups.get("class", "?")) for word in (name, shown))
    return Found(name, shown, entry.alert, entry.provenance)


def provenance_of(texts: Sequence[str], rules: Rules | None = None) -> list[str]:
    """Whose code printed each text: framework, platform, launcher or user."""
    lines = pc.utf8_slice_codeunits(arrow_texts(texts), 0, MAX_CHARACTERS)
    found = ["user"] * len(lines)
    for name, pattern in reversed((rules or default()).provenance):
        for row in pc.indices_nonzero(pc.match_substring_regex(lines, pattern)).to_pylist():
            found[row] = name
    return found
