"""A configuration as people have it (job.json, YAML, argument block of a log, MLLOG lines) as flat keys and texts.

Scalars keep the text that stands in the file, so that a version 2.30 does not become 2.3. Nothing here can loop or
grow without bound: depth, keys and bytes are limited, and a nesting that contains itself is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ml.configs.normalise import BLOCK

MAX_BYTES = 64 * 1024 * 1024
MAX_KEYS = 20_000
MAX_DEPTH = 40
MAX_LIST_TEXT = 4000

_ARGUMENT = re.compile(r"(?:^|[\s:|\]])([A-Za-z_][A-Za-z0-9_]{0,120}) \.{3,200} ?(.*)\Z")
_PAIR = re.compile(r"\s*(?:--)?([A-Za-z_][A-Za-z0-9_.\-]{0,120})\s*[=:]\s*(\S.*)\Z")
_MLLOG = re.compile(r":::MLLOG (\{.*)\Z")
_JOB_WORDS = frozenset({"job_id", "state", "nodes", "ranks", "world_size", "start_time", "end_time", "submit_time", "config"})


class ConfigError(ValueError):
    """A configuration cannot be used; the message says why in a few words."""


@dataclass(frozen=True)
class ParsedConfig:
    """A flat configuration, and what the file says of the job around it (null where it does not)."""

    config: dict[str, str]
    job_id: str | None = None
    name: str | None = None
    user: str | None = None
    world_size: int | None = None
    n_nodes: int | None = None
    n_gpus: int | None = None


def parse_config(text: str) -> ParsedConfig:
    """Read a configuration in any of the forms that jobs come with.

    Tried in order: JSON (job.json or a bare configuration), an argument block or MLLOG lines anywhere in a log,
    YAML, lines of `key = value`. Raises ConfigError when it is none of them, or says nothing.

    >>> parse_config("  num_layers ........ 24\\n  hidden_size ....... 1024").config
    {'args.num_layers': '24', 'args.hidden_size': '1024'}
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES // 2**20} MiB")
    bare = text.lstrip("\ufeff \t\r\n")
    if not bare:
        raise ConfigError("empty")
    if bare[0] == "{":
        return _job(_from_json(bare))
    printed = from_log(text)
    if printed:
        return ParsedConfig(printed)
    return _job(_from_json(bare) if bare[0] == "[" else _from_yaml(text))


def from_log(text: str) -> dict[str, str]:
    """What a log prints of its configuration, each key under `args.`: argument blocks, MLLOG settings; empty when nothing."""
    found: dict[str, str] = {}
    logged: dict[str, set[str]] = {}
    for line in text.splitlines():
        if " ..." in line:
            match = _ARGUMENT.search(line[:2000])
            if match and match[2].strip() and len(found) < MAX_KEYS:
                found.setdefault(BLOCK + match[1], match[2].strip())
        elif ":::MLLOG" in line:
            _mllog(line[:4000], logged)
    settings = {f"{BLOCK}mllog.{key}": next(iter(values)) for key, values in logged.items() if len(values) == 1}
    return {**settings, **found}


def _mllog(line: str, logged: dict[str, set[str]]) -> None:
    """Collect the scalar settings of one MLLOG line; keys with several values are measurements, not settings."""
    match = _MLLOG.search(line)
    try:
        entry = json.loads(match[1], parse_float=str, parse_int=str) if match else None
    except (ValueError, RecursionError):
        return
    if not isinstance(entry, dict) or entry.get("event_type") != "POINT_IN_TIME":
        return
    key, value = entry.get("key"), entry.get("value")
    if isinstance(key, str) and isinstance(value, str | bool) and len(logged) < MAX_KEYS:
        values = logged.setdefault(key, set())
        if len(values) < 2:
            values.add(str(value))


def flatten(nested: Mapping[str, Any]) -> dict[str, str]:
    """Nested keys joined by dots, values as text; lists as JSON.

    Raises ConfigError for a nesting that contains itself or is too deep, and for too many keys.
    """
    flat: dict[str, str] = {}
    for key, value in _walk(nested, "", 0, set()):
        flat[key] = value
        if len(flat) > MAX_KEYS:
            raise ConfigError(f"more than {MAX_KEYS} keys")
    return flat


