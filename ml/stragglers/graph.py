"""What waits for what within one step: the dependency model, built once and shared by all steps and dp ranks.

Rules as published (OSDI '25): computations of a stage run one after another; each of the four point-to-point streams
and the data-parallel stream of a stage is a chain; a receive comes before its computation and follows the previous
computation of its direction; a computation comes before its send; the step ends with a fixed tail.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from ml.stragglers.trace import Trace
from ml.stragglers.words import COMPUTE, DP_STREAM, DP_SYNCED, P2P, Op, TraceError

_TAIL = (Op.GC, Op.LAYERNORM_REDUCE, Op.EMBEDDING_REDUCE)


@dataclass(frozen=True)
class Group:
    """Operations that finish together: one, a send and its receive, or one collective across stages.

    `members` are node numbers; `waits_for` are, for each member, the nodes that must have ended before it starts.
    `is_dp_synced`: it also waits for the same group of every other data-parallel rank.
    """

    members: tuple[int, ...]
    waits_for: tuple[tuple[int, ...], ...]
    is_dp_synced: bool


@dataclass(frozen=True)
class Plan:
    """Groups in an order in which each comes after all that it waits for, and the nodes that nobody needs any more."""

    groups: tuple[Group, ...]
    done_after: tuple[tuple[int, ...], ...]
    last: tuple[int, ...]


@dataclass
class _Stage:
    """Node numbers of one stage by type, in recorded order; sends and receives in order of their numbers."""

    compute: list[int] = field(default_factory=list)
    by_op: dict[Op, list[int]] = field(default_factory=lambda: defaultdict(list))
    by_start: list[int] = field(default_factory=list)


class _Builder:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.nodes = trace.nodes
        self.n_chunks = 1 + max([n.mc for n in trace.nodes if n.op in COMPUTE], default=0)
        self.waits: list[set[int]] = [set() for _ in trace.nodes]
        self.stages = self._stages()
        self.partner: dict[int, int] = {}

    def _stages(self) -> list[_Stage]:
        """Recorded order is that of dp rank 0 in the first step: by start, number, type."""
        stages = [_Stage() for _ in range(self.trace.layout.pp_size)]
        start = self.trace.start_s[:, 0, 0]
        for v in sorted(range(len(self.nodes)), key=lambda v: (start[v], self.nodes[v].seq_id, self.nodes[v].op.value)):
            stage = stages[self.nodes[v].stage]
            stage.by_start.append(v)
            stage.by_op[self.nodes[v].op].append(v)
            if self.nodes[v].op in COMPUTE:
                stage.compute.append(v)
        for stage in stages:
            for op, ops in stage.by_op.items():
                if op in P2P:
                    ops.sort(key=lambda v: (self.nodes[v].seq_id, start[v]))
        return stages

    def _chain(self, nodes: list[int]) -> None:
        for before, after in pairwise(nodes):
            self.waits[after].add(before)

    def _place(self, v: int) -> int:
        """Number of a computation's model chunk along the whole model, from 0."""
        return max(self.nodes[v].mc, 0) * self.trace.layout.pp_size + self.nodes[v].stage

    def build(self) -> Plan:
        for number, stage in enumerate(self.stages):
            self._chain(stage.compute)
            self._chain([v for v in stage.by_start if self.nodes[v].op in DP_STREAM])
            self._pipeline_streams(number, stage)
            self._gather_first(stage)
            self._tail(stage)
        self._pair()
        return _plan(self.nodes_in_groups(), self.waits, self.trace)

    # -- point to point

    def _pipeline_streams(self, number: int, stage: _Stage) -> None:
        self.attached: dict[tuple[Op, int, int], int]
        if number == 0:
            self.attached = {}
        for compute_op, recv_op, send_op in (
            (Op.FORWARD, Op.FORWARD_RECV, Op.FORWARD_SEND),
            (Op.BACKWARD, Op.BACKWARD_RECV, Op.BACKWARD_SEND),
        ):
            computes = stage.by_op[compute_op]
            index = {v: i for i, v in enumerate(computes)}
            for op in (recv_op, send_op):
                stream = stage.by_op[op]
                self._chain(stream)
                for v, compute in zip(stream, self._computes_of(op, stream, computes, number)):
                    self.attached[op, self.nodes[compute].mb_id, self._place(compute)] = v
                    if op is send_op:
                        self.waits[v].add(compute)
                        continue
                    self.waits[compute].add(v)
                    if index[compute]:
                        self.waits[v].add(computes[index[compute] - 1])
        self._first_backward(stage)

    def _computes_of(self, op: Op, stream: list[int], computes: list[int], stage: int) -> list[int]:
        """The computation of each operation of a stream: of all, or of those that have a peer to talk to."""
        if not stream:
            return []
        if len(stream) == len(computes):
            return computes
        peers = [v for v in computes if self._peer_place(op, self._place(v)) is not None]
        if len(stream) == len(peers):
            return peers
        raise TraceError(
            f"stage {stage} has {len(stream)} {op.value} operations, but {len(computes)} computations in that direction, "
            f"{len(peers)} of them with a peer; sends and receives cannot be matched"
        )

    def _peer_place(self, op: Op, place: int) -> int | None:
        """The chunk at the other end, or None at the ends of the model."""
        step = 1 if op in (Op.FORWARD_SEND, Op.BACKWARD_RECV) else -1
        other = place + step
        return other if 0 <= other < self.n_chunks * self.trace.layout.pp_size else None

    def _first_backward(self, stage: _Stage) -> None:
        """The first backward transfer waits for the second-last forward before the first backward computation."""
        first = next((i for i, v in enumerate(stage.compute) if self.nodes[v].op is Op.BACKWARD), None)
        if first is None or first < 2:
            return
        for op in (Op.BACKWARD_SEND, Op.BACKWARD_RECV):
            if stage.by_op[op]:
                self.waits[stage.by_op[op][0]].add(stage.compute[first - 2])

    def _pair(self) -> None:
        for send, recv in ((Op.FORWARD_SEND, Op.FORWARD_RECV), (Op.BACKWARD_SEND, Op.BACKWARD_RECV)):
            for (op, micro_batch, place), v in self.attached.items():
                if op is not send:
                    continue
                other = self._peer_place(send, place)
                peer = None if other is None else self.attached.get((recv, micro_batch, other))
                if peer is not None:
                    self.partner[v], self.partner[peer] = peer, v

    # -- start and end of the step

    def _gather_first(self, stage: _Stage) -> None:
        gathers = stage.by_op[Op.PARAMS_GATHER]
        for chunk in range(self.n_chunks):
            first = next((v for v in stage.by_op[Op.FORWARD] if max(self.nodes[v].mc, 0) == chunk), None)
            if first is None:
                continue
            for v in gathers:
                if self.nodes[v].mc in (chunk, -1):
                    self.waits[first].add(v)

    def _tail(self, stage: _Stage) -> None:
        end = stage.compute[-1:]
        for op in _TAIL:
            end = self._append(end, stage.by_op[op])
        scatters, reduces = stage.by_op[Op.GRADS_SCATTER], stage.by_op[Op.GRADS_REDUCE]
        if reduces:
            self._overlapped(stage, scatters)
            end = [*self._append(end, reduces), *scatters[-1:]]
        else:
            end = self._append(end, scatters)
        end = self._append(end, stage.by_op[Op.CLIP])
        self._append(end, stage.by_op[Op.OPTIMIZER])

    def _append(self, end: list[int], ops: list[int]) -> list[int]:
        if not ops:
            return end
        self._chain(ops)
        self.waits[ops[0]].update(end)
        return ops[-1:]

    def _overlapped(self, stage: _Stage, scatters: list[int]) -> None:
        """With overlapped data parallelism a chunk's reduce-scatter waits for its last backward only."""
        for v in scatters:
            chunk = self.nodes[v].mc
            backward = [b for b in stage.by_op[Op.BACKWARD] if chunk in (-1, max(self.nodes[b].mc, 0))]
            self.waits[v].update(backward[-1:])

    # -- groups

    def nodes_in_groups(self) -> list[tuple[int, ...]]:
        groups: dict[object, list[int]] = defaultdict(list)
        for v, node in enumerate(self.nodes):
            if v in self.partner:
                key: object = ("p2p", min(v, self.partner[v]))
            elif node.op in (Op.CLIP, Op.EMBEDDING_REDUCE):
                key = (node.op, node.seq_id)
            else:
                key = v
            groups[key].append(v)
        return [tuple(members) for members in groups.values()]


