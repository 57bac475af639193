"""Do forward and backward times of a micro-batch rise and fall together, as sequence lengths make them?"""

from __future__ import annotations

import math

import numpy as np

from ml.stragglers.trace import Trace
from ml.stragglers.words import Op


def forward_backward_correlation(trace: Trace) -> dict[int, float]:
    """Pearson's r between forward and backward time of the same micro-batch, by stage; NaN where it is undefined.

    Stages are never pooled, and neither are the model chunks of a stage: each chunk's mean is taken out first, since
    chunks of different size would look like sequences of different length.
    """
    return {stage: _of_stage(trace, stage) for stage in range(trace.layout.pp_size)}


def _of_stage(trace: Trace, stage: int) -> float:
    pairs: dict[int, tuple[list[int], list[int]]] = {}
    backward = {(node.mc, node.mb_id): v for v, node in enumerate(trace.nodes) if node.op is Op.BACKWARD and node.stage == stage}
    for v, node in enumerate(trace.nodes):
        if node.op is Op.FORWARD and node.stage == stage and (node.mc, node.mb_id) in backward:
            forwards, backwards = pairs.setdefault(node.mc, ([], []))
            forwards.append(v)
            backwards.append(backward[node.mc, node.mb_id])
    if not pairs:
        return math.nan
    x = np.concatenate([_centred(trace, forwards) for forwards, _ in pairs.values()])
    y = np.concatenate([_centred(trace, backwards) for _, backwards in pairs.values()])
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


def _centred(trace: Trace, nodes: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = trace.duration_s[nodes].ravel()
    return values - values.mean()
