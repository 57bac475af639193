"""How frameworks and launchers print: the layouts of bench/heldout_logs.py, two nodes of four ranks each."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

NODES = ("gn017", "gn018")
START = datetime(2026, 5, 17, 11, 0, 0, tzinfo=UTC).timestamp()
LOST = ["Traceback (most recent call last):", '  File "/code/pretrain.py", line 311, in main', "    dist.all_reduce(grads)",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.", "Last error:", "NET/IB : Got completion from peer 10.0.0.18<43120> with status=12"]  # fmt: skip


@dataclass
class Run:
    """One job being written. `at` is now."""

    rng: random.Random
    at: float = START
    files: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def stamp(self, form: str) -> str:
        moment = datetime.fromtimestamp(self.at, UTC)
        return moment.strftime(form).replace("MS", f"{moment.microsecond // 1000:03d}").replace("US", f"{moment.microsecond:06d}")

    def put(self, file: str, line: str) -> None:
        self.files[file].append(line)


@dataclass(frozen=True)
class Framework:
    """How a framework and its launcher print: `say` a line of a rank, `step` its progress, `died` the launcher's report."""

    say: Callable[[Run, int, str], None]
    step: Callable[[Run, int], None]
    died: Callable[[Run, int, int], None]
    lost: list[str] = field(default_factory=lambda: LOST)
    tells_rank: bool = True


