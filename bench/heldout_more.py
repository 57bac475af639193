"""Held-out kinds of fault that need more than raising, standing still or being slow."""

from __future__ import annotations

import random

from heldout_kinds import (  # fmt: skip
    IN_STEP,
    SITE,
    Kind,
    Truth,
    agents_end,
    peers_fail,
    pick,
    raises,
    stuck,
    truth,
)
from heldout_lab import LabJob, shifted

IN_LOADER = ['  File "/workspace/train.py", line 191, in <module>', "    batch = next(loader)",
             f'  File "{SITE}/torch/utils/data/dataloader.py", line 708, in __next__', "    data = self._next_data()"]  # fmt: skip
IN_WORKER = [*IN_LOADER, f'  File "{SITE}/torch/_utils.py", line 733, in reraise', "    raise exception"]
IN_SAVE = ['  File "/workspace/train.py", line 244, in save', "    torch.save(state, path)",
           f'  File "{SITE}/torch/serialization.py", line 943, in save']  # fmt: skip
ORIGINAL = 'Original Traceback (most recent call last):\n  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n    data = fetcher.fetch(index)\n'


def silent_exit(job: LabJob, rng: random.Random) -> Truth:
    rank, node, step, at = pick(job, rng)
    job.stop(at)
    ends = {rank: at + 0.1, **peers_fail(job, at, [rank], rng, "closed", 1.5)}
    job.end_at(agents_end(job, ends, {rank: 3}) + 3, "FAILED", 1)
    return truth("crash", nodes=[node], ranks=[rank], step=step)


def signalled(code: int, words: str, indicating: str, kernel: str = "", state: str = "FAILED", symptom: str = "crash") -> Kind:
    def play(job: LabJob, rng: random.Random) -> Truth:
        rank, node, step, at = pick(job, rng)
        job.stop(at)
        if words:
            job.say(rank, at, words, is_prefixed=False)
        if kernel:
            job.kernel(node, at, kernel.replace("PID", str(job.pid_of(rank))))
        ends = {rank: at + 0.2, **peers_fail(job, at, [rank], rng, "closed")}
        job.end_at(agents_end(job, ends, {rank: code}) + 3, state, 1)
        return truth(
            symptom,
            ["crash"] if symptom != "crash" else [],
            nodes=[node],
            ranks=[rank],
            step=step,
            indicating=[indicating] if indicating else [],
        )

    return play


def node_reboots(job: LabJob, rng: random.Random) -> Truth:
    _rank, node, step, at = pick(job, rng)
    mine = job.ranks_on(node)
    job.stop(at)
    ends = peers_fail(job, at, mine, rng, "closed", 9.0)
    job.metrics[node] = [r for r in job.metrics[node] if r[0] == "timestamp" or r[0] <= _iso(at)]
    kept = job.metrics.pop(node)
    job.end_at(agents_end(job, ends, {}) + 20, "FAILED", 1, {node: None})
    job.metrics[node] = kept
    return truth("node_failure", ["crash"], nodes=[node], ranks=mine, step=step)


def worker_killed(job: LabJob, rng: random.Random) -> Truth:
    return raises("RuntimeError: DataLoader worker (pid 31245) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
                  IN_LOADER, prefix="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", indicating="Bus error|bus error", op="data", also=("oom",))(job, rng)  # fmt: skip


def mismatch(job: LabJob, rng: random.Random) -> Truth:
    frames = [
        ("broadcast", "torch/distributed/distributed_c10d.py", 2731),
        ("wrapper", "torch/distributed/c10d_logger.py", 83),
        ("sync_params", "train.py", 88),
        ("<module>", "train.py", 231),
    ]
    return stuck(frames, op="dp-allreduce")(job, rng)


def one_rank_nan(job: LabJob, rng: random.Random) -> Truth:
    rank, node, step, at = pick(job, rng)
    job.stop(at)
    job.raise_in(
        rank,
        at,
        f"RuntimeError: rank {rank}, iteration {step}: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')",
        IN_STEP,
    )
    ends = {rank: at + 0.2, **peers_fail(job, at, [rank], rng, "closed")}
    job.end_at(agents_end(job, ends, {}) + 3, "FAILED", 1)
    return truth("loss_nonfinite", ["crash"], nodes=[node], ranks=[rank], step=step, indicating=["nan|NaN"])


