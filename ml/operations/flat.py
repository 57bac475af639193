"""The straggler what-if of a ledger: jobs without a pipeline, whose ranks meet in collectives.

Each rank is taken as a data-parallel worker of one stage. Its work becomes the model's computations, the transfer of the
collective in which most is spent becomes the gradient reduction, that of other job-wide ones the clip; collectives of
smaller groups count as part of the forward pass. What is left (data, checkpoints, unrecorded time) stands in the place
of garbage collection, which like it only delays its rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ml.operations.ledger import Ledger
from ml.stragglers.trace import Layout
from ml.stragglers.whatif import FIDELITY_LIMIT, WhatIf, analyse
from ml.stragglers.words import CODE, Op, TraceError

Floats = npt.NDArray[np.float64]

OTHER_WORK = "other work"
_NAMES = {Op.GC.value: OTHER_WORK, Op.GRADS_SCATTER.value: "gradient collective", Op.CLIP.value: "other collectives"}
_BY_KIND = {"forward": Op.FORWARD, "backward": Op.BACKWARD, "optimizer": Op.OPTIMIZER}
LEAST_STEPS = 5


def what_if(ledger: Ledger, first_step: int = 1, least_steps: int = LEAST_STEPS) -> WhatIf:
    """What-if analysis of the steps that all ranks recorded in full; `S_w` is by rank position, one stage.

    Steps before index `first_step` are start-up. Raises TraceError when fewer steps than `least_steps`, or fewer than
    two ranks, are left.
    """
    is_complete = np.isfinite(ledger.step_s).all(axis=0) & (np.arange(len(ledger.steps)) >= first_step)
    steps = np.flatnonzero(is_complete)
    n_ranks = len(ledger.ranks)
    if n_ranks < 2 or len(steps) < least_steps:
        raise TraceError(f"{n_ranks} ranks and {len(steps)} complete steps; at least 2 and {least_steps} are needed")
    seconds = _by_type(ledger, steps)
    layout = Layout(n_ranks, 1, world_size=n_ranks)
    result = analyse(_columns(seconds, ledger.steps[steps]), layout)
    recorded = float(ledger.step_s[:, steps].max(axis=0).mean())
    launch = recorded / result.t_s
    lacking = max(0, len(ledger.steps) - first_step - len(steps))
    notes = (f"{lacking} of {len(ledger.steps)} steps lack a rank, and were left out of the what-if",) if lacking else ()
    return replace(
        result,
        t_recorded_s=recorded,
        launch_slowdown=launch,
        is_faithful=1 / FIDELITY_LIMIT < launch < FIDELITY_LIMIT,
        by_type={_NAMES.get(name, name): value for name, value in result.by_type.items()},
        notes=notes,
    )


def _by_type(ledger: Ledger, steps: npt.NDArray[np.int64]) -> Mapping[Op, Floats]:
    """Seconds of each model operation, (steps, ranks); for collectives the transfer."""
    shape = (len(steps), len(ledger.ranks))
    seconds = {op: np.zeros(shape) for op in (Op.FORWARD, Op.BACKWARD, Op.GC, Op.OPTIMIZER)}
    for k, kind in enumerate(ledger.kinds):
        seconds[_BY_KIND.get(kind, Op.GC)] += ledger.work_s[k][:, steps].T
    if not ledger.collectives:
        return seconds
    spent: dict[str, float] = {}
    for c in ledger.collectives:
        spent[c.name] = spent.get(c.name, 0.0) + float(np.nansum(c.waited_s) + np.nansum(c.transfer_s))
    widest = max(max(len(m) for m in c.members) for c in ledger.collectives)
    main = max(sorted(spent), key=lambda name: spent[name])
    for c in ledger.collectives:
        transfer = np.nan_to_num(c.transfer_s[:, steps].T)
        is_wide = max(len(m) for m in c.members) == widest
        op = Op.GRADS_SCATTER if c.name == main else Op.CLIP if is_wide else Op.FORWARD
        seconds[op] = seconds.get(op, np.zeros(shape)) + transfer
    return seconds


def _columns(seconds: Mapping[Op, Floats], steps: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
    """Operations of one step one after another, each rank on its own until it waits for all at a collective."""
    order = [op for op in (Op.FORWARD, Op.BACKWARD, Op.GC, Op.GRADS_SCATTER, Op.CLIP, Op.OPTIMIZER) if op in seconds]
    shape = seconds[Op.FORWARD].shape
    now = np.zeros(shape)
    starts, durations = [], []
    for op in order:
        begin = now
        meets = op in (Op.GRADS_SCATTER, Op.CLIP)
        now = (now.max(axis=1, keepdims=True) if meets else now) + seconds[op]
        starts.append(begin.ravel())
        durations.append((now - begin).ravel())
    n = shape[0] * shape[1]
    micro = [0 if op in (Op.FORWARD, Op.BACKWARD) else -1 for op in order]
    return {
        "dp_rank": np.tile(np.tile(np.arange(shape[1]), shape[0]), len(order)),
        "stage": np.zeros(n * len(order), dtype=np.int64),
        "step": np.tile(np.repeat(steps, shape[1]), len(order)),
        "optype": np.repeat([CODE[op] for op in order], n),
        "start_ts": np.concatenate(starts),
        "duration": np.concatenate(durations),
        "seq_id": np.zeros(n * len(order), dtype=np.int64),
        "mc": np.repeat([0 if op in (Op.FORWARD, Op.BACKWARD, Op.GRADS_SCATTER) else -1 for op in order], n),
        "mb_id": np.repeat(micro, n),
    }
