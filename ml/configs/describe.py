"""A job's configuration as something to compare: one item a canonical key, and the hashes by which it is found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ml.configs.classes import FREE, KeyClass, KeyClasses, Rule
from ml.configs.normalise import BLOCK, MAX_VALUE_LENGTH, is_run_specific, normal_key, normal_value

SCALE_KEYS = ("world_size", "n_nodes", "n_gpus")
KEY_BITS, GROUP_BITS, WEIGHT_BITS, VALUE_BITS = 28, 4, 4, 27
WEIGHT_STEP = 0.5
NAME_KEY = "name"
MIN_SETTINGS_BESIDE_NAME = 3
_BY_NAME = Rule(KeyClass.MUST, 2.0, "model", identifies=True, label="job name")
_RUN_IN_NAME = re.compile(r"[-_. ]?(\d{4}[-_.]\d{2}[-_.]\d{2}|\d{6,20})([-_.T ]\d{2}[-_.:]?\d{2}([-_.:]?\d{2})?)?")
_REPEAT_IN_NAME = re.compile(r"([-_. ](run|try|retry|attempt|rerun|restart|resume|test|debug|copy)[-_ ]?\d{0,4})+\Z")


@dataclass(frozen=True)
class Item:
    """One setting: its key and text as they were written, its one spelling, and the rule for it."""

    key: str
    text: str
    value: str
    rule: Rule


@dataclass(frozen=True)
class Described:
    """A configuration by canonical key, and whether a framework's argument block is part of it.

    `declared` are the keys that were set outside that block (in job.json), `printed` those that the block states.
    """

    items: Mapping[str, Item]
    has_block: bool
    declared: frozenset[str] = field(default_factory=frozenset)
    printed: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def must(self) -> dict[str, str]:
        """Keys that must match, with their values."""
        return {key: item.value for key, item in sorted(self.items.items()) if item.rule.key_class == KeyClass.MUST}

    @cached_property
    def declared_must(self) -> dict[str, str]:
        """The same without the argument block; all of them when only the block names the model."""
        outside = {key: value for key, value in self.must.items() if key in self.declared}
        return outside if self._identity(outside) else self.must

    def _identity(self, must: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in must.items() if self.items[key].rule.identifies}

    @property
    def is_by_name(self) -> bool:
        """Whether only the job's name says what it is."""
        return NAME_KEY in self.items and self.items[NAME_KEY].rule is _BY_NAME

    @cached_property
    def is_identified(self) -> bool:
        """Whether it says which model it is."""
        return bool(self._identity(self.must))

    @cached_property
    def model_hash(self) -> int:
        """Hash of what names the model; 0 when nothing does."""
        return _hash_of(self._identity(self.declared_must))

    @cached_property
    def must_hash(self) -> int:
        """Hash of everything that must match and was declared; 0 when the model is not named."""
        return _hash_of(self.declared_must) if self.is_identified else 0

    @cached_property
    def full_must_hash(self) -> int:
        """Hash of everything that must match, argument block included."""
        return _hash_of(self.must)

    @cached_property
    def block_hash(self) -> int:
        """Hash of what must match as the argument block states it; 0 when the block does not name the model.

        By it the block alone, taken from a new incident's log, finds jobs that have both a block and a job.json.
        """
        must = {key: value for key, value in self.must.items() if key in self.printed}
        return _hash_of(must) if self._identity(must) else 0

    @property
    def is_block_only(self) -> bool:
        """Whether only the argument block names the model."""
        return self.block_hash != 0 and self.block_hash == self.must_hash

    @cached_property
    def speed_hash(self) -> int:
        """Hash of what makes the speed: peers for "much slower" share it."""
        return _hash_of({key: item.value for key, item in sorted(self.items.items()) if item.rule.is_speed})

    @cached_property
    def pairs(self) -> list[int]:
        """One 63-bit number a setting that counts, in order: hash of the key, group, weight, hash of the value."""
        return sorted(
            _pair(key, item.value, item.rule.group, item.rule.weight if item.rule.costs else 0.0)
            for key, item in self.items.items()
            if item.rule.key_class != KeyClass.FREE
        )


