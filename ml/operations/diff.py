"""Operations of a base and a test: which are new, which are gone, which take longer.

A profile maps (layer, name) to calls and seconds: of one trace, or of a step of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

SLOWER_FROM = 1.05


class Status(StrEnum):
    """What became of an operation."""

    ADDED = "added"
    REMOVED = "removed"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"


@dataclass(frozen=True)
class Usage:
    """Calls of an operation and its total seconds."""

    n_calls: float
    seconds: float


@dataclass(frozen=True)
class OperationDiff:
    """One operation in both: calls, seconds, and the difference in seconds (test - base)."""

    layer: str
    name: str
    status: Status
    base: Usage
    test: Usage

    @property
    def seconds(self) -> float:
        """How much more time the test spends."""
        return self.test.seconds - self.base.seconds

    @property
    def ratio(self) -> float | None:
        """Time of the test over that of the base; None for what the base lacks."""
        return self.test.seconds / self.base.seconds if self.base.seconds > 0 else None


Profile = Mapping[tuple[str, str], Usage]
_NONE = Usage(0, 0.0)


def compare(base: Profile, test: Profile) -> list[OperationDiff]:
    """Every operation of either, the largest difference in time first.

    >>> [d.status.value for d in compare({("gpu", "gemm"): Usage(1, 1.0)}, {("gpu", "gemm"): Usage(1, 2.0)})]
    ['slower']
    """
    found = []
    for key in base.keys() | test.keys():
        before, after = base.get(key, _NONE), test.get(key, _NONE)
        found.append(OperationDiff(*key, _status(before, after), before, after))
    return sorted(found, key=lambda d: (-abs(d.seconds), d.layer, d.name))


def _status(before: Usage, after: Usage) -> Status:
    if not before.n_calls:
        return Status.ADDED
    if not after.n_calls:
        return Status.REMOVED
    # per call, so that a trace of more steps is not a slower one
    a, b = before.seconds / before.n_calls, after.seconds / after.n_calls
    if b > SLOWER_FROM * a:
        return Status.SLOWER
    return Status.FASTER if a > SLOWER_FROM * b else Status.SAME
