"""Kinds of fault that the lab does not have, played on copies of its healthy jobs (tools: bench/heldout_lab.py, table: bench/heldout_table.py).

    python bench/heldout_kinds.py --data ../shared/data/lab --out /tmp/heldout

writes `archive/` (the lab's healthy jobs, and copies with faults) and `truth/`, to be measured with
`python bench/diagnose_lab.py --data /tmp/heldout`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heldout_lab import LabJob

HEALTHY = {
    "gpt-64-pretrain": ["job-7107", "job-7114", "job-7268"],
    "gpt-96-pretrain": ["job-7128", "job-7191"],
    "sft-48": ["job-7121", "job-7198", "job-7275"],
}
SITE = "/opt/venv/lib/python3.11/site-packages"
GLOO = "/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp"
CLOSED = f"RuntimeError: [{GLOO}/pair.cc:561] Connection closed by peer [10.77.0.%d]:%d. This is typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error."
RESET = f"RuntimeError: [{GLOO}/pair.cc:545] Read error [10.77.0.%d]:%d: Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the application."
WAITED = f"RuntimeError: [{GLOO}/unbound_buffer.cc:%d] Timed out waiting %d000ms for recv operation to complete"
REMOTE = "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2006, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer gpu-host<%d>:%d"
IN_REDUCE = ['  File "/workspace/train.py", line 227, in <module>', "    dist.all_reduce(flat, group=dp_group)",
             f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 4181, in all_reduce', "    work.wait()"]  # fmt: skip
IN_STEP = ['  File "/workspace/train.py", line 218, in <module>', "    logits = model(batch[:, :-1])"]
WAITS = [
    ("all_reduce", "torch/distributed/distributed_c10d.py", 4181),
    ("wrapper", "torch/distributed/c10d_logger.py", 83),
    ("<module>", "train.py", 227),
]
AT_IMPORT = ['  File "/workspace/train.py", line 9, in <module>', "    from modeling import GPT"]
Truth = dict[str, Any]
Kind = Callable[[LabJob, random.Random], Truth]


def truth(symptom: str, also: Sequence[str] = (), spatial: str | None = "localised", nodes: Sequence[str] = (),
          ranks: Sequence[int] = (), step: int | None = None, indicating: Sequence[str] = ()) -> Truth:  # fmt: skip
    return {"symptom": symptom, "symptom_also": list(also), "spatial": spatial, "faulty_nodes": list(nodes), "faulty_ranks": list(ranks),
            "onset_iteration": step, "indicating": list(indicating)}  # fmt: skip


def peers_fail(job: LabJob, at: float, origin: Sequence[int], rng: random.Random, how: str, after: float = 0.4) -> dict[int, float]:
    """Every other rank complains, one after another; with a time-out each at its own time."""
    ends = {}
    for place, rank in enumerate(r for r in job.places if r not in origin):
        ends[rank] = at + after + (0.15 if how != "timeout" else 1.3) * place
        words = {
            "closed": (CLOSED if rng.random() < 0.6 else RESET) % (rng.randrange(10, 16), rng.randrange(2000, 60000)),
            "timeout": WAITED % (rng.choice([78, 129]), 25),
            "nccl": REMOTE % (rng.randrange(4), rng.randrange(2000, 60000)),
        }[how]
        job.raise_in(rank, ends[rank], words, IN_REDUCE)
    return ends


def agents_end(job: LabJob, ends: Mapping[int, float], code: Mapping[int, int], skip: Sequence[str] = ()) -> float:
    """Each node's launcher reports its first failed rank; the node's other ranks end with it. Gives the last moment."""
    last = max(ends.values())
    for node in job.nodes:
        here = sorted((ends[r], r) for r in job.ranks_on(node) if r in ends)
        if not here or node in skip:
            continue
        at, first = here[0]
        others = {r: (code.get(r, 1) if r in ends and ends[r] <= at + 0.5 else -15) for r in job.ranks_on(node) if r != first}
        job.report(node, at + 0.3, first, code.get(first, 1), others)
        last = max(last, at + 0.8)
    return last


def pick(job: LabJob, rng: random.Random, low: int = 40, high: int = 80) -> tuple[int, str, int, float]:
    """A rank (never 0), its node, a step and a moment in it."""
    rank = rng.choice([r for r in job.places if r])
    step = rng.randrange(low, high)
    return rank, job.node(rank), step, job.step_at(step, "backward", rank)


def raises(summary: str, frames: Sequence[str] = IN_STEP, *, how: str = "closed", op: str = "backward", kernel: Sequence[str] = (),
           indicating: str = "", code: int = 1, also: Sequence[str] = ("crash",), prefix: str = "") -> Kind:  # fmt: skip
    """One rank raises something; its peers lose it."""

    def play(job: LabJob, rng: random.Random) -> Truth:
        rank, node, step, at = pick(job, rng)
        at = job.step_at(step, op, rank) + 0.005
        job.stop(at)
        if prefix:
            job.say(rank, at, prefix, is_prefixed=False)
        if summary:
            job.raise_in(rank, at, summary.replace("RANK", str(rank)), frames)
        for message in kernel:
            job.kernel(node, at - 0.5, message)
        ends = {rank: at + 0.2, **peers_fail(job, at, [rank], rng, how)}
        job.end_at(agents_end(job, ends, {rank: code}) + 3, "FAILED", 1)
        return truth("crash", also, nodes=[node], ranks=[rank], step=step, indicating=[indicating or summary.split(":")[0]])

    return play


def all_raise(summary: str, *, at_start: bool = False, code: int = 1, symptom: str = "crash", also: Sequence[str] = (),
              indicating: str = "", frames: Sequence[str] = IN_STEP) -> Kind:  # fmt: skip
    """Every rank raises the same within a second."""

    def play(job: LabJob, rng: random.Random) -> Truth:
        step = None if at_start else rng.randrange(40, 80)
        at = job.before_steps() if step is None else job.step_at(step, "backward")
        job.stop(at)
        ends = {}
        for rank in job.places:
            ends[rank] = at + rng.random() * 0.8
            if summary.startswith("usage"):
                job.say(rank, ends[rank], summary, is_prefixed=False)
            else:
                job.raise_in(rank, ends[rank], summary.replace("RANK", str(rank)), frames)
        job.end_at(agents_end(job, ends, dict.fromkeys(ends, code)) + 2, "FAILED", 1)
        return truth(symptom, also, "global", step=step, indicating=[indicating or summary.split(":")[0]])

    return play


def launch_on_one_node(summary: str, *, indicating: str, frames: Sequence[str] = AT_IMPORT) -> Kind:
    """All ranks of one node fail before they join; the others wait for them and give up."""

    def play(job: LabJob, rng: random.Random) -> Truth:
        node = rng.choice(job.nodes[1:])
        at = job.before_steps() - 20
        job.stop(at)
        ends = {}
        for rank in job.places:
            if rank in job.ranks_on(node):
                ends[rank] = at + 0.2
                job.raise_in(rank, ends[rank], summary, frames)
            else:
                ends[rank] = at + 60 + rank
                job.raise_in(rank, ends[rank], "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 6/8 clients joined.",
                             [f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 1764, in init_process_group'])  # fmt: skip
        job.end_at(agents_end(job, ends, {}) + 2, "FAILED", 1)
        return truth("launch_failure", ["crash"], nodes=[node], ranks=job.ranks_on(node), indicating=[indicating])

    return play


def stuck(frames: Sequence[tuple[str, str, int]], *, end: str = "timeout", op: str = "forward", rank0: bool = False,
          with_stacks: bool = True, symptom: str = "hang", also: Sequence[str] = ("comm_timeout",)) -> Kind:  # fmt: skip
    """One rank stops in the middle of something; the others wait in the next collective until someone ends the job."""

    def play(job: LabJob, rng: random.Random) -> Truth:
        rank, node, step, at = pick(job, rng)
        if rank0:
            rank, node = 0, job.node(0)
            step = next(o["step"] for o in job.ops[0] if o["op"] == "checkpoint" and o["step"] > 30)
            op_ = "checkpoint"
        else:
            op_ = op
        at = job.step_at(step, op_, rank) + 0.001
        job.stop_rank(rank, at)
        partner = [r for r in job.places if r != rank]
        here = {r: next((o["end_us"] for o in job.ops[r] if o["step"] == step and o["op"] == "backward"), 0) / 1e6 for r in partner}
        for r in partner:
            job.stop_rank(r, max(at, here[r] if not rank0 else at + 0.2))
        if with_stacks:
            job.stack(at + 8, {r: (frames if r == rank else WAITS) for r in job.places})
        if end == "timeout":
            ends = peers_fail(job, at + 25, [rank], rng, "timeout")
            job.end_at(agents_end(job, ends, {}) + 2, "FAILED", 1)
        else:
            job.told_to_end(at + 300)
            job.end_at(at + 305, end, 1)
        return truth(symptom, also, nodes=[node], ranks=[rank], step=step)

    return play


def slowed(op: str, extra: float, *, share: float = 1.0, whole_node: bool = False, everywhere: bool = False, state: str = "COMPLETED",
           metrics: Mapping[str, Callable[[float, float], Any]] | None = None, scored: bool = True) -> Kind:  # fmt: skip
    """One rank, one node or everybody takes longer from a step on."""

    def play(job: LabJob, rng: random.Random) -> Truth:
        rank, node, step, at = pick(job, rng, 35, 50)
        last = max(o["step"] for o in job.ops[rank])
        ranks = list(job.places) if everywhere else job.ranks_on(node) if whole_node else [rank]
        steps = [s for s in range(step, last) if rng.random() < share]
        delays = {(r, s): extra * rng.uniform(0.85, 1.15) for s in steps for r in ranks}
        job.slow(delays, op)
        for name, value in (metrics or {}).items():
            for n in job.nodes if everywhere else [node]:
                job.metric(n, name, at, value)
        if state != "COMPLETED":
            job.told_to_end(job.end)
            job.end_at(job.end + 4, state, 1)
        place = "global" if everywhere else "localised"
        one = "reduce" in op
        return truth("slowdown", ["time_limit"] if state == "TIMEOUT" else [], place, [] if everywhere else [node],
                     [] if everywhere else job.ranks_on(node) if one or whole_node else ranks, step if scored else None)  # fmt: skip

    return play


def main() -> None:
    from heldout_table import KINDS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lab"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    (given.out / "truth").mkdir(parents=True, exist_ok=True)
    for name in [n for names in HEALTHY.values() for n in names]:
        shutil.copytree(
            given.data / "archive" / name, given.out / "archive" / name, dirs_exist_ok=True, copy_function=shutil.copyfile
        )
        (given.out / "truth" / f"{name}.json").write_text((given.data / "truth" / f"{name}.json").read_text())
    tasks = list(HEALTHY)
    for number, (kind, play) in enumerate(KINDS.items()):
        rng = random.Random(f"heldout {kind}")
        task = tasks[number % 3]
        if kind.startswith("worker"):
            task = "gpt-96-pretrain"
        base = given.data / "archive" / rng.choice(HEALTHY[task])
        old = json.loads((base / "job.json").read_text())["nodes"]
        new = rng.sample([f"node{n:03d}" for n in range(1, 400)], len(old))
        job = LabJob(base, f"job-{8000 + number}", dict(zip(old, new, strict=True)))
        told = play(job, rng) | {"job_id": job.job_id, "fault": kind}
        if kind == "no_baseline":
            job.record["name"] = "one-of-a-kind"
            job.record["config"]["model"] = {"layers": 48, "hidden": 4096, "kind": "moe"}
        job.save(given.out / "archive")
        (given.out / "truth" / f"{job.job_id}.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
