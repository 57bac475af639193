"""The gate: operations of a trace become a rectangular array (operation, step, data-parallel rank), or are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ml.stragglers.words import CODE, OPS, Op, TraceError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

REQUIRED = ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id")


@dataclass(frozen=True)
class Layout:
    """Sizes of the parallel dimensions; tensor and sequence parallel ranks are collapsed in a trace."""

    dp_size: int
    pp_size: int
    tp_size: int = 1
    dsp_size: int = 1
    vpp_size: int = 1
    world_size: int | None = None

    @property
    def n_ranks(self) -> int:
        """Ranks of the job: dp · pp · tp · dsp."""
        return self.dp_size * self.pp_size * self.tp_size * self.dsp_size

    def check(self) -> None:
        """Raise TraceError unless every size is at least 1 and they multiply out to the world size."""
        sizes = {"dp_size": self.dp_size, "pp_size": self.pp_size, "tp_size": self.tp_size,
                 "dsp_size": self.dsp_size, "vpp_size": self.vpp_size}  # fmt: skip
        for name, size in sizes.items():
            if size < 1:
                raise TraceError(f"{name} is {size}; every parallel size must be at least 1")
        if self.world_size is not None and self.world_size != self.n_ranks:
            raise TraceError(
                f"world_size is {self.world_size}, but dp {self.dp_size} x pp {self.pp_size} x tp {self.tp_size} x "
                f"dsp {self.dsp_size} = {self.n_ranks}; correct the layout in the meta file"
            )


@dataclass(frozen=True)
class Node:
    """One operation that every step and every data-parallel rank has: a row of the arrays."""

    stage: int
    op: Op
    seq_id: int
    mc: int
    mb_id: int


@dataclass(frozen=True)
class Trace:
    """Operations of equal shape for every step and data-parallel rank.

    `start_s` and `duration_s` have the shape (nodes, steps, dp ranks), in seconds; `steps` holds the step numbers.
    `notes` says in sentences what was left out.
    """

    layout: Layout
    nodes: tuple[Node, ...]
    steps: Integers
    start_s: Floats
    duration_s: Floats
    notes: tuple[str, ...] = ()


def arrange(columns: Mapping[str, npt.NDArray[np.generic]], layout: Layout) -> Trace:
    """Check a trace and put it into arrays.

    `columns` are equal-length arrays named as in `REQUIRED`; `optype` holds names, or codes into `words.OPS` with -1
    for an unknown type. Raises TraceError for missing columns, a layout that does not multiply out, negative or
    missing times, ranks without operations, and operation counts that differ between ranks or steps.
    """
    layout.check()
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise TraceError(f"columns are missing: {', '.join(missing)}")
    codes, notes = _known(columns)
    known = codes >= 0
    fields = {name: columns[name] if known.all() else columns[name][known] for name in REQUIRED if name != "optype"}
    codes = codes[known]
    if not len(codes):
        raise TraceError("the trace holds no operation of a known type")
    _check_values(fields, layout)
    return _rectangular(codes, fields, layout, notes)


def _known(columns: Mapping[str, npt.NDArray[np.generic]]) -> tuple[Integers, tuple[str, ...]]:
    """Codes of the operation types, -1 for those that the model does not know, with a note about these."""
    optype = columns["optype"]
    if np.issubdtype(optype.dtype, np.integer):
        codes = optype.astype(np.int64)
        unknown = codes < 0
        names = ""
    else:
        words, inverse = np.unique(optype.astype(str), return_inverse=True)
        by_word = np.array([CODE.get(word, -1) for word in words], dtype=np.int64)  # type: ignore[call-overload]
        codes = by_word[inverse]
        unknown = codes < 0
        names = ": " + ", ".join(str(word) for word, code in zip(words, by_word) if code < 0)
    n_unknown = int(np.count_nonzero(unknown))
    note = (f"{n_unknown} operations of types outside the model were left out{names}",) if n_unknown else ()
    return codes, note


def _check_values(fields: Mapping[str, npt.NDArray[np.generic]], layout: Layout) -> None:
    for name in ("start_ts", "duration"):
        if not np.isfinite(fields[name].astype(np.float64)).all():
            raise TraceError(f"column {name} holds missing or non-finite values")
    negative = int(np.count_nonzero(fields["duration"].astype(np.float64) < 0))
    if negative:
        raise TraceError(f"{negative} of {len(fields['duration'])} operations have a negative duration")
    for name, size in (("dp_rank", layout.dp_size), ("stage", layout.pp_size)):
        low, high = int(fields[name].min()), int(fields[name].max())
        if low < 0 or high >= size:
            word = "dp_size" if name == "dp_rank" else "pp_size"
            raise TraceError(f"column {name} runs from {low} to {high}, but {word} is {size}")


def _rectangular(codes: Integers, fields: Mapping[str, npt.NDArray[np.generic]], layout: Layout, notes: tuple[str, ...]) -> Trace:
    steps, step_index = np.unique(fields["step"], return_inverse=True)
    dp, stage, seq = (fields[name].astype(np.int64) for name in ("dp_rank", "stage", "seq_id"))
    lane = step_index.astype(np.int64) * layout.dp_size + dp
    seq_low = int(seq.min())
    seq_span = int(seq.max()) - seq_low + 1
    identity = (stage * len(OPS) + codes) * seq_span + (seq - seq_low)
    n_identities = layout.pp_size * len(OPS) * seq_span
    n_lanes = len(steps) * layout.dp_size
    _check_counts(lane, stage, steps, layout)
    if n_lanes * n_identities >= 2**62:
        raise TraceError(f"column seq_id spans {seq_span} values; it must number the operations of a type within a step")
    order = np.argsort(lane * n_identities + identity, kind="stable")
    grid = order.reshape(n_lanes, -1)
    names = identity[grid]
    wrong = np.nonzero((names != names[0]).any(axis=1))[0]
    if len(wrong):
        step, rank = divmod(int(wrong[0]), layout.dp_size)
        raise TraceError(
            f"step {steps[step]}, dp rank {rank} has other operations (type and seq_id) than step {steps[0]}, dp rank 0"
        )
    first = grid[0]
    mc, mb = fields["mc"].astype(np.int64)[first], fields["mb_id"].astype(np.int64)[first]
    nodes = tuple(
        Node(int(s), OPS[c], int(q), int(m), int(b)) for s, c, q, m, b in zip(stage[first], codes[first], seq[first], mc, mb)
    )
    shape = (len(nodes), len(steps), layout.dp_size)
    by_node = np.ascontiguousarray(grid.T)
    return Trace(
        layout,
        nodes,
        steps.astype(np.int64),
        fields["start_ts"].astype(np.float64)[by_node].reshape(shape),
        fields["duration"].astype(np.float64)[by_node].reshape(shape),
        notes,
    )


def _check_counts(lane: Integers, stage: Integers, steps: npt.NDArray[np.generic], layout: Layout) -> None:
    """Every (step, dp rank) of a stage must hold as many operations as the first."""
    n_lanes = len(steps) * layout.dp_size
    counts = np.bincount(lane * layout.pp_size + stage, minlength=n_lanes * layout.pp_size)
    by_lane = counts.reshape(n_lanes, layout.pp_size)
    silent = np.nonzero(by_lane.reshape(len(steps), -1).sum(axis=0) == 0)[0]
    if len(silent):
        rank, at = divmod(int(silent[0]), layout.pp_size)
        raise TraceError(f"{len(silent)} workers have no operations, the first is dp rank {rank}, stage {at}")
    usual = np.median(by_lane, axis=0).astype(np.int64)
    wrong = np.argwhere(by_lane != usual)
    if len(wrong):
        step, rank = divmod(int(wrong[0][0]), layout.dp_size)
        at = int(wrong[0][1])
        raise TraceError(
            f"operation counts differ: step {steps[step]}, dp rank {rank}, stage {at} has {by_lane[wrong[0][0], at]} "
            f"operations, most have {usual[at]} ({len(wrong)} such cells)"
        )