def _iso(at: float) -> str:
    from heldout_lab import iso

    return iso(at)


def printed_nan(job: LabJob, rng: random.Random) -> Truth:
    import re

    step = rng.randrange(40, 80)
    for rows in job.logs.values():
        for row in rows:
            found = re.search(r"iteration +(\d+)/", row[1])
            if found and int(found[1]) >= step:
                row[1] = re.sub(r"(lm loss: )[\d.E+-]+", r"\1nan", re.sub(r"(grad norm: )[\d.E+-]+", r"\1nan", row[1]))
    return truth("loss_nonfinite", (), "none", step=step, indicating=["nan|NaN"])


def cancelled(state: str, symptom: str) -> Kind:
    def play(job: LabJob, rng: random.Random) -> Truth:
        at = job.step_at(rng.randrange(50, 90), "optimizer")
        job.stop(at)
        job.told_to_end(at)
        job.end_at(at + 5, state, 1)
        return truth(symptom, (), "none")

    return play


def noisy_but_fine(job: LabJob, rng: random.Random) -> Truth:
    rank = rng.choice([r for r in job.places if r])
    at = job.step_at(45)
    job.say(rank, at, "ERROR:wandb.sdk.lib.retry: Network error (ConnectionResetError), entering retry loop.", is_prefixed=False)
    job.say(
        rank,
        at + 1,
        "WARNING urllib3.connectionpool: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError': /api/runs",
        is_prefixed=False,
    )
    job.say(
        0,
        at + 2,
        "urllib3.exceptions.NewConnectionError: Failed to establish a new connection: [Errno 111] Connection refused; will retry",
        is_prefixed=False,
    )
    return truth("none", (), "none")


def hung_in_init(job: LabJob, rng: random.Random) -> Truth:
    rank = rng.choice([r for r in job.places if r])
    at = job.before_steps() - 15
    job.stop(at)
    job.log(rank, "stdout").clear()
    ends = {}
    for r in job.places:
        if r != rank:
            ends[r] = at + 60 + 0.7 * r
            job.raise_in(r, ends[r], f"torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to ({job.nodes[0]}, 29500)." if r % 2 else
                         "torch.distributed.DistStoreError: wait timeout after 60000ms, keys: /default_pg/0//cuda//0/store_based_barrier_key", [f'  File "{SITE}/torch/distributed/rendezvous.py", line 189, in _create_c10d_store'])  # fmt: skip
    job.end_at(agents_end(job, ends, {}) + 2, "FAILED", 1)
    return truth("launch_failure", ["hang", "comm_timeout"], nodes=[job.node(rank)], ranks=[rank], indicating=["timed out|timeout"])


def agent_alone(summary: str, first: bool, indicating: str) -> Kind:
    """The launcher of one node cannot start; no rank ever writes; the other launchers wait for it."""

    def play(job: LabJob, rng: random.Random) -> Truth:
        node = job.nodes[0] if first else rng.choice(job.nodes[1:])
        at = job.agent(node)[0][0] + 3
        job.stop(at)
        for name in [n for n in job.logs if not n.endswith("agent.log")]:
            del job.logs[name]
        job.ops, job.stacks = {}, {}
        for n in job.nodes:
            words = (
                summary
                if n == node
                else f"torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details. Timed out waiting for clients at {job.nodes[0]}:29400"
            )
            when = at if n == node else at + 60
            job.agent(n).extend(
                [when, x]
                for x in [
                    "Traceback (most recent call last):",
                    f'  File "{SITE}/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 160, in _create_tcp_store',
                    words,
                ]
            )
        job.end_at(at + 65, "FAILED", 1)
        return truth("launch_failure", ["crash"], nodes=[node], indicating=[indicating])

    return play


