"""The straggler what-if as one writes it first: pandas frames, a dictionary of dependencies, one scenario at a time.

It follows the same published formulas as `ml.stragglers`, shares no code with it, and serves as its yardstick: of the
figures, and of the time that they take. Virtual pipeline chunks and overlapped gradients are not covered.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pandas as pd

P2P = ("forward-send", "forward-recv", "backward-send", "backward-recv")
DP = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce", "optimizer-clip-main-grad")
COMM = (*P2P, *DP, "layernorm-grads-all-reduce", "embedding-grads-all-reduce")
PARTNER = {"forward-send": ("forward-recv", 1), "forward-recv": ("forward-send", -1),
           "backward-send": ("backward-recv", -1), "backward-recv": ("backward-send", 1)}  # fmt: skip


def group_key(row, pp):
    """Operations that wait for each other have the same key."""
    op, seq, stage = row
    if op in P2P:
        _, step = PARTNER[op]
        sender = stage if op.endswith("send") else stage + step
        return ("forward" if op.startswith("forward") else "backward", seq, sender)
    if op == "embedding-grads-all-reduce":
        return (op, seq)
    if op == "optimizer-clip-main-grad":
        return (op, seq)
    return (op, seq, stage)


def add_transfer(trace: pd.DataFrame, pp: int) -> pd.DataFrame:
    trace = trace.copy()
    trace["end"] = trace["start_ts"] + trace["duration"]
    keys = {row: group_key(row, pp) for row in set(zip(trace["optype"], trace["seq_id"], trace["stage"]))}
    trace["group"] = [str(keys[row]) for row in zip(trace["optype"], trace["seq_id"], trace["stage"])]
    trace["transfer"] = trace["duration"]
    synced = trace["optype"].isin(DP)
    for mask, by in ((synced, ["step", "group"]), (~synced, ["step", "dp_rank", "group"])):
        part = trace[mask]
        trace.loc[mask, "transfer"] = part["end"] - part.groupby(by)["start_ts"].transform("max")
    is_comm = trace["optype"].isin(COMM)
    trace.loc[~is_comm, "transfer"] = trace["duration"]
    trace.loc[trace["transfer"] <= -0.010, "transfer"] = 0.0
    return trace


def ideals(trace: pd.DataFrame) -> dict[str, float]:
    found = {}
    for op, part in trace.groupby("optype"):
        found[op] = part["transfer"].median() if op in COMM else part["transfer"].mean()
    return found


def dependencies(trace: pd.DataFrame):  # noqa: C901
    """Names of what each operation waits for, from the first step of dp rank 0."""
    first = trace[(trace["dp_rank"] == 0) & (trace["step"] == trace["step"].min())]
    waits = defaultdict(set)
    for stage, ops in first.groupby("stage"):
        ops = ops.sort_values(["start_ts", "seq_id", "optype"])
        names = {op: [(op, q, stage) for q in part["seq_id"].sort_values()] for op, part in ops.groupby("optype")}
        compute = [(o, q, stage) for o, q in zip(ops["optype"], ops["seq_id"]) if o.endswith("-compute")]
        chains = [
            compute,
            *(names.get(op, []) for op in P2P),
            names.get("params-all-gather", []) + names.get("grads-reduce-scatter", []),
        ]
        for chain in chains:
            for before, after in pairwise(chain):
                waits[after].add(before)
        for way in ("forward", "backward"):
            computes = names[f"{way}-compute"]
            for i, v in enumerate(names.get(f"{way}-recv", [])):
                waits[computes[i]].add(v)
                if i:
                    waits[v].add(computes[i - 1])
            for i, v in enumerate(names.get(f"{way}-send", [])):
                waits[v].add(computes[i])
        if "params-all-gather" in names:
            waits[names["forward-compute"][0]].add(names["params-all-gather"][0])
        b = next(i for i, v in enumerate(compute) if v[0] == "backward-compute")
        for op in ("backward-send", "backward-recv"):
            if b >= 2 and op in names:
                waits[names[op][0]].add(compute[b - 2])
        end = compute[-1]
        for op in ("gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter",
                   "optimizer-clip-main-grad", "optimizer"):  # fmt: skip
            for v in names.get(op, []):
                waits[v].add(end)
                end = v
    nodes = [(o, q, s) for o, q, s in zip(first["optype"], first["seq_id"], first["stage"])]
    return nodes, waits


def order(nodes, waits, pp):
    groups = defaultdict(list)
    for v in nodes:
        groups[group_key(v, pp)].append(v)
    of = {v: g for g, members in groups.items() for v in members}
    needs = {g: {of[w] for v in members for w in waits[v]} for g, members in groups.items()}
    done, result = set(), []
    while len(result) < len(groups):
        for g in groups:
            if g not in done and needs[g] <= done:
                done.add(g)
                result.append(groups[g])
    return result


def simulate(trace: pd.DataFrame, groups, waits, keep) -> pd.Series:
    """Step times when only the operations in the boolean column `keep` keep their own duration."""
    used = np.where(keep, trace["transfer"], trace["ideal"])
    frame = pd.DataFrame({"name": trace["name"], "step": trace["step"], "dp_rank": trace["dp_rank"], "used": used})
    table = frame.pivot(index=["step", "dp_rank"], columns="name", values="used")
    end = {}
    for members in groups:
        start = None
        for v in members:
            for w in waits[v]:
                start = end[w] if start is None else np.maximum(start, end[w])
        if start is None:
            start = pd.Series(0.0, index=table.index)
        if members[0][0] in DP:
            start = start.groupby("step").transform("max")
        for v in members:
            end[v] = start + table[str(v)]
    last = pd.concat([end[v] for v in end if v[0] == "optimizer"], axis=1).max(axis=1)
    return last.groupby("step").max()


def analyse(trace: pd.DataFrame, pp: int) -> dict:
    trace = trace.assign(
        optype=trace["optype"].astype(str), start_ts=trace["start_ts"].astype(float), duration=trace["duration"].astype(float)
    )
    trace = add_transfer(trace, pp)
    trace["ideal"] = trace["optype"].map(ideals(trace))
    trace["name"] = [str(v) for v in zip(trace["optype"], trace["seq_id"], trace["stage"])]
    nodes, waits = dependencies(trace)
    groups = order(nodes, waits, pp)

    def mean(keep):
        return simulate(trace, groups, waits, keep).mean()

    everything = pd.Series(True, index=trace.index)
    t, ideal = mean(everything), mean(~everything)
    names = trace["optype"].replace({"forward-send": "forward-pp-comm", "forward-recv": "forward-pp-comm",
                                     "backward-send": "backward-pp-comm", "backward-recv": "backward-pp-comm"})  # fmt: skip
    by_type = {op: mean(names == op) / ideal for op in sorted(names.unique())}
    by_dp = {dp: mean(trace["dp_rank"] == dp) / ideal for dp in sorted(trace["dp_rank"].unique())}
    by_stage = {s: mean(trace["stage"] == s) / ideal for s in sorted(trace["stage"].unique())}
    workers = sorted(((min(by_dp[d], by_stage[s]), d, s) for d in by_dp for s in by_stage), key=lambda w: (-w[0], w[1], w[2]))
    worst = workers[: math.ceil(0.03 * len(workers))]
    is_worst = pd.Series(False, index=trace.index)
    for _, dp, stage in worst:
        is_worst |= (trace["dp_rank"] == dp) & (trace["stage"] == stage)
    m_w = (t - mean(~is_worst)) / (t - ideal)
    m_s = (t - mean(trace["stage"] != pp - 1)) / (t - ideal)
    return {"S": t / ideal, "T": t, "T_ideal": ideal, "S_t": by_type, "S_dp": by_dp, "S_pp": by_stage, "M_W": m_w, "M_S": m_s}
