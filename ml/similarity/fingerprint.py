"""Failures as weighted words, and how alike two of them are.

A word is `kind:value` (`template:4f…`, `symptom:hang`, `event:xid 79`). A token packs its hash and its weight into one
integer, so that hundreds of thousands of fingerprints are compared as arrays.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

WEIGHT_BITS = 12
WEIGHT_SCALE = 128.0
MAX_WORDS = 64
LONELY = 0.3
ROWS_AT_ONCE = 32_768
FLOOR = 0.2

KIND_WEIGHTS = {
    "template": 1.0, "alert_template": 3.0, "exception": 3.0, "alert": 1.5, "symptom": 3.0, "cause": 2.0, "phase": 1.0,
    "spatial": 0.5, "role": 0.5, "collective": 1.5, "event": 2.0, "finding": 1.0,
}  # fmt: skip
"""What a word of each kind weighs before its rarity counts: alerts and what was seen more than ordinary lines."""

_EXCEPTION = re.compile(r"\b([A-Za-z_]\w{0,80}(?:Error|Exception|Interrupt|Warning|Failure|Exit))\b")
_NEVER = frozenset({"ChildFailedError"})
"""What a launcher says of any worker that failed."""
_GENERIC = frozenset({"RuntimeError", "Error", "Exception", "SystemExit"})


@dataclass(frozen=True)
class Alike:
    """One look-alike: its row among the compared fingerprints, and the weighted share of what both show."""

    row: int
    score: float


def rarity(n_with: int, n_all: int) -> float:
    """How telling a word is: near 1 when few of the failures show it, `FLOOR` when all do.

    A word that no other failure shows cannot be shared; it tells only that this failure is different, and counts
    `LONELY` of its weight, so that messages of one user's own code do not hide a common cause.
    """
    if n_all < 2:
        return 1.0
    scaled = math.log((n_all + 1) / max(n_with, 1)) / math.log(n_all + 1)
    return (FLOOR + (1 - FLOOR) * scaled) * (LONELY if n_with <= 1 else 1.0)


def exceptions(text: str) -> list[str]:
    """Names of exceptions in a message, the first five; names that every failure has come last.

    >>> exceptions("KeyError: 'targets'")
    ['KeyError']
    """
    found = [name for name in dict.fromkeys(_EXCEPTION.findall(text[:4000])) if name not in _NEVER and not name.endswith("Warning")]
    return ([name for name in found if name not in _GENERIC] or found)[:5]


@lru_cache(maxsize=200_000)
def word_hash(word: str) -> int:
    """51 bits of a word's hash, above the weight's bits."""
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (WEIGHT_BITS + 1)) << WEIGHT_BITS


def token(word: str, weight: float) -> int:
    """Hash and weight in one positive 64-bit integer; weights from 1/128 to 31.9."""
    return word_hash(word) | max(1, min(round(weight * WEIGHT_SCALE), (1 << WEIGHT_BITS) - 1))


def pack(weighted: Iterable[tuple[str, float]]) -> tuple[list[int], list[str]]:
    """Tokens in order of their hash, and their words in the same order: the heaviest `MAX_WORDS`, each once."""
    best: dict[str, float] = {}
    for word, weight in weighted:
        best[word] = max(best.get(word, 0.0), weight)
    kept = sorted(best.items(), key=lambda entry: (-entry[1], entry[0]))[:MAX_WORDS]
    pairs = sorted((token(word, weight), word) for word, weight in kept)
    return [number for number, _ in pairs], [word for _, word in pairs]


def weight_of(tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of tokens."""
    return (tokens & ((1 << WEIGHT_BITS) - 1)).astype(np.float64) / WEIGHT_SCALE


def scores(own: NDArray[np.int64], tokens: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weighted Jaccard of one fingerprint with each of many: summed weight of shared words over that of all words.

    `tokens[offsets[i]:offsets[i + 1]]` is fingerprint i. Where the two weigh a word differently, the smaller counts as
    shared and the larger as present. Shape: one score a fingerprint, 0 to 1.
    """
    mine = np.sort(own)
    found = [np.zeros(0)]
    for start in range(0, len(offsets) - 1, ROWS_AT_ONCE):
        bounds = offsets[start : start + ROWS_AT_ONCE + 1]
        found.append(_part_scores(mine, tokens[bounds[0] : bounds[-1]], bounds - bounds[0]))
    return np.concatenate(found)


def _part_scores(mine: NDArray[np.int64], tokens: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores of one stretch of fingerprints; `mine` is sorted."""
    n = len(offsets) - 1
    if not len(mine):
        return np.zeros(n)
    owner = np.repeat(np.arange(n), np.diff(offsets))
    totals = np.bincount(owner, weight_of(tokens), n)
    keys = mine >> WEIGHT_BITS
    place = np.minimum(np.searchsorted(keys, tokens >> WEIGHT_BITS), len(keys) - 1)
    hit = keys[place] == tokens >> WEIGHT_BITS
    smaller = np.minimum(weight_of(tokens[hit]), weight_of(mine[place[hit]]))
    shared = np.bincount(owner[hit], smaller, n)
    union = totals + weight_of(mine).sum() - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1.0), 0.0)


def most_alike(found: NDArray[np.float64], names: Sequence[str], n: int, minimum: float) -> list[Alike]:
    """The `n` highest scores that reach the minimum; ties by name."""
    rows = np.flatnonzero(found >= minimum)
    if len(rows) > 4 * n:
        limit = np.sort(found[rows])[-n]
        rows = rows[found[rows] >= limit]
    ordered = sorted(rows.tolist(), key=lambda row: (-round(float(found[row]), 6), names[row]))
    return [Alike(row, round(float(found[row]), 4)) for row in ordered[:n]]


def shared_words(own_tokens: Sequence[int], own_words: Sequence[str], other_words: Iterable[str]) -> list[str]:
    """Words that both show, heaviest in the first's eyes first."""
    others = set(other_words)
    mask = (1 << WEIGHT_BITS) - 1
    both = [(number & mask, word) for number, word in zip(own_tokens, own_words, strict=True) if word in others]
    return [word for _, word in sorted(both, key=lambda entry: (-entry[0], entry[1]))]