def rank0_evaluates(job: LabJob, rng: random.Random) -> Truth:
    step = next(o["step"] for o in job.ops[0] if o["op"] == "checkpoint" and o["step"] > 30)
    at = job.step_at(step, "checkpoint") + 0.05
    job.stop(at)
    job.raise_in(
        0,
        at,
        "ZeroDivisionError: division by zero",
        ['  File "/workspace/evaluate.py", line 61, in perplexity', "    return math.exp(total / n_tokens)"],
    )
    ends = {0: at + 0.2, **peers_fail(job, at, [0], rng, "closed")}
    job.end_at(agents_end(job, ends, {}) + 3, "FAILED", 1)
    return truth("crash", nodes=[job.node(0)], ranks=[0], step=step, indicating=["ZeroDivisionError"])


def noop(job: LabJob, rng: random.Random) -> Truth:
    return truth("none", (), "none")


def early_exit(job: LabJob, rng: random.Random) -> Truth:
    """A rank's data ends before the others': it leaves in good order, and they lose it."""
    rank, node, step, at = pick(job, rng)
    job.stop(at)
    job.say(rank, at, "data exhausted, leaving the loop", "stdout")
    ends = peers_fail(job, at, [rank], rng, "closed")
    job.end_at(
        agents_end(job, ends, {}, [node] if len(job.ranks_on(node)) == 1 else []) + 3,
        "FAILED",
        1,
        {node: 0} if len(job.ranks_on(node)) == 1 else {},
    )
    return truth("crash", ["hang"], nodes=[node], ranks=[rank], step=step)


def skewed_crash(job: LabJob, rng: random.Random) -> Truth:
    """A node that is no origin runs with a clock that is a minute behind, so that its echoes look early."""
    told = raises("ValueError: token id 70001 is out of range", op="forward")(job, rng)
    other = rng.choice([n for n in job.nodes if n not in told["faulty_nodes"]])
    for name, rows in job.logs.items():
        if name.startswith(f"logs/{other}/"):
            for row in rows:
                row[1] = shifted(row[1], -60.0)
    return told


def bad_checkpoint(job: LabJob, rng: random.Random) -> Truth:
    rank = rng.choice([r for r in job.places if r])
    at = job.before_steps()
    job.stop(at)
    job.raise_in(
        rank,
        at,
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        [f'  File "{SITE}/torch/serialization.py", line 1444, in load'],
    )
    ends = {rank: at + 0.2, **peers_fail(job, at, [rank], rng, "closed")}
    job.end_at(agents_end(job, ends, {}) + 3, "FAILED", 1)
    return truth("launch_failure", ["crash"], nodes=[job.node(rank)], ranks=[rank], indicating=["PytorchStreamReader"])


def interrupted(job: LabJob, rng: random.Random) -> Truth:
    """Somebody pressed Ctrl-C."""
    at = job.step_at(rng.randrange(50, 90), "optimizer")
    job.stop(at)
    for rank in job.places:
        job.raise_in(rank, at + 0.1, "KeyboardInterrupt", IN_STEP)
    for node in job.nodes:
        job.agent(node).extend(
            [at, x]
            for x in [
                "W1130 03:10:00.000000 20028 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGINT death signal, shutting down workers",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 20028 got signal: 2",
            ]
        )
    job.end_at(at + 5, "CANCELLED", 1)
    return truth("cancelled", (), "none")


def paused_once(job: LabJob, rng: random.Random) -> Truth:
    rank, _, step, _ = pick(job, rng)
    job.slow({(rank, step): 9.0}, "backward")
    return truth("slowdown", ["none"], None)


def slow_from_the_start(job: LabJob, rng: random.Random) -> Truth:
    rank, node, _, _ = pick(job, rng)
    job.slow({(rank, s): 0.5 * rng.uniform(0.85, 1.15) for s in range(1, 90)}, "backward")
    return truth("slowdown", (), "localised", [node], [rank])


def slow_saving(job: LabJob, rng: random.Random) -> Truth:
    steps = [o["step"] for o in job.ops[0] if o["op"] == "checkpoint" and o["step"] > 20]
    savers = [r for r in job.places if any(o["op"] == "checkpoint" for o in job.ops[r])]
    node = job.node(rng.choice(savers))
    mine = [r for r in savers if job.node(r) == node]
    job.slow({(r, s): 6.0 for r in mine for s in steps}, "checkpoint")
    return truth("slowdown", ["none"], None, step=steps[0])
