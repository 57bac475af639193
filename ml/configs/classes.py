"""Which keys must match, which should, which may differ: rules as data, and how a key finds its rule.

The rules of `key_classes.yaml` serve; a site puts its own before them (`load(site=…)`).
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

import yaml


class KeyClass(StrEnum):
    """What a difference in a key means."""

    MUST = "must"
    SHOULD = "should"
    SCALE = "scale"
    FREE = "free"


class Follows(StrEnum):
    """How a value moves with the size of a job."""

    WITH = "with"
    AGAINST = "against"
    ANY = "any"


@dataclass(frozen=True)
class Rule:
    """What one rule says of the keys that it fits; see `key_classes.yaml` for the words."""

    key_class: KeyClass
    weight: float = 1.0
    group: str = "other"
    identifies: bool = False
    follows: Follows | None = None
    is_speed: bool = False
    is_version: bool = False
    is_declared: bool = False
    label: str | None = None

    @property
    def costs(self) -> bool:
        """Whether a difference counts against the score by itself."""
        return self.key_class in (KeyClass.MUST, KeyClass.SHOULD)


FREE = Rule(KeyClass.FREE, 0.0)


class SettingsError(ValueError):
    """A site's settings cannot be used; the message says which part and why."""


@dataclass(frozen=True)
class KeyClasses:
    """Rules, aliases, caps and limits in force, with a hash that names them."""

    patterns: tuple[tuple[re.Pattern[str], Rule], ...]
    aliases: Mapping[str, str]
    caps: Mapping[str, float]
    limits: Mapping[str, float]
    version: str
    _found: dict[str, Rule] = field(default_factory=dict, compare=False, repr=False)

    def rule(self, key: str) -> Rule:
        """The first rule that fits a canonical key."""
        known = self._found.get(key)
        if known is None:
            known = next((rule for pattern, rule in self.patterns if pattern.match(key)), FREE)
            if len(self._found) < 500_000:
                self._found[key] = known
        return known

    def canonical(self, key: str) -> str:
        """A normal key's common name: by its whole, else by its last part when that part is telling by itself."""
        whole = self.aliases.get(key)
        if whole:
            return whole
        last = key.rsplit(".", 1)[-1]
        if "_" in last and not key.startswith(("env.", "environment.", "packages.")):
            return self.aliases.get(last, key)
        return key

    def limit(self, name: str) -> float:
        """A named threshold of the settings."""
        return float(self.limits[name])


@cache
def _defaults() -> dict[str, Any]:
    text = resources.files("ml.configs").joinpath("key_classes.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = _read(text)
    return loaded


def _read(text: str) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders, one of them is quick


@cache
def default_classes() -> KeyClasses:
    """The rules that come with the program."""
    return load(None)


def load(site: Mapping[str, Any] | str | None) -> KeyClasses:
    """Rules in force: a site's (a mapping, or YAML text of the same form) before the program's own.

    Raises SettingsError when a part has the wrong form.
    """
    given = _site(site)
    base = _defaults()
    rules = [*_list(given.get("rules", []), "rules"), *base["rules"]]
    aliases = {**base["aliases"], **_mapping(given.get("aliases", {}), "aliases")}
    caps = {**base["caps"], **_mapping(given.get("caps", {}), "caps")}
    limits = {**base["limits"], **_mapping(given.get("limits", {}), "limits")}
    if any(not isinstance(value, (int, float)) for value in (*caps.values(), *limits.values())):
        raise SettingsError("limits and caps: every value must be a number")
    version = hashlib.sha256(json.dumps([rules, aliases, caps, limits], sort_keys=True, default=str).encode()).hexdigest()
    patterns = tuple(_compiled(rule) for rule in rules)
    names = {alias: name for name, spellings in aliases.items() for alias in [*spellings, name]}
    return KeyClasses(patterns, names, caps, limits, version[:12])


def _site(site: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    if site is not None and not isinstance(site, str | Mapping):
        raise SettingsError("must be a mapping of rules, aliases, caps and limits")
    if isinstance(site, str):
        try:
            site = _read(site)
        except yaml.YAMLError as error:
            raise SettingsError(f"not YAML: {str(error).splitlines()[0]}") from None
    return _mapping(site or {}, "the file")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{what}: must be a mapping of names")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise SettingsError(f"{what}: must be a list")
    return value


def _compiled(entry: Any) -> tuple[re.Pattern[str], Rule]:
    """One entry of `rules` as a pattern and its rule."""
    given = _mapping(entry, "a rule")
    globs = [str(glob).lower() for glob in _list(given.get("keys"), "keys of a rule")]
    try:
        rule = Rule(
            key_class=KeyClass(given.get("class", "should")),
            weight=float(given.get("weight", 1.0)),
            group=str(given.get("group", "other")),
            identifies=bool(given.get("identifies", False)),
            follows=Follows(given["follows"]) if given.get("follows") else None,
            is_speed=bool(given.get("speed", False)),
            is_version=bool(given.get("version", False)),
            is_declared=bool(given.get("declared", False)),
            label=given.get("label"),
        )
    except ValueError as error:
        raise SettingsError(f"rule for {', '.join(globs[:3])}: {error}") from None
    return re.compile("|".join(f"(?:{fnmatch.translate(glob)})" for glob in globs)), rule
