"""Traces of layouts that nobody recorded, for tests and benchmarks: a job's steps, played without any launch delay.

The schedule is the usual one (one forward, one backward; interleaved when a stage holds several model chunks).
It is played here stream by stream, with none of the analysis' own code, so that one can check the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ml.stragglers.trace import Floats, Layout
from ml.stragglers.words import Op


@dataclass(frozen=True)
class Recipe:
    """What to play: seconds of each type, noise (share of the duration), slow cells {(stage, dp rank): factor}.

    `records_idle`: sends and receives without a peer are recorded too. `overlaps_dp`: gradients are scattered chunk
    by chunk while the backward pass goes on, and an all-reduce of the rest follows.
    """

    layout: Layout
    n_micro_batches: int = 8
    n_steps: int = 4
    noise: float = 0.0
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    records_idle: bool = False
    overlaps_dp: bool = False
    seed: int = 1
    forward_s: float = 0.1
    backward_s: float = 0.2
    transfer_s: float = 0.002


Key = tuple[int, Op, int]


def schedule(layout: Layout, stage: int, n_micro_batches: int) -> list[tuple[Op, int, int]]:
    """Computations of a stage in order: (direction, micro-batch, model chunk).

    >>> schedule(Layout(1, 2), 1, 2)
    [(<Op.FORWARD: 'forward-compute'>, 0, 0), (<Op.BACKWARD: 'backward-compute'>, 0, 0), \
(<Op.FORWARD: 'forward-compute'>, 1, 0), (<Op.BACKWARD: 'backward-compute'>, 1, 0)]
    """
    pp, vpp = layout.pp_size, layout.vpp_size
    total = n_micro_batches * vpp
    ahead = pp - stage - 1 if vpp == 1 else (pp - stage - 1) * 2 + (vpp - 1) * pp
    ahead = min(ahead, total)
    forward = [(Op.FORWARD, *_virtual(k, pp, vpp)) for k in range(total)]
    backward = [(Op.BACKWARD, mb, vpp - 1 - mc) for mb, mc in (_virtual(k, pp, vpp) for k in range(total))]
    order = forward[:ahead]
    for f, b in zip(forward[ahead:], backward):
        order += [f, b]
    return order + backward[total - ahead :]


def _virtual(k: int, pp: int, vpp: int) -> tuple[int, int]:
    """Micro-batch and chunk of the k-th virtual micro-batch."""
    return (k // (pp * vpp)) * pp + k % pp, (k % (pp * vpp)) // pp


class _Player:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.layout = recipe.layout
        self.random = np.random.default_rng(recipe.seed)
        self.start: dict[Key, Floats] = {}
        self.end: dict[Key, Floats] = {}
        self.about: dict[Key, tuple[int, int]] = {}
        self.orders = [schedule(self.layout, s, recipe.n_micro_batches) for s in range(self.layout.pp_size)]

    def duration(self, stage: int, seconds: float) -> Floats:
        shape = (self.recipe.n_steps, self.layout.dp_size)
        lengths = seconds * (1 + self.recipe.noise * self.random.random(shape))
        for (slow_stage, dp), factor in self.recipe.slow.items():
            if slow_stage == stage:
                lengths[:, dp] *= factor
        return lengths

    def put(self, key: Key, start: Floats, end: Floats, mc: int = -1, mb: int = -1) -> None:
        self.start[key], self.end[key], self.about[key] = start, end, (mc, mb)

    def everyone(self, start: Floats) -> Floats:
        return np.broadcast_to(start.max(axis=1, keepdims=True), start.shape)

    def play(self) -> None:
        zero = np.zeros((self.recipe.n_steps, self.layout.dp_size))
        for stage in range(self.layout.pp_size):
            if self.layout.dp_size > 1:
                before = zero
                for chunk in range(self.layout.vpp_size):
                    end = self.everyone(before) + self.recipe.transfer_s
                    self.put((stage, Op.PARAMS_GATHER, chunk), before, end, chunk)
                    before = end
        waiting = [_stage_steps(self, stage, zero) for stage in range(self.layout.pp_size)]
        while waiting:
            left = [steps for steps in waiting if next(steps, None) is not None]
            if len(left) == len(waiting) and not self._moved():
                raise RuntimeError("the schedule waits for itself")
            waiting = left
        self._tails()

    def _moved(self) -> bool:
        """Whether anything was played since the last call."""
        before, self._n_played = getattr(self, "_n_played", -1), len(self.end)
        return before != self._n_played

    def _tails(self) -> None:
        pp, dp = self.layout.pp_size, self.layout.dp_size
        r = self.recipe
        end = {s: self.end[self.last_compute(s)] for s in range(pp)}
        for s in range(pp):
            for op, seconds in ((Op.GC, 0.0), (Op.LAYERNORM_REDUCE, r.transfer_s)):
                self.put((s, op, 0), end[s], end[s] + seconds)
                end[s] = end[s] + seconds
        ends = (0, pp - 1)
        meet = np.maximum(end[0], end[pp - 1])
        for s in set(ends):
            self.put((s, Op.EMBEDDING_REDUCE, 0), end[s], meet + r.transfer_s)
            end[s] = meet + r.transfer_s
        if dp > 1:
            for s in range(pp):
                end[s] = self._dp_tail(s, end[s])
        all_start = np.maximum.reduce([end[s] for s in range(pp)])
        clip = self.everyone(all_start) + r.transfer_s
        for s in range(pp):
            self.put((s, Op.CLIP, 0), end[s], clip)
            self.put((s, Op.OPTIMIZER, 0), clip, clip + self.duration(s, 0.01))

    def last_compute(self, stage: int) -> Key:
        op = self.orders[stage][-1][0]
        return stage, op, self.recipe.n_micro_batches * self.layout.vpp_size - 1

    def _dp_tail(self, stage: int, end: Floats) -> Floats:
        transfer = self.recipe.transfer_s
        before = end
        chunks = range(self.layout.vpp_size)
        if self.recipe.overlaps_dp:
            before = self.end[stage, Op.PARAMS_GATHER, self.layout.vpp_size - 1]
            chunks = range(self.layout.vpp_size - 1, -1, -1)
        for number, chunk in enumerate(chunks):
            start = np.maximum(before, self._last_backward(stage, chunk)) if self.recipe.overlaps_dp else before
            before = self.everyone(start) + transfer
            self.put((stage, Op.GRADS_SCATTER, number), start, before, chunk)
        if not self.recipe.overlaps_dp:
            return before
        reduced = self.everyone(end) + transfer
        self.put((stage, Op.GRADS_REDUCE, 0), end, reduced)
        return np.maximum(reduced, before)

    def _last_backward(self, stage: int, chunk: int) -> Floats:
        backwards = [mc for op, _, mc in self.orders[stage] if op is Op.BACKWARD]
        last = max(k for k, mc in enumerate(backwards) if mc == chunk)
        return self.end[stage, Op.BACKWARD, last]


def _stage_steps(player: _Player, stage: int, zero: Floats) -> Iterator[bool]:
    """Play one stage; yield whenever it has to wait for another one."""
    layout, recipe = player.layout, player.recipe
    last_place = layout.pp_size * layout.vpp_size - 1
    order = player.orders[stage]
    first_backward = next(i for i, (op, _, _) in enumerate(order) if op is Op.BACKWARD)
    done: dict[Op, list[Floats]] = {Op.FORWARD: [], Op.BACKWARD: []}
    streams: dict[Op, Floats] = {}
    previous = zero
    ends: list[Floats] = []
    for op, mb, mc in order:
        recv, send = (Op.FORWARD_RECV, Op.FORWARD_SEND) if op is Op.FORWARD else (Op.BACKWARD_RECV, Op.BACKWARD_SEND)
        k, place = len(done[op]), mc * layout.pp_size + stage
        source = place - 1 if op is Op.FORWARD else place + 1
        start = previous
        has_source = 0 <= source <= last_place
        if has_source or recipe.records_idle:
            posted = np.maximum(streams.get(recv, zero), done[op][k - 1] if k else zero)
            if op is Op.BACKWARD and not k and first_backward >= 2:
                posted = np.maximum(posted, ends[first_backward - 2])
            key = (stage, recv, k)
            player.start[key] = posted
            player.about[key] = (-1, -1)
            if has_source:
                sender = (source % layout.pp_size, send, _index_of(player, source, op, mb))
                while sender not in player.start:
                    yield False
                together = np.maximum(posted, player.start[sender]) + recipe.transfer_s
                player.end[sender] = together
            else:
                together = posted + recipe.transfer_s
            player.end[key] = together
            streams[recv] = together
            start = np.maximum(start, together)
        if op is Op.FORWARD and layout.dp_size > 1 and not any(c == mc for o, _, c in order[: order.index((op, mb, mc))]):
            start = np.maximum(start, player.end[stage, Op.PARAMS_GATHER, mc])
        seconds = recipe.forward_s if op is Op.FORWARD else recipe.backward_s
        end = start + player.duration(stage, seconds)
        player.put((stage, op, k), start, end, mc, mb)
        done[op].append(end)
        ends.append(end)
        previous = end
        target = place + 1 if op is Op.FORWARD else place - 1
        has_target = 0 <= target <= last_place
        if has_target or recipe.records_idle:
            key = (stage, send, k)
            before = player.end.get((stage, send, k - 1))
            while k and before is None and (stage, send, k - 1) in player.start:
                yield False
                before = player.end.get((stage, send, k - 1))
            player.start[key] = end if before is None else np.maximum(end, before)
            player.about[key] = (-1, -1)
            if not has_target:
                player.end[key] = player.start[key] + recipe.transfer_s


def _index_of(player: _Player, place: int, op: Op, micro_batch: int) -> int:
    """The number that this computation has among its stage's computations of the same direction."""
    stage, chunk = place % player.layout.pp_size, place // player.layout.pp_size
    same = [(mb, mc) for o, mb, mc in player.orders[stage] if o is op]
    return same.index((micro_batch, chunk))


def columns(recipe: Recipe) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """A trace's columns, as `trace.arrange` takes them; times in seconds from the start of the step."""
    player = _Player(recipe)
    player.play()
    keys = sorted(player.start, key=lambda key: (key[0], key[1].value, key[2]))
    n_steps, n_dp = recipe.n_steps, recipe.layout.dp_size
    steps, dps = (grid.ravel() for grid in np.meshgrid(np.arange(n_steps), np.arange(n_dp), indexing="ij"))
    n = len(steps)
    return {
        "dp_rank": np.tile(dps, len(keys)).astype(np.int32),
        "stage": np.repeat([key[0] for key in keys], n).astype(np.int32),
        "step": np.tile(steps, len(keys)).astype(np.int64),
        "optype": np.repeat([key[1].value for key in keys], n),
        "start_ts": np.concatenate([player.start[key].ravel() for key in keys]),
        "duration": np.concatenate([(player.end[key] - player.start[key]).ravel() for key in keys]),
        "seq_id": np.repeat([key[2] for key in keys], n).astype(np.int32),
        "mc": np.repeat([player.about[key][0] for key in keys], n).astype(np.int32),
        "mb_id": np.repeat([player.about[key][1] for key in keys], n).astype(np.int32),
    }