def node_of(rank: int) -> str:
    return NODES[rank // 4]


def srun_label(run: Run, rank: int, text: str) -> None:
    run.put("slurm-81234.out", f"{rank}: {text}")


def srun_died(run: Run, rank: int, code: int) -> None:
    how = f"Exited with exit code {code}" if code > 0 else {-9: "Killed", -11: "Segmentation fault (core dumped)"}[code]
    run.put("slurm-81234.out", f"srun: error: {node_of(rank)}: task {rank}: {how}")
    run.put("slurm-81234.out", "srun: launch/slurm: _step_signal: Terminating StepId=81234.0")
    run.put(
        "slurm-81234.out", f"slurmstepd: error: *** STEP 81234.0 ON {NODES[0]} CANCELLED AT {run.stamp('%Y-%m-%dT%H:%M:%S')} ***"
    )
    run.put("slurm-81234.out", f"srun: error: {NODES[1 - rank // 4]}: tasks {'4-7' if rank < 4 else '0-3'}: Terminated")


def megatron(run: Run, step: int) -> None:
    srun_label(
        run,
        7,
        f" [{run.stamp('%Y-%m-%d %H:%M:%S.US')}] iteration {step:8d}/  500000 | consumed samples: {step * 64:12d} | elapsed time per iteration (ms): {900 + run.rng.random() * 30:.1f} | learning rate: 1.5E-05 | global batch size:    64 | lm loss: {9 - step / 100:.6E} | loss scale: 1.0 | grad norm: {1 + run.rng.random():.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |",
    )


def pdsh(run: Run, rank: int, text: str) -> None:
    run.put("train.log", f"{node_of(rank)}: {text}")


def deepspeed(run: Run, step: int) -> None:
    pdsh(
        run,
        0,
        f"[{run.stamp('%Y-%m-%d %H:%M:%S,MS')}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[4.9e-05], mom=[(0.9, 0.95)]",
    )
    pdsh(
        run,
        0,
        f"[{run.stamp('%Y-%m-%d %H:%M:%S,MS')}] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec={25 + run.rng.random():.2f}, CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB",
    )


def deepspeed_died(run: Run, rank: int, code: int) -> None:
    stamp = run.stamp("%Y-%m-%d %H:%M:%S,MS")
    for other in range(rank // 4 * 4, rank // 4 * 4 + 4):
        pdsh(run, rank, f"[{stamp}] [INFO] [launch.py:315:sigkill_handler] Killing subprocess {4100 + other}")
    pdsh(
        run,
        rank,
        f"[{stamp}] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'pretrain.py', '--local_rank={rank % 4}', '--deepspeed'] exits with return code = {code}",
    )
    run.put("train.log", f"pdsh@login1: {node_of(rank)}: ssh exited with exit code {code % 256}")


def rank_file(run: Run, rank: int, text: str) -> None:
    run.put(f"rank{rank}.log", text)


def lightning(run: Run, step: int) -> None:
    rank_file(
        run,
        0,
        f"{run.stamp('%Y-%m-%d %H:%M:%S,MS')} - lightning.pytorch - INFO - Epoch 0, global step {step}: train_loss={9 - step / 100:.4f}",
    )


def tee(run: Run, rank: int, text: str) -> None:
    run.put(f"{node_of(rank)}/torchrun.log", f"[default{rank % 4}]:{text}")


def trainer(run: Run, step: int) -> None:
    tee(
        run,
        0,
        f"{{'loss': {9 - step / 100:.4f}, 'grad_norm': {1 + run.rng.random():.4f}, 'learning_rate': 2e-05, 'epoch': {step / 1000:.2f}}}",
    )


def torchrun_died(run: Run, rank: int, code: int, file: str = "torchrun.log") -> None:
    name = f"{node_of(rank)}/{file}"
    glog = run.stamp("%m%d %H:%M:%S.MS000 140210 torch/distributed/elastic/multiprocessing/api.py")
    for other in range(rank // 4 * 4, rank // 4 * 4 + 4):
        if other != rank:
            run.put(name, f"W{glog}:897] Sending process {900 + other} closing signal SIGTERM")
    run.put(name, f"E{glog}:869] failed (exitcode: {code}) local_rank: {rank % 4} (pid: {900 + rank}) of binary: /usr/bin/python3")
    for line in ("Traceback (most recent call last):", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "pretrain.py FAILED", "Failures:", "  <NO_OTHER_FAILURES>",
                 "Root Cause (first observed failure):", "[0]:", f"  time      : {run.stamp('%Y-%m-%d_%H:%M:%S')}", f"  host      : {node_of(rank)}", f"  rank      : {rank} (local_rank: {rank % 4})",
                 f"  exitcode  : {code} (pid: {900 + rank})", "  error_file: <N/A>", "=" * 60):  # fmt: skip
        run.put(name, line)


def pod(run: Run, rank: int, text: str) -> None:
    run.put(f"pods/train-worker-{rank}.log", f"{run.stamp('%Y-%m-%dT%H:%M:%S.US000Z')} stderr F {text}")


def jax(run: Run, step: int) -> None:
    for rank in range(8):
        pod(run, rank, f"I{run.stamp('%m%d %H:%M:%S.US')}  17 train.py:212] step {step}, loss={9 - step / 100:.5f}, steps/s=1.05")


def pod_died(run: Run, rank: int, code: int) -> None:
    if code > 0:
        pod(run, rank, f"E{run.stamp('%m%d %H:%M:%S.US')}  17 launch.py:80] training process exited with code {code}")


JAX_LOST = ["Traceback (most recent call last):", '  File "/code/train.py", line 212, in main', "    state = jax.block_until_ready(state)",
            "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): the tasks have crashed or been disconnected from peer"]  # fmt: skip


def mpirun(run: Run, rank: int, text: str) -> None:
    run.put("horovod.out", f"[1,{rank}]<stderr>:{text}")


def horovod(run: Run, step: int) -> None:
    run.put("horovod.out", f"[1,0]<stdout>:{run.stamp('%Y-%m-%d %H:%M:%S')} Step #{step}\tLoss: {9 - step / 100:.6f}")


def mpi_died(run: Run, rank: int, code: int) -> None:
    rule = "-" * 74
    told = (
        f"mpirun noticed that process rank {rank} with PID 0 on node {node_of(rank)} exited on signal {-code} ({ ({9: 'Killed', 11: 'Segmentation fault'}[-code]) })."
        if code < 0
        else f"Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n{rule}\n{rule}\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n  Process name: [[43211,1],{rank}]\n  Exit code:    {code}"
    )
    for line in (rule, *told.split("\n"), rule):
        run.put("horovod.out", line)


HOROVOD_LOST = ["Traceback (most recent call last):", '  File "/code/train.py", line 90, in main', "    optimizer.step()",
                "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution."]  # fmt: skip


def composer(run: Run, step: int) -> None:
    rank_file(run, 0, f"[batch={step}/1000]:")
    rank_file(run, 0, f"\t Train loss/train/total: {9 - step / 100:.4f}")


def composer_died(run: Run, rank: int, code: int) -> None:
    run.put(
        f"{node_of(rank)}/launcher.log",
        f"{run.stamp('%Y-%m-%d %H:%M:%S,MS')}: ERROR: composer.cli.launcher: Rank {rank} crashed with exit code {code}.",
    )
    run.put(
        f"{node_of(rank)}/launcher.log",
        f"{run.stamp('%Y-%m-%d %H:%M:%S,MS')}: INFO: composer.cli.launcher: Waiting up to 30 seconds for all training processes to terminate. Press Ctrl-C to exit immediately.",
    )


def ray(run: Run, rank: int, text: str) -> None:
    run.put("driver.log", f"\x1b[36m(RayTrainWorker pid={4000 + rank}, ip=10.0.0.{17 + rank // 4})\x1b[0m {text}")


def ray_step(run: Run, step: int) -> None:
    ray(run, 0, f"{run.stamp('%Y-%m-%d %H:%M:%S,MS')} INFO trainer.py:88 -- step {step} loss {9 - step / 100:.4f}")


def ray_died(run: Run, rank: int, code: int) -> None:
    if code < 0:
        run.put(
            "driver.log",
            f"ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\n\tactor_id: 3f\n\tpid: {4000 + rank}\n\tip: 10.0.0.{17 + rank // 4}\nThe actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
        )
    else:
        run.put(
            "driver.log",
            f"{run.stamp('%Y-%m-%d %H:%M:%S,MS')} ERROR tune_controller.py:1331 -- Trial task failed for trial TorchTrainer_1f2",
        )


def titan(run: Run, rank: int, text: str) -> None:
    run.put(f"{node_of(rank)}/out.log", f"[rank{rank}]:{text}")


def titan_step(run: Run, step: int) -> None:
    for rank in (0, 4):
        titan(
            run,
            rank,
            f"[titan] {run.stamp('%Y-%m-%d %H:%M:%S,MS')} - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss: {9 - step / 100:7.4f}  \x1b[33mmemory: 45.12GiB(56.98%)  \x1b[34mtps: 6,521  \x1b[36mmfu: 12.48%\x1b[39m",
        )


def titan_died(run: Run, rank: int, code: int) -> None:
    torchrun_died(run, rank, code, "out.log")


def paddle(run: Run, rank: int, text: str) -> None:
    run.put(f"{node_of(rank)}/log/workerlog.{rank % 4}", text)


def paddle_step(run: Run, step: int) -> None:
    for rank in range(8):
        paddle(
            run,
            rank,
            f"[{run.stamp('%Y-%m-%d %H:%M:%S,MS')}] [    INFO] - loss: {9 - step / 100:.8f}, learning_rate: 3e-05, global_step: {step}, interval_runtime: 0.91",
        )


def paddle_died(run: Run, rank: int, code: int) -> None:
    for line in (
        "LAUNCH INFO Pod failed",
        "LAUNCH ERROR Container failed !!!",
        f"Container rank {rank} status failed cmd ['/usr/bin/python', 'pretrain.py'] code {code} log log/workerlog.{rank % 4}",
        f"LAUNCH INFO Exit code {code}",
    ):
        run.put(
            f"{node_of(rank)}/launch.log", f"LAUNCH INFO {run.stamp('%Y-%m-%d %H:%M:%S,MS')} {line.removeprefix('LAUNCH INFO ')}"
        )


def fairseq_step(run: Run, step: int) -> None:
    srun_label(
        run,
        0,
        f'{run.stamp("%Y-%m-%d %H:%M:%S")} | INFO | train_inner | {{"epoch": 1, "update": {step / 500:.3f}, "loss": "{9 - step / 100:.3f}", "ppl": "120.1", "wps": "9013", "num_updates": "{step}", "lr": "1e-05", "gnorm": "1.31", "train_wall": "1"}}',
    )


def nano_step(run: Run, step: int) -> None:
    titan(run, 0, f"iter {step}: loss {9 - step / 100:.4f}, time {900 + run.rng.random() * 30:.2f}ms, mfu 41.20%")


def hccl_say(run: Run, rank: int, text: str) -> None:
    run.put(f"{node_of(rank)}/rank_{rank}.log", text)


def hccl_step(run: Run, step: int) -> None:
    hccl_say(
        run,
        7,
        f" iteration {step:8d}/  500000 | consumed samples: {step * 64:12d} | elapsed time per iteration (ms): {900 + run.rng.random() * 30:.1f} | learning rate: 1.5E-05 | global batch size:    64 | lm loss: {9 - step / 100:.6E} | loss scale: 1.0 | grad norm: 1.300 |",
    )


HCCL_LOST = ["Traceback (most recent call last):", '  File "/code/pretrain.py", line 311, in main', "    dist.all_reduce(grads)",
             "RuntimeError: ACL stream synchronize failed, error code:507048", "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank."]  # fmt: skip

LATER = ("paddle", "fairseq-srun", "nanogpt", "mindspeed-hccl")
"""Layouts that were written after the last change of a rule: nothing was mended for them."""
FRAMEWORKS = {
    "megatron-srun": Framework(srun_label, megatron, srun_died),
    "deepspeed-pdsh": Framework(pdsh, deepspeed, deepspeed_died, tells_rank=False),
    "lightning-files": Framework(rank_file, lightning, lambda run, rank, code: None),
    "hf-torchrun": Framework(tee, trainer, torchrun_died),
    "jax-kubernetes": Framework(pod, jax, pod_died, JAX_LOST),
    "horovod-mpirun": Framework(mpirun, horovod, mpi_died, HOROVOD_LOST),
    "composer": Framework(rank_file, composer, composer_died),
    "ray-train": Framework(ray, ray_step, ray_died, tells_rank=False),
    "torchtitan": Framework(titan, titan_step, titan_died),
    "paddle": Framework(paddle, paddle_step, paddle_died),
    "fairseq-srun": Framework(srun_label, fairseq_step, srun_died),
    "nanogpt": Framework(titan, nano_step, titan_died),
    "mindspeed-hccl": Framework(hccl_say, hccl_step, lambda run, rank, code: None, HCCL_LOST),
}  # fmt: skip
