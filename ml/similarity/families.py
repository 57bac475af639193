"""Failures that look alike as families, the same whatever the order in which they arrive on a given night."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ml.similarity.fingerprint import scores

ALIKE = 0.5


def assign(job_ids: Sequence[str], ended_us: Sequence[int], tokens: NDArray[np.int64], offsets: NDArray[np.int64]) -> list[str]:
    """The founder of each job's family, in the order given.

    Jobs are taken in order of their end (ties by id): each joins the family whose founder it is most like, when that is
    at least `ALIKE`, and founds one otherwise. A family's founder is its earliest job, so later jobs never change who
    belongs together, and families keep their ids from night to night. Membership asks for likeness with the founder
    itself: chains of pairwise likeness do not join what has nothing in common. Equal fingerprints are of one family.
    """
    order = sorted(range(len(job_ids)), key=lambda row: (ended_us[row], job_ids[row]))
    founders = _Founders()
    known: dict[bytes, int] = {}
    founder_of = [""] * len(job_ids)
    for row in order:
        own = tokens[offsets[row] : offsets[row + 1]]
        seen = known.get(own.tobytes())
        if seen is None:
            seen = founders.nearest(own)
            if seen is None:
                founders.add(row, own)
                seen = row
            known[own.tobytes()] = seen
        founder_of[row] = job_ids[seen]
    return founder_of


class _Founders:
    """Fingerprints of the families' first jobs, in one growing array."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.bounds = [0]
        self.flat: NDArray[np.int64] = np.zeros(4096, dtype=np.int64)

    def add(self, row: int, own: NDArray[np.int64]) -> None:
        """One more family."""
        end = self.bounds[-1] + len(own)
        while end > len(self.flat):
            self.flat = np.concatenate([self.flat, np.zeros_like(self.flat)])
        self.flat[self.bounds[-1] : end] = own
        self.rows.append(row)
        self.bounds.append(end)

    def nearest(self, own: NDArray[np.int64]) -> int | None:
        """The founder that is most alike, at least `ALIKE`; ties go to the earliest."""
        if not self.rows or not len(own):
            return None
        found = scores(own, self.flat[: self.bounds[-1]], np.array(self.bounds))
        best = int(np.argmax(np.round(found, 6)))
        return self.rows[best] if found[best] >= ALIKE else None


def family_id(founder: str) -> str:
    """A family's id: a hash of the job that founded it."""
    return "f" + hashlib.sha256(founder.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def common_words(fingerprints: Sequence[Sequence[str]], n: int = 12) -> list[str]:
    """Words that at least half of the jobs show, the most frequent first, ties by text."""
    counts = Counter(word for words in fingerprints for word in set(words))
    often = [(-count, word) for word, count in counts.items() if 2 * count >= len(fingerprints)]
    return [word for _, word in sorted(often)[:n]]


def ranked(values: Sequence[str | None], n: int = 20) -> list[str]:
    """Distinct values, the most frequent first, ties by text."""
    counts = Counter(value for value in values if value is not None)
    return [value for value, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:n]]
