"""What a run's end means: a success, a failure, or a run cut short before it could show either."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a run counts."""

    SUCCESS = "success"
    FAILURE = "failure"
    CENSORED = "censored"
    UNKNOWN = "unknown"


_OUTCOMES = {
    "COMPLETED": Outcome.SUCCESS,
    "FAILED": Outcome.FAILURE,
    "NODE_FAIL": Outcome.FAILURE,
    "OUT_OF_MEMORY": Outcome.FAILURE,
    "BOOT_FAIL": Outcome.FAILURE,
    "CANCELLED": Outcome.CENSORED,
    "TIMEOUT": Outcome.CENSORED,
    "DEADLINE": Outcome.CENSORED,
    "PREEMPTED": Outcome.CENSORED,
    "REVOKED": Outcome.CENSORED,
    "REQUEUED": Outcome.CENSORED,
    "RESIZING": Outcome.CENSORED,
}


def outcome_of(state: str) -> Outcome:
    """A scheduler's word as an outcome.

    >>> str(outcome_of("TIMEOUT"))
    'censored'
    """
    return _OUTCOMES.get(state, Outcome.UNKNOWN)


@dataclass(frozen=True)
class Run:
    """One attempt of a job. Times are seconds since 1970, None where unknown; nodes are host names.

    `cause` is a class of the failure taxonomy; `version` the version of the code that ran.
    """

    job_id: str
    state: str
    started_at: float | None
    ended_at: float | None
    submitted_at: float | None = None
    n_gpus: int = 0
    n_nodes: int = 0
    nodes: tuple[str, ...] = ()
    lineage_id: str | None = None
    attempt: int | None = None
    cause: str = "undetermined"
    version: str | None = None
    is_infrastructure: bool = False
    excluded_nodes: tuple[str, ...] = field(default=())

    @property
    def outcome(self) -> Outcome:
        """How it counts."""
        return outcome_of(self.state)

    @property
    def running_s(self) -> float:
        """Seconds between start and end, 0 where either is unknown."""
        if self.started_at is None or self.ended_at is None:
            return 0.0
        return max(self.ended_at - self.started_at, 0.0)

    @property
    def node_days(self) -> float:
        """Nodes times days."""
        return self.running_s / 86400 * (self.n_nodes or len(self.nodes))

    @property
    def gpu_hours(self) -> float:
        """Accelerators times hours."""
        return self.running_s / 3600 * self.n_gpus


CATEGORIES = {
    "infrastructure": (
        "NVLinkError", "CUDAError", "NodeFailure", "ECCError", "NetworkError", "ConnectionError", "S3StorageError", "NCCLTimeout",
        "NCCLRemoteError",
    ),
    "framework": (
        "DataloaderKilled", "AttributeError", "OutOfMemory", "RuntimeError", "AssertionError", "ValueError", "ZeroDivision",
        "ModelLoading", "DatasetLoading",
    ),
    "script": (
        "FileNotFound", "OSError", "TypeError", "KeyError", "ImportError", "IndexError", "NameError", "SyntaxError",
        "PermissionError", "CalledProcess", "ArgumentError",
    ),
}  # fmt: skip
"""The three categories of the failure taxonomy and their classes (arXiv 2403.07648)."""


def category_of(cause: str) -> str:
    """The category of a class of cause; `undetermined` for a class that the taxonomy lacks."""
    return next((name for name, classes in CATEGORIES.items() if cause in classes), "undetermined")
