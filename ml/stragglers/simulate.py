"""Play one step through the dependency model, for all steps, dp ranks and scenarios at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ml.stragglers.graph import Plan
from ml.stragglers.trace import Floats, Trace
from ml.stragglers.words import OPS

Flags = npt.NDArray[np.bool_]
_BLOCK = 1 << 16
"""Values of one operation that are handled together: small enough to stay in the processor's cache."""


@dataclass(frozen=True)
class Scenarios:
    """Which operations keep their own duration; all others get the ideal one.

    `workers` has the shape (scenarios, stages, dp ranks), `types` (scenarios, operation types); an operation keeps its
    duration where both hold.
    """

    workers: Flags
    types: Flags

    def __len__(self) -> int:
        return len(self.workers)


def step_times(trace: Trace, plan: Plan, own: Floats, ideal: Floats, scenarios: Scenarios) -> Floats:
    """Seconds of each step in each scenario, (scenarios, steps)."""
    n_steps, n_dp = own.shape[1:]
    code = {op: number for number, op in enumerate(OPS)}
    keep = [scenarios.workers[:, node.stage, :] & scenarios.types[:, [code[node.op]]] for node in trace.nodes]
    block = max(1, _BLOCK // (len(scenarios) * n_dp))
    parts = []
    for first in range(0, n_steps, block):
        steps = slice(first, first + block)

        def duration(v: int, steps: slice = steps) -> Floats:
            return np.where(keep[v][:, None, :], own[v, steps][None], ideal[v])

        ends = _play(plan, duration, lambda start: start.max(axis=-1, keepdims=True))
        parts.append(ends.max(axis=-1))
    return np.concatenate(parts, axis=1)


def step_times_by_dp_rank(trace: Trace, plan: Plan, own: Floats, ideal: Floats) -> Floats:
    """Seconds of each step when one dp rank alone keeps its durations, (dp ranks, steps).

    All other dp ranks are then alike, so each scenario needs two of them: the kept one and one ideal companion.
    """
    n_steps, n_dp = own.shape[1:]
    has_companion = n_dp > 1
    block = max(1, _BLOCK // (2 * n_dp))
    parts = []
    for first in range(0, n_steps, block):
        steps = slice(first, first + block)

        def duration(v: int, steps: slice = steps) -> Floats:
            kept = own[v, steps]
            return np.stack([kept, np.full_like(kept, ideal[v])]) if has_companion else kept[None]

        ends = _play(plan, duration, lambda start: start.max(axis=0, keepdims=True))
        parts.append(ends.max(axis=0))
    return np.concatenate(parts, axis=0).T


def ideal_step_time(plan: Plan, ideal: Floats) -> float:
    """Seconds of a step without stragglers: all steps and dp ranks are alike."""
    ends = _play(plan, lambda v: np.array([ideal[v]]), lambda start: start)
    return float(ends[0])


def _play(plan: Plan, duration: Callable[[int], Floats], over_dp: Callable[[Floats], Floats]) -> Floats:
    """The latest end of the step's last operations, in the shape that `duration` gives."""
    end: dict[int, Floats] = {}
    for group, done in zip(plan.groups, plan.done_after):
        start: Floats | float = 0.0
        starts = [_latest(end, waits) for waits in group.waits_for]
        for each in starts:
            start = each if isinstance(start, float) else start if isinstance(each, float) else np.maximum(start, each)
        if group.is_dp_synced and not isinstance(start, float):
            start = over_dp(start)
        for v in group.members:
            end[v] = duration(v) + start
        for v in done:
            del end[v]
    latest = end[plan.last[0]]
    for v in plan.last[1:]:
        latest = np.maximum(latest, end[v])
    return latest


def _latest(end: dict[int, Floats], waits: tuple[int, ...]) -> Floats | float:
    """When the last of these has ended; 0 when there is nothing to wait for."""
    if not waits:
        return 0.0
    latest = end[waits[0]]
    for v in waits[1:]:
        latest = np.maximum(latest, end[v])
    return latest
