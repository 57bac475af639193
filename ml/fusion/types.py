"""What fusion takes and gives: typed, frozen, without any table or file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ml.log_diffs.topology import Finding, Job


class Symptom(StrEnum):
    """What a user saw; when several fit, the first that happened."""

    NONE = "none"
    LAUNCH_FAILURE = "launch_failure"
    CRASH = "crash"
    HANG = "hang"
    SLOWDOWN = "slowdown"
    OOM = "oom"
    COMM_TIMEOUT = "comm_timeout"
    LOSS_NONFINITE = "loss_nonfinite"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    NODE_FAILURE = "node_failure"
    UNDETERMINED = "undetermined"


class SpatialSignal(StrEnum):
    """Whether the evidence points at a place."""

    LOCALISED = "localised"
    GLOBAL = "global"
    NONE = "none"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Template:
    """One template that matters for the diagnosis, as the contract shows it."""

    template_id: str
    template: str
    alert: str | None
    score: float
    n_events: int
    first_at: float | None = None
    iteration: int | None = None
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    in_baselines: bool = False
    in_library: bool = False
    example: str = ""


@dataclass(frozen=True)
class Baseline:
    """A successful job that matches, with what differs: (key, this job's value, the baseline's)."""

    job_id: str
    score: float
    differing: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass(frozen=True)
class Case:
    """Everything that is known of one job when it is diagnosed. Sources that are absent are empty, not guessed."""

    job: Job
    findings: tuple[Finding, ...] = ()
    templates: tuple[Template, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    has_library: bool = True
    versions: Mapping[str, str] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[Finding]:
        """Findings of these kinds, strongest first."""
        return sorted((f for f in self.findings if f.kind in kinds), key=lambda f: (-f.score, f.statement))


@dataclass(frozen=True)
class Evidence:
    """One sentence with where it stands."""

    source: str
    axis: str
    statement: str
    at: float | None
    table: str
    refs: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A scope that may be the origin, with a calibrated score and its evidence, strongest first."""

    score: float
    nodes: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    is_direct: bool = False
    """A witness saw the process itself break."""


@dataclass(frozen=True)
class Window:
    """The onset: a window, with the iteration and phase in which it lies."""

    started_at: float | None = None
    ended_at: float | None = None
    iteration: int | None = None
    phase: str | None = None


@dataclass(frozen=True)
class Cause:
    """A class of the failure taxonomy, or `undetermined`, and how sure it is."""

    name: str = "undetermined"
    confidence: float = 0.0


@dataclass(frozen=True)
class Missing:
    """Evidence that ought to be there."""

    node: str | None
    rank: int | None
    what: str


@dataclass(frozen=True)
class Diagnosis:
    """One job's findings fused. Every candidate is a candidate until a person confirms it."""

    job: Job
    symptom: Symptom
    cause: Cause
    onset: Window | None
    spatial_signal: SpatialSignal
    candidates: tuple[Candidate, ...] = ()
    templates: tuple[Template, ...] = ()
    missing: tuple[Missing, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
