"""Small jobs of other frameworks and launchers, logs only: healthy ones, and ones that end badly in one of eleven ways.

    python bench/heldout_logs.py --out /tmp/heldout-logs

writes `archive/` and `truth/` for `python bench/diagnose_lab.py --data /tmp/heldout-logs`. The layouts are those that the
frameworks print; two nodes of four ranks each.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime
from pathlib import Path

from heldout_layouts import FRAMEWORKS, NODES, START, Framework, Run, node_of

EXCEPTION = ["Traceback (most recent call last):", '  File "/code/pretrain.py", line 311, in main', "    loss = train_step(batch)",
             '  File "/code/model.py", line 88, in forward', "    return self.embed(x)", "IndexError: index 51200 is out of bounds for axis 0 with size 50304"]  # fmt: skip
OOM = ["Traceback (most recent call last):", '  File "/code/pretrain.py", line 311, in main', "    loss = train_step(batch)",
       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB (GPU 1; 79.15 GiB total capacity; 74.20 GiB already allocated)"]  # fmt: skip
EVERYWHERE = [
    "Traceback (most recent call last):",
    '  File "/code/pretrain.py", line 40, in main',
    "    cfg = load(args.config)",
    "KeyError: 'warmup_ratio'",
]


def timed_out(run: Run, rank: int) -> list[str]:
    return [f"[E{run.stamp('%m%d %H:%M:%S.US')}123 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8841, OpType=ALLREDUCE, NumelIn=131072000, NumelOut=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.",
            f"[E{run.stamp('%m%d %H:%M:%S.US')}223 ProcessGroupNCCL.cpp:683] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down."]  # fmt: skip


DISK = [
    "Traceback (most recent call last):",
    '  File "/code/pretrain.py", line 402, in save',
    "    torch.save(state, path)",
    "OSError: [Errno 28] No space left on device",
]
SAID: dict[str, list[str]] = {"exception": EXCEPTION, "exception_bare": EXCEPTION, "gpu_oom": OOM, "disk_full": DISK}
"""What the rank that fails says, by the way in which the job ends."""
CODES = {"killed": -9, "segv": -11}
ENDED = {"cancelled": ("CANCELLED", "cancelled", ""), "time_limit": ("TIMEOUT", "time_limit", " DUE TO TIME LIMIT")}
QUIET = ("healthy_1", "healthy_2", "healthy_3")
KINDS = (*QUIET, *SAID, *CODES, *ENDED, "watchdog", "all_raise", "node_lost")
MORE: dict[str, dict[str, object]] = {
    "exception": {"indicating": ["IndexError"]},
    "exception_bare": {"indicating": ["IndexError"], "spatial": None},
    "gpu_oom": {"symptom": "oom", "symptom_also": ["crash"], "indicating": ["out of memory"]},
    "disk_full": {"indicating": ["No space left"]},
    "watchdog": {"symptom": "hang", "symptom_also": ["comm_timeout"], "indicating": ["[Tt]imed? ?out|timeout"]},
    "node_lost": {"symptom": "node_failure", "symptom_also": ["crash"], "faulty_ranks": []},
    "all_raise": {
        "symptom": "launch_failure",
        "symptom_also": ["crash"],
        "spatial": "global",
        "faulty_nodes": [],
        "faulty_ranks": [],
        "indicating": ["KeyError"],
    },
    **{
        kind: {"symptom": symptom, "spatial": "none", "faulty_nodes": [], "faulty_ranks": []}
        for kind, (_, symptom, _) in ENDED.items()
    },
    **{kind: {"symptom": "none", "spatial": "none", "faulty_nodes": [], "faulty_ranks": []} for kind in QUIET},
}


def told_to_end(run: Run, framework: Framework, why: str) -> None:
    """The scheduler ends all; ranks say that they were told to."""
    run.put(
        "slurm-81234.out", f"slurmstepd: error: *** JOB 81234 ON {NODES[0]} CANCELLED AT {run.stamp('%Y-%m-%dT%H:%M:%S')}{why} ***"
    )
    for rank in range(8):
        framework.say(run, rank, "Received SIGTERM, shutting down")


def fail(kind: str, framework: Framework, run: Run, rank: int) -> None:
    """One rank fails, the others follow; where all raise or none does, each says the same."""
    order = [rank, *(r for r in range(8) if r != rank)]
    gone = range(rank // 4 * 4, rank // 4 * 4 + 4) if kind == "node_lost" else ()
    for place, who in enumerate(order):
        run.at += 0.3 if kind != "watchdog" else 605 if place == 1 else 0.2
        lines = SAID.get(kind, []) if who == rank else timed_out(run, who) if kind == "watchdog" else framework.lost
        for line in EVERYWHERE if kind == "all_raise" else () if who in gone else lines:
            framework.say(run, who, line)
        if place == 0 and kind not in ("watchdog", "node_lost"):
            framework.died(run, rank, CODES.get(kind, 1))
    if kind == "watchdog":
        framework.died(run, order[1], 1)
    if kind == "node_lost":
        run.put("scheduler.log", f"{run.stamp('%Y-%m-%dT%H:%M:%S')} error: Node {node_of(rank)} not responding, setting DOWN")


def play(kind: str, framework: Framework, run: Run) -> dict[str, object]:
    """Write one job; what is true of it."""
    for rank in range(8):
        framework.say(run, rank, f"initialized rank {rank} of 8 on {node_of(rank)}")
    for step in range(1, 61 if kind != "all_raise" else 1):
        run.at += 0.9 + run.rng.random() * 0.05
        framework.step(run, step)
    rank = run.rng.randrange(1, 7)
    if kind in ENDED:
        told_to_end(run, framework, ENDED[kind][2])
    elif kind not in QUIET:
        fail(kind, framework, run, rank)
    told = {"symptom": "crash", "symptom_also": [], "spatial": "localised", "faulty_nodes": [node_of(rank)],
            "faulty_ranks": [rank] if framework.tells_rank else [], "onset_iteration": None, "indicating": []}  # fmt: skip
    return told | MORE.get(kind, {})


def record_of(name: str, kind: str, job_id: str, run: Run, told: dict[str, object]) -> dict[str, object]:
    """The job's record; a pod is a node of its own, Ray knows addresses, and a bare record says next to nothing."""
    state = "COMPLETED" if kind in QUIET else ENDED[kind][0] if kind in ENDED else "FAILED"
    if kind == "exception_bare":
        return {"job_id": job_id, "state": state}
    is_pod = name == "jax-kubernetes"
    names = {
        r: f"train-worker-{r}" if is_pod else f"10.0.0.{node_of(r)[3:]}" if name == "ray-train" else node_of(r) for r in range(8)
    }
    ranks = [{"rank": r, "node": names[r], "local_rank": 0 if is_pod else r % 4, "role": "trainer"} for r in range(8)]
    faulty = [r for r in range(8) if node_of(r) in told["faulty_nodes"]]  # type: ignore[operator]
    if is_pod and told["faulty_ranks"]:
        faulty = told["faulty_ranks"]  # type: ignore[assignment]
    told["faulty_nodes"] = list(dict.fromkeys(names[r] for r in faulty)) if not (is_pod and kind == "node_lost") else []
    told["spatial"] = None if is_pod and kind == "node_lost" else told["spatial"]
    return {"job_id": job_id, "name": name, "state": state, "exit_code": 0 if state == "COMPLETED" else 1,
            "start_time": datetime.fromtimestamp(START - 60, UTC).isoformat(), "end_time": datetime.fromtimestamp(run.at + 5, UTC).isoformat(),
            "nodes": list(dict.fromkeys(names.values())), "world_size": 8, "ranks": ranks, "config": {"framework": name}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    (out / "truth").mkdir(parents=True, exist_ok=True)
    for number, (name, framework) in enumerate(FRAMEWORKS.items()):
        for place, kind in enumerate(KINDS):
            run = Run(random.Random(f"{name} {kind}"))
            job_id = f"job-{9000 + 20 * number + place}"
            told = play(kind, framework, run)
            record = record_of(name, kind, job_id, run, told)
            files = {**{f"logs/{f}": x for f, x in run.files.items()}, "job.json": [json.dumps(record, indent=1)]}
            for file, lines in files.items():
                path = out / "archive" / job_id / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(lines) + "\n")
            truth = {"job_id": job_id, "fault": f"{name}/{kind}", **told}
            (out / "truth" / f"{job_id}.json").write_text(json.dumps(truth, indent=1))


if __name__ == "__main__":
    main()