def build(trace: Trace) -> Plan:
    """The plan of one step. Raises TraceError when sends and receives do not match, or wait in a circle."""
    return _Builder(trace).build()


def _plan(groups: list[tuple[int, ...]], waits: list[set[int]], trace: Trace) -> Plan:
    """Order the groups (Kahn), smallest number first among those that are ready in the same round."""
    group_of = {v: g for g, members in enumerate(groups) for v in members}
    needs = [{group_of[w] for v in members for w in waits[v]} for members in groups]
    followers: list[list[int]] = [[] for _ in groups]
    for g, needed in enumerate(needs):
        for other in needed:
            followers[other].append(g)
    left = [len(needed) for needed in needs]
    ready = [g for g, n in enumerate(left) if n == 0]
    order: list[int] = []
    while ready:
        order += ready
        following = []
        for g in ready:
            for after in followers[g]:
                left[after] -= 1
                if left[after] == 0:
                    following.append(after)
        ready = sorted(following)
    if len(order) < len(groups):
        stuck = next(trace.nodes[groups[g][0]] for g, n in enumerate(left) if n)
        raise TraceError(f"operations wait for each other in a circle, at {stuck.op.value}_{stuck.seq_id}_{stuck.stage}")
    return _with_lifetimes([groups[g] for g in order], waits, trace)


def _with_lifetimes(groups: list[tuple[int, ...]], waits: list[set[int]], trace: Trace) -> Plan:
    last_use = {v: i for i, members in enumerate(groups) for v in members}
    for i, members in enumerate(groups):
        for v in members:
            for w in waits[v]:
                last_use[w] = max(last_use[w], i)
    ends = [v for v, node in enumerate(trace.nodes) if node.op is Op.OPTIMIZER]
    last = tuple(ends or range(len(trace.nodes)))
    kept = set(last)
    done: list[list[int]] = [[] for _ in groups]
    for v, i in last_use.items():
        if v not in kept:
            done[i].append(v)
    made = tuple(
        Group(
            members,
            tuple(tuple(sorted(waits[v])) for v in members),
            trace.nodes[members[0]].op in DP_SYNCED,
        )
        for members in groups
    )
    return Plan(made, tuple(tuple(sorted(d)) for d in done), last)