def _walk(value: Any, path: str, depth: int, above: set[int]) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        raise ConfigError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping | list | tuple):
        if id(value) in above:
            raise ConfigError(f"{path or 'the top'} contains itself")
        inside = above | {id(value)}
        if isinstance(value, Mapping) and value:
            for key, part in value.items():
                yield from _walk(part, f"{path}.{key}" if path else str(key), depth + 1, inside)
        elif path:
            yield path, _listed(value, path, depth, inside)[:MAX_LIST_TEXT]
    elif path:
        yield path, _text(value)


def _listed(value: Any, path: str, depth: int, above: set[int]) -> str:
    """A list (or an empty mapping) as JSON text with sorted keys."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, Mapping | list | tuple):
        return json.dumps(_text(value))
    parts = list(value.values()) if isinstance(value, Mapping) else list(value)
    if any(id(part) in above for part in parts):
        raise ConfigError(f"{path} contains itself")
    texts = [_listed(part, path, depth + 1, above | {id(part)}) for part in parts]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(key))}:{text}" for key, text in sorted(zip(value, texts, strict=True))) + "}"
    return "[" + ",".join(texts) + "]"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text, parse_float=str, parse_int=str)
    except RecursionError:
        raise ConfigError("nested too deeply") from None
    except ValueError as error:
        try:
            return _from_yaml(text)
        except ConfigError:
            raise ConfigError(f"not JSON: {error}") from None


def _from_yaml(text: str) -> Any:
    """YAML's node graph with scalars as they stand: no types are guessed, no objects are built, aliases are counted."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = yaml.compose(text, Loader=loader)
        built = _Builder().build(node, 0, ()) if node is not None else None
    except (RecursionError, yaml.YAMLError) as error:
        pairs = _pairs(text)
        if pairs:
            return pairs
        reason = str(getattr(error, "problem", "") or "nested too deeply")
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"not YAML: {reason}" + (f" in line {mark.line + 1}" if mark else "")) from None
    return built if isinstance(built, dict) else _pairs(text) or built


def _pairs(text: str) -> dict[str, str]:
    """Lines of `key = value` or `key: value`; at least two."""
    matches = (_PAIR.match(line[:2000]) for line in text.splitlines()[: MAX_KEYS * 2])
    found = {match[1]: match[2].strip() for match in matches if match}
    return found if len(found) > 1 else {}


class _Builder:
    """Turns YAML nodes into mappings, lists and texts, and refuses what contains itself or explodes."""

    def __init__(self) -> None:
        self.n_built = 0

    def build(self, node: yaml.Node, depth: int, above: tuple[int, ...]) -> Any:
        self.n_built += 1
        if self.n_built > MAX_KEYS * 10:
            raise ConfigError("aliases expand to too many values")
        if id(node) in above:
            raise ConfigError(f"line {node.start_mark.line + 1} contains itself")
        if depth > MAX_DEPTH:
            raise ConfigError(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth, (*above, id(node)))
        if isinstance(node, yaml.SequenceNode):
            return [self.build(part, depth + 1, (*above, id(node))) for part in node.value]
        return str(node.value)

    def _mapping(self, node: yaml.MappingNode, depth: int, above: tuple[int, ...]) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key, value in node.value:
            part = self.build(value, depth + 1, above)
            if key.tag.endswith(":merge") and isinstance(part, dict):
                built = {**part, **built}
            else:
                built[str(key.value)] = part
        return built


def _job(loaded: Any) -> ParsedConfig:
    """A job.json (its `config` and what stands around it), or a bare configuration."""
    if not isinstance(loaded, Mapping):
        raise ConfigError("not a mapping of keys to values")
    if not loaded:
        raise ConfigError("empty")
    if not isinstance(loaded.get("config"), Mapping) and not ("config" in loaded and len(_JOB_WORDS & loaded.keys()) > 1):
        return ParsedConfig(flatten(loaded))
    config = flatten(loaded["config"]) if isinstance(loaded["config"], Mapping) else {}
    nodes, ranks = loaded.get("nodes"), loaded.get("ranks")
    return ParsedConfig(
        config=config,
        job_id=_word(loaded.get("job_id")),
        name=_word(loaded.get("name")),
        user=_word(loaded.get("user")),
        world_size=_whole(loaded.get("world_size")) or (len(ranks) if isinstance(ranks, list) and ranks else None),
        n_nodes=len(nodes) if isinstance(nodes, list) and nodes else None,
        n_gpus=_whole(loaded.get("n_gpus")),
    )


def _word(value: Any) -> str | None:
    return str(value)[:500] if isinstance(value, str | int) and str(value) else None


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdigit() and len(text) < 10 else None