def describe(
    config: Mapping[str, str | None],
    classes: KeyClasses,
    *,
    world_size: int | None = None,
    n_nodes: int | None = None,
    n_gpus: int | None = None,
    name: str | None = None,
    user: str | None = None,
) -> Described:
    """Normalise, name and class every setting of a flat configuration.

    Sizes of the job itself join where the configuration does not have them. When two keys have one canonical name and
    different values, the more deeply named one takes the name and the other keeps its own. A configuration that names
    no model is identified by the job's name and user, which is weaker: names are unreliable, so it takes at least
    three settings beside, and `is_by_name` caps the score.
    """
    sizes = {"world_size": world_size, "n_nodes": n_nodes, "n_gpus": n_gpus}
    written = {str(key): str(value) for key, value in config.items() if value is not None}
    is_printed = _block_test(written, classes)
    items: dict[str, Item] = {}
    declared: set[str] = set()
    printed: set[str] = set()
    for key in sorted(written, key=lambda key: (is_printed(key), -min(key.count("."), 1), key)):
        common, item = _item(key, written[key], classes)
        if item is None:
            continue
        is_block = is_printed(key) and not (item.rule.is_declared and not key.startswith(BLOCK))
        if common in items and items[common].value != item.value:
            common = normal_key(key)
            item = Item(item.key, item.text, item.value, classes.rule(common))
        items.setdefault(common, item)
        (printed if is_block else declared).add(common)
    for measure, size in sizes.items():
        if size is not None and measure not in items:
            items[measure] = Item(measure, str(size), str(size), classes.rule(measure))
    described = Described(items, bool(printed), frozenset(declared), frozenset(printed))
    if name and not described.is_identified and sum(item.rule.costs for item in items.values()) >= MIN_SETTINGS_BESIDE_NAME:
        family = f"{user or ''}/{name_family(name)}"
        items = {**items, NAME_KEY: Item("name", name, family, _BY_NAME)}
        return Described(items, bool(printed), frozenset({*declared, NAME_KEY}), frozenset(printed))
    return described


def _block_test(written: Mapping[str, str], classes: KeyClasses) -> Callable[[str], bool]:
    """Which keys an argument block printed: those marked so; where none is, the undotted ones when they are many."""
    if any(key.startswith(BLOCK) for key in written):
        return lambda key: key.startswith(BLOCK)
    if sum("." not in key for key in written) >= classes.limit("block_keys"):
        return lambda key: "." not in key
    return lambda key: False


def name_family(name: str) -> str:
    """A job's name without dates, long numbers and trailing words for a repeat; sizes in it stay.

    >>> name_family("GPT-64-pretrain_2026-11-30_try2")
    'gpt-64-pretrain'
    """
    bare = _RUN_IN_NAME.sub("", name.strip().lower()[:200])
    return _REPEAT_IN_NAME.sub("", bare).strip("-_. ")


def _item(key: str, text: str, classes: KeyClasses) -> tuple[str, Item | None]:
    """Canonical name and item of one setting; no item when its value stands for "not set"."""
    name = classes.canonical(normal_key(key))
    rule = classes.rule(name)
    text = text[:MAX_VALUE_LENGTH]
    value = normal_value(text, rule.is_version)
    if value is None:
        return name, None
    if rule.key_class == KeyClass.SHOULD and is_run_specific(value):
        rule = FREE
    return name, Item(key, text, value, rule)


@lru_cache(maxsize=300_000)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _hash_of(items: Mapping[str, str]) -> int:
    """A signed 64-bit hash of settings; 0 for none."""
    if not items:
        return 0
    text = "\x1e".join(f"{key}\x1f{value}" for key, value in sorted(items.items()))
    return _hash(text) - 2**63 or 1


def hash_group(group: str) -> int:
    """The number of a cost group: 4 bits."""
    return _hash(group) >> (64 - GROUP_BITS)


@lru_cache(maxsize=500_000)
def _pair(key: str, value: str, group: str, weight: float) -> int:
    """Pack one setting; weights in steps of a half, up to 7.5."""
    packed = _hash(key) >> (64 - KEY_BITS)
    packed = packed << GROUP_BITS | hash_group(group)
    packed = packed << WEIGHT_BITS | min(round(weight / WEIGHT_STEP), 15)
    return packed << VALUE_BITS | _hash(value) >> (64 - VALUE_BITS)
