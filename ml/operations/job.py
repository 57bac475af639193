"""Everything that the operations of one job say: findings and the cost of its slowness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ml.operations.finding import Finding, milliseconds, strength
from ml.operations.flat import what_if
from ml.operations.layers import begins_in, beyond_baselines, in_words
from ml.operations.ledger import Ledger, book
from ml.operations.links import slow_transfers
from ml.operations.patterns import pattern_findings, patterns, share_findings
from ml.operations.peers import WARM_UP, median_of_known, step_lengths
from ml.operations.profiled import slow_in_profiles
from ml.operations.rises import operation_rises
from ml.operations.step_times import DEGRADED_FROM, StepTimes, step_times
from ml.operations.summed import book_summed
from ml.operations.workers import ACCUSES_FROM, slow_workers
from ml.stragglers.whatif import WhatIf
from ml.stragglers.words import TraceError


@dataclass(frozen=True)
class Place:
    """Where a job ran: host, role and parallel groups by rank, and the library that carries its collectives."""

    nodes: Mapping[int, str] = field(default_factory=dict)
    roles: Mapping[int, str] = field(default_factory=dict)
    groups: Mapping[int, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    backend: str = "gloo"


@dataclass(frozen=True)
class Expected:
    """What the baselines say, in seconds: typical step times, typical transfer of each collective and time of each layer.

    `shares` has for each function the lowest and highest share of the time that is to be expected.
    """

    step_times_s: tuple[float, ...] = ()
    transfer_s: Mapping[str, float] = field(default_factory=dict)
    layers_s: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class JobOperations:
    """Findings, the strongest first; the what-if result, or why there is none; step times; what was repaired."""

    findings: tuple[Finding, ...]
    what_if: WhatIf | None
    refused: str | None
    step_times: StepTimes | None
    ranks: tuple[int, ...]
    notes: tuple[str, ...]


def analyse_job(operations: pd.DataFrame, place: Place, expected: Expected | None = None) -> JobOperations:
    """Findings and costs of one job's operations (columns as `ledger.book` wants them); never raises on their content."""
    expected = expected or Expected()
    usable = operations[operations["rank"].notna() & operations["step"].notna() & operations["started_us"].notna()]
    if usable.empty:
        return JobOperations((), None, "no operation has a rank, a step and a start", None, (), ())
    ledger = book(operations, place.groups, place.nodes)
    typical = step_lengths(ledger)
    times = step_times(ledger.steps, typical, expected.step_times_s)
    found = slow_workers(ledger, place.nodes, place.roles, place.groups)
    found += _unexplained(slow_transfers(ledger, place.nodes, place.backend, expected.transfer_s), found)
    found += operation_rises(ledger, typical)
    found += _pattern_findings(ledger, place.nodes, typical, found, expected.shares)
    if times is not None:
        slower = time_findings(times, ledger.steps, median_of_known(ledger.ended_s))
        found += [_with_layers(f, ledger, expected.layers_s) for f in slower]
    result, refused = None, None
    try:
        result = what_if(ledger, WARM_UP)
    except TraceError as error:
        refused = str(error)
    silent = sorted(set(place.nodes) - set(ledger.ranks))
    notes = _silent(silent, "operations")
    ordered = tuple(sorted(found, key=lambda f: (-f.score, f.kind, f.ranks, f.subject)))
    return JobOperations(ordered, result, refused, times, ledger.ranks, ledger.notes + notes)


def analyse_sums(operations: pd.DataFrame, place: Place | None = None) -> JobOperations:
    """Findings and what-if of a job of which only sums by step are known (Kineto)."""
    place = place or Place()
    ledger = book_summed(operations)
    if ledger is None:
        has_rank = bool(operations["rank"].notna().any())
        lacks = "no profile names its steps (ProfilerStep)" if has_rank else "no profile says which rank it is of"
        return JobOperations((), None, f"{lacks}: ranks cannot be compared step by step", None, (), ())
    found = tuple(slow_in_profiles(ledger, operations, place.nodes, place.roles, place.groups))
    silent = sorted(set(place.nodes) - set(ledger.ranks))
    notes = (*ledger.notes, *_silent(silent, "profile"))
    result, refused = None, None
    try:
        result = what_if(ledger, 0, 1)
    except TraceError as error:
        refused = str(error)
    return JobOperations(found, result, refused, None, ledger.ranks, notes)


