"""The what-if analysis of one trace: slowdown, waste, and what or who causes them.

Formulas (OSDI '25), T the mean simulated step time with the durations as they were, T_ideal without stragglers:
S = T / T_ideal, waste = 1 - 1/S; S_t, S_dp, S_pp = step time when only that type, data-parallel rank or stage keeps
its durations, over T_ideal; S_w = min(S_dp, S_pp) of a worker; M = (T - T_rem) / (T - T_ideal), where T_rem is the step
time with the worst 3 % of the workers (M_W) or the last stage (M_S) made ideal. None of these is clamped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ml.stragglers.durations import ideal_durations, own_durations
from ml.stragglers.graph import build
from ml.stragglers.sequences import forward_backward_correlation
from ml.stragglers.simulate import Flags, Scenarios, ideal_step_time, step_times, step_times_by_dp_rank
from ml.stragglers.trace import Floats, Layout, Trace, arrange
from ml.stragglers.words import OPS, REPORTED_AS, TraceError

WORST_SHARE = 0.03
FIDELITY_LIMIT = 1.05
"""A trace whose recorded steps take this many times the simulated ones is not explained by the model."""
DECOMPOSE_FROM = 1.03
"""Below this slowdown there is nothing to attribute."""
STRAGGLING_FROM = 1.1
MAIN_SHARE = 0.5
SEQUENCE_CORRELATION = 0.9


class Cause(StrEnum):
    """What the slowdown comes from, by the fixed rule of `cause_of`."""

    WORKER = "worker"
    STAGE = "stage"
    SEQUENCE = "sequence"
    NONE = "none"


@dataclass(frozen=True)
class Worker:
    """One (data-parallel rank, stage) and how slow the job would be through it alone."""

    dp_rank: int
    stage: int
    slowdown: float


@dataclass(frozen=True)
class Removal:
    """Step time with some operations made ideal (`t_rem_s`) or with only these kept (`t_add_s`), and their shares."""

    t_rem_s: float
    t_add_s: float
    share: float
    share_added: float


@dataclass(frozen=True)
class WhatIf:
    """Result of the analysis; maps are keyed by type, rank or stage, `steps` numbers the steps of `step_slowdown`."""

    slowdown: float
    waste: float
    t_s: float
    t_ideal_s: float
    t_recorded_s: float
    launch_slowdown: float
    is_faithful: bool
    by_type: dict[str, float]
    by_dp_rank: dict[int, float]
    by_stage: dict[int, float]
    workers: tuple[Worker, ...]
    worst_workers: tuple[Worker, ...]
    worst: Removal
    last_stage: Removal
    steps: tuple[int, ...]
    step_slowdown: tuple[float, ...]
    sequence_correlation: dict[int, float]
    cause: Cause
    notes: tuple[str, ...]


def analyse(columns: Mapping[str, npt.NDArray[np.generic]], layout: Layout) -> WhatIf:
    """What-if analysis of a trace's columns. Raises TraceError when the trace cannot be used (see `arrange`)."""
    return analyse_trace(arrange(columns, layout))


def analyse_trace(trace: Trace) -> WhatIf:
    """What-if analysis of an arranged trace."""
    plan = build(trace)
    own = own_durations(trace, plan)
    ideal = ideal_durations(trace, own)
    t_ideal = ideal_step_time(plan, ideal)
    if t_ideal <= 0:
        raise TraceError("all operations take no time; the durations are missing")
    types = _types(trace)
    times = step_times(trace, plan, own, ideal, _first_scenarios(trace, types))
    n_stages, n_types = trace.layout.pp_size, len(types)
    t_steps = times[0]
    t = float(t_steps.mean())
    means = times.mean(axis=1)
    by_type = dict(zip(types, (means[1 : 1 + n_types] / t_ideal).tolist()))
    by_stage = dict(enumerate((means[1 + n_types : 1 + n_types + n_stages] / t_ideal).tolist()))
    by_dp = dict(enumerate((step_times_by_dp_rank(trace, plan, own, ideal).mean(axis=1) / t_ideal).tolist()))
    workers = _workers(by_dp, by_stage)
    worst_workers = workers[: math.ceil(WORST_SHARE * len(workers))]
    rem, add = step_times(trace, plan, own, ideal, _worst_scenarios(trace, worst_workers)).mean(axis=1)
    worst = _removal(t, t_ideal, float(rem), float(add))
    # only the last stage kept is S_pp of that stage; all but the last stage kept is the scenario after the stages
    last = _removal(t, t_ideal, float(means[-1]), float(means[n_types + n_stages]))
    recorded = _recorded_step_times(trace)
    correlation = forward_backward_correlation(trace)
    slowdown = t / t_ideal
    launch = float(recorded.mean()) / t
    notes = trace.notes + _fidelity_note(launch)
    return WhatIf(
        slowdown, 1 - 1 / slowdown, t, t_ideal, float(recorded.mean()), launch, launch < FIDELITY_LIMIT,
        by_type, by_dp, by_stage, workers, worst_workers, worst, last,
        tuple(trace.steps.tolist()), tuple((t_steps / t_ideal).tolist()),
        correlation, cause_of(slowdown, worst.share, last.share, correlation, trace.layout.dp_size > 1), notes,
    )  # fmt: skip


