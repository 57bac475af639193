"""What the diff of one job takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from ml.log_diffs.topology import Finding, Job
from ml.log_diffs.utterances import Utterance


@dataclass(frozen=True)
class TemplateFinding:
    """A finding about one template of one job, with what the contract shows of it."""

    finding: Finding
    template_id: str
    template: str
    alert: str | None
    n_events: int
    first_at: float | None
    rate: float | None
    baseline_rate: float | None
    q_value: float | None
    in_baselines: bool
    in_library: bool
    example: str


@dataclass(frozen=True)
class NodeFinding:
    """A finding of the spatial axis with its numbers."""

    finding: Finding
    distance: float | None = None
    forest_score: float | None = None
    separating: tuple[str, ...] = ()
    n_peers: int = 0


@dataclass(frozen=True)
class Count:
    """One template on one node in one role, with the ranks that printed it."""

    template_id: str
    node: str | None
    role: str | None
    n_events: int
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """All that the diff of one job needs. Times in seconds since 1970, clocks corrected.

    `diff` holds the verdicts across jobs (`cross_job.DIFF_COLUMNS`) and is empty without baselines. `steps` are operations
    summed by rank, step and name (`progress.STEP_COLUMNS`); `iterations` the printed progress lines.
    """

    job: Job
    utterances: tuple[Utterance, ...] = ()
    counts: tuple[Count, ...] = ()
    diff: pd.DataFrame = field(default_factory=pd.DataFrame)
    n_baselines: int = 0
    has_library: bool = True
    phases: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    phase_findings: tuple[Finding, ...] = ()
    iterations: pd.DataFrame = field(default_factory=pd.DataFrame)
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    last_at: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobDiff:
    """Findings of one job, by table."""

    templates: tuple[TemplateFinding, ...]
    logs: tuple[Finding, ...]
    nodes: tuple[NodeFinding, ...]
    onsets: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, each with its table."""
        return (*(t.finding for t in self.templates), *self.logs, *(n.finding for n in self.nodes), *self.onsets)
