"""The template library over nights: mine what is new, keep every id that was ever given reachable.

A library is what its tables hold: templates, aliases, and the template of each masked message. `grown` makes the
next one from it and a set of masked messages; nothing else is remembered.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ml.templates.alerts import alerts_of
from ml.templates.mining import mine, template_id
from ml.templates.predefined import INHERIT, Found, Rules, default, predefined_of, provenance_of
from ml.templates.tokens import essence


@dataclass(frozen=True)
class Template:
    """One template. `alert` is that of all its messages: messages of different alerts never share a template.

    `pattern` is the template as the miner keeps it (`ml.templates.tokens.pattern_of`), empty when predefined.
    """

    template_id: str
    text: str
    alert: str | None
    is_predefined: bool
    provenance: str
    pattern: str = ""


@dataclass(frozen=True)
class Library:
    """Current templates by id, every id ever given with the current one, and masked messages' template ids."""

    templates: Mapping[str, Template] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Hash of all templates and aliases: equal libraries have equal versions."""
        lines = [f"{t.template_id}\t{t.text}\t{t.alert}" for _, t in sorted(self.templates.items())]
        lines += [f"{old}\t{new}" for old, new in sorted(self.aliases.items())]
        return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()[:12]


def grown(library: Library, masked: Iterable[str], rules: Rules | None = None) -> Library:
    """The library with the templates of these masked messages; those that it maps already are left alone.

    The result depends on the library and the set of messages only, not on their order.
    """
    rules = rules or default()
    new = sorted(set(masked) - library.messages.keys())
    alerts = dict(zip(new, alerts_of([essence(message) for message in new], rules.alerts)))
    templates = {name: t for name, t in library.templates.items() if t.is_predefined}
    given: dict[str, str] = {}
    for message, found in zip(new, predefined_of(new, rules)):
        if found is not None and (found.alert or not alerts[message]):
            templates.setdefault(found.template_id, _predefined(found, alerts[message]))
            given[message] = found.template_id
    texts, renamed, mined = _mined(library, [m for m in new if m not in given], alerts, rules)
    templates.update(mined)
    given.update({message: template_id(text) for message, text in texts.items()})
    aliases = {old: renamed.get(now, now) for old, now in library.aliases.items()}
    aliases.update({old: now for old, now in renamed.items() if old not in mined})
    aliases.update({name: name for name in templates})
    messages = {message: renamed.get(name, name) for message, name in library.messages.items()}
    return Library(templates, aliases, {**messages, **given})


def _predefined(found: Found, alert: str | None) -> Template:
    return Template(found.template_id, found.template, alert if found.alert == INHERIT else found.alert, True, found.provenance)


def _mined(
    library: Library, messages: list[str], alerts: Mapping[str, str | None], rules: Rules
) -> tuple[dict[str, str], dict[str, str], dict[str, Template]]:
    """Text of each message, new id of each old one, and all templates that are not predefined.

    Each alert is mined by itself, so that no template ever mixes what raises an alert with what does not.
    """
    new: dict[str | None, list[str]] = defaultdict(list)
    known: dict[str | None, dict[str, str]] = defaultdict(dict)
    sources: dict[str, str] = {}
    for message in messages:
        new[alerts[message]].append(message)
    for template in library.templates.values():
        if not template.is_predefined:
            known[template.alert][template.text] = template.pattern
            sources[template.text] = template.provenance
    texts: dict[str, str] = {}
    renamed: dict[str, str] = {}
    patterns: dict[str, tuple[str, str | None]] = {}
    for alert in sorted({*new, *known}, key=lambda name: name or "~"):
        found = mine(new[alert], known[alert])
        texts.update(found.texts)
        renamed.update({template_id(old): template_id(now) for old, now in found.known.items()})
        for text, pattern in found.patterns.items():
            patterns.setdefault(text, (pattern, alert))
    unknown = sorted(patterns.keys() - sources.keys())
    sources.update(zip(unknown, provenance_of(unknown, rules)))
    templates = {
        template_id(text): Template(template_id(text), text, alert, False, sources[text], pattern)
        for text, (pattern, alert) in sorted(patterns.items())
    }
    return texts, renamed, templates
