"""The fourteen operation types of a training step, and what each takes part in."""

from __future__ import annotations

from enum import StrEnum


class Op(StrEnum):
    """Operation types as traces name them."""

    FORWARD = "forward-compute"
    BACKWARD = "backward-compute"
    FORWARD_SEND = "forward-send"
    FORWARD_RECV = "forward-recv"
    BACKWARD_SEND = "backward-send"
    BACKWARD_RECV = "backward-recv"
    PARAMS_GATHER = "params-all-gather"
    GRADS_SCATTER = "grads-reduce-scatter"
    GRADS_REDUCE = "separate-grads-all-reduce"
    LAYERNORM_REDUCE = "layernorm-grads-all-reduce"
    EMBEDDING_REDUCE = "embedding-grads-all-reduce"
    CLIP = "optimizer-clip-main-grad"
    OPTIMIZER = "optimizer"
    GC = "gc"


OPS = tuple(Op)
CODE = {op: code for code, op in enumerate(OPS)}

COMPUTE = frozenset({Op.FORWARD, Op.BACKWARD})
P2P = frozenset({Op.FORWARD_SEND, Op.FORWARD_RECV, Op.BACKWARD_SEND, Op.BACKWARD_RECV})
DP_STREAM = frozenset({Op.PARAMS_GATHER, Op.GRADS_SCATTER})
DP_SYNCED = frozenset({Op.PARAMS_GATHER, Op.GRADS_SCATTER, Op.GRADS_REDUCE, Op.CLIP})
COMMUNICATION = P2P | DP_SYNCED | {Op.LAYERNORM_REDUCE, Op.EMBEDDING_REDUCE}
"""Their ideal duration is the median transfer; that of the others is the mean duration."""

REPORTED_AS = {
    Op.FORWARD_SEND: "forward-pp-comm",
    Op.FORWARD_RECV: "forward-pp-comm",
    Op.BACKWARD_SEND: "backward-pp-comm",
    Op.BACKWARD_RECV: "backward-pp-comm",
}


class TraceError(ValueError):
    """A trace that cannot be analysed; the message is one line: what is wrong, and the mend."""
