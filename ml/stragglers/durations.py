"""What each operation takes by itself: waiting taken out, and what it would take without stragglers."""

from __future__ import annotations

import numpy as np

from ml.stragglers.graph import Plan
from ml.stragglers.trace import Floats, Trace
from ml.stragglers.words import COMMUNICATION

_CLOCK_SLACK_S = 0.010
"""A transfer that seems to end this long before its last member started is a fault of the clocks: it counts as 0."""


def own_durations(trace: Trace, plan: Plan) -> Floats:
    """Seconds of work of each operation, (nodes, steps, dp ranks).

    Computations keep their duration. Communication loses its waiting: end - latest start in its group, in which
    data-parallel collectives count all dp ranks.
    """
    own = trace.duration_s.copy()
    for group in plan.groups:
        if trace.nodes[group.members[0]].op not in COMMUNICATION:
            continue
        members = list(group.members)
        latest = trace.start_s[members].max(axis=0)
        if group.is_dp_synced:
            latest = latest.max(axis=1, keepdims=True)
        own[members] = trace.start_s[members] + trace.duration_s[members] - latest
    own[own <= -_CLOCK_SLACK_S] = 0.0
    return own


def ideal_durations(trace: Trace, own: Floats) -> Floats:
    """Seconds of each node without stragglers: the median of its type for communication, the mean otherwise."""
    ideal = np.empty(len(trace.nodes))
    for op in {node.op for node in trace.nodes}:
        members = [v for v, node in enumerate(trace.nodes) if node.op is op]
        values = own[members]
        ideal[members] = np.median(values) if op in COMMUNICATION else values.mean()
    return ideal