def cause_of(
    slowdown: float,
    worst_share: float,
    last_stage_share: float,
    correlation: Mapping[int, float],
    has_replicas: bool = True,
) -> Cause:
    """The fixed rule, in this order: too little to attribute; few workers; sequence lengths; the last stage.

    Sequence lengths show in forward and backward times of the same micro-batch that rise and fall together in most
    stages; a single slow worker makes that happen in its own stage only. Without data-parallel replicas a worker is
    a stage: workers then come last.

    >>> cause_of(1.97, 1.0, 0.0, {0: 0.999, 1: 0.885, 2: 0.898, 3: 0.873})
    <Cause.WORKER: 'worker'>
    """
    if not slowdown >= DECOMPOSE_FROM:
        return Cause.NONE
    if has_replicas and worst_share >= MAIN_SHARE:
        return Cause.WORKER
    known = [r for r in correlation.values() if not math.isnan(r)]
    if known and sum(r >= SEQUENCE_CORRELATION for r in known) > len(known) / 2:
        return Cause.SEQUENCE
    if last_stage_share >= MAIN_SHARE and len(correlation) > 1:
        return Cause.STAGE
    return Cause.WORKER if worst_share >= MAIN_SHARE and len(correlation) > 1 else Cause.NONE


def _types(trace: Trace) -> list[str]:
    """Reported type names that occur: sends and receives of a direction count as one."""
    return sorted({REPORTED_AS.get(node.op, node.op.value) for node in trace.nodes})


def _first_scenarios(trace: Trace, types: list[str]) -> Scenarios:
    """All as it was; one type at a time; one stage at a time; all but the last stage."""
    n_stages, n_dp = trace.layout.pp_size, trace.layout.dp_size
    n = 1 + len(types) + n_stages + 1
    workers: Flags = np.ones((n, n_stages, n_dp), dtype=bool)
    kinds: Flags = np.ones((n, len(OPS)), dtype=bool)
    for i, name in enumerate(types, 1):
        kinds[i] = [REPORTED_AS.get(op, op.value) == name for op in OPS]
    for stage in range(n_stages):
        workers[1 + len(types) + stage] = (np.arange(n_stages) == stage)[:, None]
    workers[-1, -1] = False
    return Scenarios(workers, kinds)


def _worst_scenarios(trace: Trace, worst: tuple[Worker, ...]) -> Scenarios:
    """All but the worst workers; only the worst workers."""
    removed: Flags = np.zeros((trace.layout.pp_size, trace.layout.dp_size), dtype=bool)
    for worker in worst:
        removed[worker.stage, worker.dp_rank] = True
    return Scenarios(np.stack([~removed, removed]), np.ones((2, len(OPS)), dtype=bool))


def _workers(by_dp: Mapping[int, float], by_stage: Mapping[int, float]) -> tuple[Worker, ...]:
    """All workers, the slowest first; equal ones in order of their rank."""
    cells = [Worker(dp, stage, min(s_dp, s_pp)) for dp, s_dp in by_dp.items() for stage, s_pp in by_stage.items()]
    return tuple(sorted(cells, key=lambda w: (-w.slowdown, w.dp_rank, w.stage)))


def _removal(t: float, t_ideal: float, rem: float, add: float) -> Removal:
    lost = t - t_ideal
    if lost == 0:
        return Removal(rem, add, math.nan, math.nan)
    return Removal(rem, add, (t - rem) / lost, (add - t_ideal) / lost)


def _recorded_step_times(trace: Trace) -> Floats:
    """Seconds from the first start to the last end of each step, as recorded."""
    ends = (trace.start_s + trace.duration_s).max(axis=(0, 2))
    return np.asarray(ends - trace.start_s.min(axis=(0, 2)))


def _fidelity_note(launch: float) -> tuple[str, ...]:
    if launch < FIDELITY_LIMIT:
        return ()
    return (
        f"recorded steps take {launch:.3f} times the simulated ones (limit {FIDELITY_LIMIT}): "
        "the figures do not explain this trace",
    )