def _silent(ranks: Sequence[int], what: str) -> tuple[str, ...]:
    return (f"{len(ranks)} ranks left no {what}, the first is rank {ranks[0]}",) if ranks else ()


def _unexplained(transfers: list[Finding], workers: list[Finding]) -> list[Finding]:
    """Slow transfer is a consequence where a worker is slow already: it is kept, but as an echo."""
    if not any(w.score >= ACCUSES_FROM for w in workers):
        return transfers
    return [replace(t, is_echo=True, score=min(t.score, 0.2)) for t in transfers]


def _pattern_findings(
    ledger: Ledger, nodes: Mapping[int, str], typical: npt.NDArray[np.float64], found: list[Finding],
    shares: Mapping[str, tuple[float, float]],
) -> list[Finding]:  # fmt: skip
    """Patterns over the period of the strongest finding, or over the whole run, beside peers and baselines."""
    first = WARM_UP
    strongest = max(found, key=lambda f: f.score, default=None)
    if strongest is not None and strongest.iteration is not None:
        first = int(np.searchsorted(ledger.steps, strongest.iteration))
    period = typical[first:]
    if not np.isfinite(period).any():
        return []
    step_s = float(np.nanmedian(period))
    described = patterns(ledger, first, len(typical), shares)
    return [*pattern_findings(ledger, described, nodes, step_s), *share_findings(ledger, described, shares, step_s)]


def _with_layers(finding: Finding, ledger: Ledger, expected_s: Mapping[str, float]) -> Finding:
    """For a job that is slower than its baselines: how far each layer is beyond theirs, and where that begins."""
    if finding.kind != "slower_than_baselines" or not expected_s:
        return finding
    beyond = beyond_baselines(ledger, min(WARM_UP, len(ledger.steps) - 1), len(ledger.steps), expected_s)
    layer = begins_in(beyond, finding.excess_s or 0.0)
    begins = f": the difference begins in the {layer} layer" if layer else ": in no layer, but in waiting"
    return replace(finding, layer=layer, statement=f"{finding.statement}; layer by layer {in_words(beyond)}{begins}")


def time_findings(times: StepTimes, steps: npt.NDArray[np.int64], ended_s: npt.NDArray[np.float64] | None = None) -> list[Finding]:
    """Findings about step times alone: they point at no place."""
    found = []
    if times.onset is not None:
        worst = max(times.periods, key=lambda p: p.slowdown)
        index = int(np.searchsorted(steps, times.onset))
        at = float(ended_s[index - 1]) if ended_s is not None and index > 0 and np.isfinite(ended_s[index - 1]) else None
        share = 1 - 1 / worst.slowdown
        found.append(
            Finding(
                "step_time_rise", "temporal", strength(share),
                f"steps take {milliseconds(worst.step_time_s)} from step {times.onset} on, {worst.slowdown:.2f} times the best "
                f"level of {milliseconds(times.best_s)}", "step", iteration=times.onset, at_s=at, is_global=True,
                operation="step", excess_s=worst.step_time_s - times.best_s, share_of_step=share,
            )
        )  # fmt: skip
    if times.baseline_slowdown >= DEGRADED_FROM:
        share = 1 - 1 / times.baseline_slowdown
        found.append(
            Finding(
                "slower_than_baselines", "cross_job", strength(share),
                f"a step takes {milliseconds(times.typical_s)}, {times.baseline_slowdown:.2f} times the "
                f"{milliseconds(times.baseline_s)} of the baselines", "step", is_global=True, operation="step",
                excess_s=times.typical_s - times.baseline_s, share_of_step=share,
            )
        )  # fmt: skip
    return found
