"""Flight-recorder dumps of jobs that never ran, in PyTorch's own form: known faults, for tests and measuring.

A small training program (tensor, expert, data and pipeline groups, as Megatron lays ranks out) is played step by step.
Each rank's host enqueues ahead of its device until it must wait for a result; a device works in the order of enqueuing,
and a collective is over when every member's device has come to it. A fault stops a host or a device, spoils one call, or
holds the network; then everything else runs until nothing moves any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

BEGAN_NS = 1_758_610_505_592_849_034
TICK_NS = 5_000_000


class Fault(StrEnum):
    """What goes wrong on the faulty ranks."""

    NOTHING = "nothing"
    HOST_STOPS = "host_stops"
    DEVICE_STOPS = "device_stops"
    COMPLETION_UNSEEN = "completion_unseen"
    SKIPPED_CALL = "skipped_call"
    EXTRA_CALL = "extra_call"
    OTHER_OP = "other_op"
    OTHER_SIZE = "other_size"
    OTHER_DTYPE = "other_dtype"
    NETWORK = "network"


@dataclass(frozen=True)
class Layout:
    """Ranks as Megatron numbers them: tensor first, then data, then pipeline stages."""

    tp: int = 2
    dp: int = 2
    pp: int = 4

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.dp * self.pp

    def place(self, rank: int) -> tuple[int, int, int]:
        """Tensor, data and pipeline place of a rank."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def groups_of(self, rank: int) -> dict[str, tuple[str, str, tuple[int, ...]]]:
        """Name, description and ranks of a rank's groups, by kind."""
        t, d, p = self.place(rank)
        stage = self.tp * self.dp * p
        found = {"world": ("0", "default_pg", tuple(range(self.world)))}
        if self.tp > 1:
            ranks = tuple(stage + self.tp * d + i for i in range(self.tp))
            found["tp"] = (str(100 + rank // self.tp), "TENSOR_MODEL_PARALLEL_GROUP", ranks)
        if self.dp > 1:
            ranks = tuple(stage + self.tp * i + t for i in range(self.dp))
            found["dp"] = (str(10 + self.tp * p + t), "DATA_PARALLEL_GROUP_WITH_CP", ranks)
            found["ep"] = (str(300 + p), "EXPERT_MODEL_PARALLEL_GROUP", tuple(stage + i for i in range(self.tp * self.dp)))
        if self.pp > 1:
            ranks = tuple(self.tp * self.dp * i + self.tp * d + t for i in range(self.pp))
            found["pp"] = (str(200 + self.tp * d + t), "PIPELINE_MODEL_PARALLEL_GROUP", ranks)
        return found


@dataclass(frozen=True)
class Recording:
    """What is played and how it is recorded.

    The fault begins in `step` before the `at`-th call of the faulty ranks. `n_kept` entries stay in a rank's buffer, a
    few less on some; with `is_open_only` finished ones are left out. `has_starts` says that starts were recorded too.
    """

    layout: Layout = Layout()
    fault: Fault = Fault.NOTHING
    faulty: tuple[int, ...] = ()
    step: int = 6
    at: int = 9
    backend: str = "nccl"
    n_kept: int = 2000
    is_open_only: bool = False
    has_starts: bool = False
    undumped: tuple[int, ...] = ()
    n_steps: int = 9
    n_micro: int = 3


@dataclass(frozen=True)
class Call:
    """One call: the group, the operation, its arguments; for sends and receives the ranks at both ends."""

    kind: str
    op: str
    size: int = 4096
    dtype: str = "BFloat16"
    ends: tuple[int, int] | None = None
    is_sync: bool = False
    key: tuple[Any, ...] = ()


@dataclass
class _Rank:
    calls: list[Call]
    stop_host: int
    stop_device: int
    unseen: int
    n_host: int = 0
    n_device: int = 0
    sends: set[int] = field(default_factory=set)
    created: dict[int, int] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)


def dumps(recording: Recording) -> dict[int, dict[str, Any]]:
    """The dump of every rank that left one, by rank."""
    ranks = _played(recording)
    return {r: _dump(recording, r, one) for r, one in ranks.items() if r not in recording.undumped}


def _step(layout: Layout, rank: int, n_micro: int) -> list[Call]:
    """One step of a rank: forward and backward of each micro-batch, then gradients, then the norm that the host reads."""
    _, _, p = layout.place(rank)
    stride = layout.tp * layout.dp
    before, after = (rank - stride if p else None), (rank + stride if p < layout.pp - 1 else None)
    layer = [Call("tp", "_all_gather_base")] if layout.tp > 1 else []
    layer += [Call("ep", "all_to_all", 4096 + 7 * rank), Call("ep", "all_to_all", 4096)] if layout.dp > 1 else []
    layer += [Call("tp", "_reduce_scatter_base", 8192)] if layout.tp > 1 else []
    calls = []
    for source, target in ((before, after), (after, before)):
        for _ in range(n_micro):
            calls += [Call("pp", "recv", ends=(source, rank))] if source is not None else []
            calls += layer
            calls += [Call("pp", "send", ends=(rank, target))] if target is not None else []
    calls += [Call("dp", "_reduce_scatter_base", 1 << 20), Call("dp", "_all_gather_base", 1 << 19)] if layout.dp > 1 else []
    return [*calls, Call("world", "all_reduce", 1, "Float", is_sync=True)]


def _program(recording: Recording, rank: int) -> tuple[list[Call], int]:
    """All calls of a rank in order, and the place of the fault."""
    one = _step(recording.layout, rank, recording.n_micro)
    calls = one * recording.n_steps
    place = recording.step * len(one) + min(recording.at, len(one) - 1)
    if rank in recording.faulty:
        collective = next(i for i in range(place, len(calls)) if calls[i].ends is None and calls[i].op != "all_to_all")
        spoilt = calls[collective]
        other = "broadcast" if spoilt.op == "all_reduce" else "all_reduce"
        changed = {
            Fault.SKIPPED_CALL: [],
            Fault.EXTRA_CALL: [replace(spoilt, op="all_reduce", size=1, dtype="Float"), spoilt],
            Fault.OTHER_OP: [replace(spoilt, op=other)],
            Fault.OTHER_SIZE: [replace(spoilt, size=spoilt.size + 64)],
            Fault.OTHER_DTYPE: [replace(spoilt, dtype="Float" if spoilt.dtype != "Float" else "Double")],
        }.get(recording.fault, [spoilt])
        calls = [*calls[:collective], *changed, *calls[collective + 1 :]]
    return _numbered(calls, rank, recording.layout), place


def _numbered(calls: Sequence[Call], rank: int, layout: Layout) -> list[Call]:
    """Calls with the key under which members meet: group and number of the collective, or both ends and number."""
    count: dict[Any, int] = {}
    groups = layout.groups_of(rank)
    numbered = []
    for call in calls:
        name = groups[call.kind][0]
        line = (name, call.ends) if call.ends else (name,)
        count[line] = count.get(line, 0) + 1
        numbered.append(replace(call, key=(*line, count[line])))
    return numbered


def _played(recording: Recording) -> dict[int, _Rank]:
    ranks = {}
    never = 1 << 60
    for rank in range(recording.layout.world):
        calls, place = _program(recording, rank)
        is_faulty = rank in recording.faulty
        stops = {Fault.HOST_STOPS: (place, never, never), Fault.DEVICE_STOPS: (never, place, never),
                 Fault.COMPLETION_UNSEEN: (place + 20, place + 12, place)}  # fmt: skip
        host, device, unseen = stops.get(recording.fault, (never,) * 3) if is_faulty else (never,) * 3
        ranks[rank] = _Rank(calls, host, device, unseen)
    members = {g[0]: g[2] for rank in ranks for g in recording.layout.groups_of(rank).values()}
    held = _held(recording, ranks)
    tick = 0
    while _enqueue(ranks, tick) | _finish(ranks, members, held, tick):
        tick += 1
    return ranks


def _held(recording: Recording, ranks: Mapping[int, _Rank]) -> tuple[Any, ...]:
    """The collective that the network holds."""
    if recording.fault is not Fault.NETWORK:
        return ()
    rank = recording.faulty[0] if recording.faulty else 0
    _, place = _program(recording, rank)
    return next(call.key for call in ranks[rank].calls[place:] if call.ends is None)


def _enqueue(ranks: Mapping[int, _Rank], tick: int) -> bool:
    """Each host enqueues up to three calls, and none past a result that it must wait for."""
    moved = False
    for rank, one in ranks.items():
        for _ in range(3 + (rank + tick) % 2):
            i = one.n_host
            waits = i > 0 and one.calls[i - 1].is_sync and one.n_device < i
            if i >= min(len(one.calls), one.stop_host) or waits or i - one.n_device > 60:
                break
            one.created[i] = tick
            one.n_host += 1
            moved = True
    return moved


def _finish(ranks: Mapping[int, _Rank], members: Mapping[str, tuple[int, ...]], held: tuple[Any, ...], tick: int) -> bool:
    """Devices finish what every member has come to; sends go beside the rest and wait for their receiver only."""
    moved = False
    fronts = {}
    for rank, one in ranks.items():
        while one.n_device < min(one.n_host, one.stop_device) and one.calls[one.n_device].op == "send":
            one.sends.add(one.n_device)
            one.n_device += 1
            moved = True
        if one.n_device < min(one.n_host, one.stop_device):
            fronts[rank] = one.calls[one.n_device]
    for rank, call in fronts.items():
        if call.key == held:
            continue
        if call.op == "recv" and call.ends:
            sender = ranks[call.ends[0]]
            posted = next((i for i in sorted(sender.sends) if sender.calls[i].key == call.key), None)
            if posted is not None and sender.stop_device > posted:
                sender.sends.discard(posted)
                sender.finished[posted] = tick
                moved = _done(ranks[rank], tick)
        elif all(fronts.get(peer) and _agree(fronts[peer], call) for peer in members[call.key[0]]):
            moved = _done(ranks[rank], tick)
    return moved


def _agree(a: Call, b: Call) -> bool:
    """Whether two calls make one collective: NCCL cannot finish what differs in operation, type or amount of data."""
    is_even = a.op != "all_to_all"
    return a.key == b.key and a.op == b.op and a.dtype == b.dtype and (a.size == b.size or not is_even)


def _done(one: _Rank, tick: int) -> bool:
    one.finished[one.n_device] = tick
    one.n_device += 1
    return True


def _dump(recording: Recording, rank: int, one: _Rank) -> dict[str, Any]:
    groups = recording.layout.groups_of(rank)
    numbers = {kind: number for number, kind in enumerate(groups)}
    collective, p2p = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
    status = {
        kind: {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1} for kind in groups
    }
    entries = []
    for i in range(one.n_host):
        call = one.calls[i]
        (p2p if call.ends else collective)[call.kind] += 1
        p2p_number = p2p[call.kind] if call.ends else 0
        is_done = i in one.finished and i < one.unseen
        is_begun = is_done or i in one.sends or (i == one.n_device and i < min(one.stop_device, one.unseen))
        op_id = collective[call.kind] + p2p[call.kind]
        status[call.kind]["last_enqueued_collective"] = op_id
        if is_done:
            status[call.kind]["last_completed_collective"] = op_id
        state = "completed" if is_done else "started" if is_begun and recording.has_starts else "scheduled"
        name, description, members = groups[call.kind]
        entries.append(
            {
                "record_id": i, "pg_id": numbers[call.kind], "process_group": (name, description), "thread_name": "python3",
                "thread_id": "23456244340032", "collective_seq_id": collective[call.kind], "p2p_seq_id": p2p_number,
                "op_id": op_id, "profiling_name": f"{recording.backend}:{_words(call, rank, members)}",
                "time_created_ns": BEGAN_NS + TICK_NS * one.created[i], "input_sizes": [[call.size, 1, 5120]],
                "input_dtypes": [call.dtype], "output_sizes": [[call.size, 1, 5120]], "output_dtypes": [call.dtype], "state": state,
                "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": is_done,
                "timeout_ms": 600000, "is_p2p": call.ends is not None,
            }
        )  # fmt: skip
    kept = [e for e in entries if e["state"] != "completed"] if recording.is_open_only else entries
    return {
        "version": "2.9", "nccl_version": "2.27.3", "entries": kept[-(recording.n_kept - 3 * (rank % 4)) :],
        "pg_config": {name: {"name": name, "desc": text, "ranks": str(list(members))} for name, text, members in groups.values()},
        "pg_status": {str(numbers[kind]): told for kind, told in status.items()},
    }  # fmt: skip


def _words(call: Call, rank: int, members: Sequence[int]) -> str:
    if call.ends is None:
        return call.op
    own, other = (members.index(r) for r in (call.ends if call.op == "send" else call.ends[::-1]))
    return f"{call.op} {own}{'->' if call.op == 'send' else '<-'}{other}"
