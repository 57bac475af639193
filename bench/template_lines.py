"""Generated multi-rank training logs: lines of many kinds with realistic variables, any number of ranks."""

from __future__ import annotations

import random
from pathlib import Path

OPS = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "SEND", "RECV")
STEMS = (
    "iteration {i:>8}/  500000 | consumed samples: {big:>12} | elapsed time per iteration (ms): {f:.1f} | learning rate: {e:.3E} | lm loss: {f2:.6E} | grad norm: {f3:.3f} |",
    "[Rank {r}] WorkNCCL(SeqNum={i}, OpType={op}, NumelIn={big}, NumelOut={big}, Timeout(ms)=600000) finished in {f:.2f} ms",
    "NCCL INFO Channel {c:02}/0 : {r}[{c}] -> {r2}[{c}] [{way}] via NET/IB/{c}/GDRDMA",
    "NCCL INFO comm 0x{hex:x} rank {r} nranks {n} cudaDev {c} busId {bus:x}000 - Init COMPLETE",
    "worker {c} of rank {r} loaded shard /data/corpus/part-{i:05}/shard_{big}.bin in {f:.3f} s",
    "saving checkpoint at iteration {i} to /ckpt/run-{hex:x}/iter_{i:07}/mp_rank_{c:02}",
    "connected to {ip}:{port} (host gpu-c{node:03}) after {c} retries",
    "memory (MB) | allocated: {f:.4f} | max allocated: {f2:.4f} | reserved: {f3:.1f}",
    "heartbeat {i} from gpu-c{node:03}:{port} took {f:.1f}ms, queue depth {c}",
    "batch {i} tokens={big} padding={f3:.2f}% sequence_lengths=[{c}, {i}, {port}]",
)  # fmt: skip
PARTS = (
    "optimizer",
    "dataloader",
    "scheduler",
    "tokenizer",
    "profiler",
    "communicator",
    "prefetcher",
    "evaluator",
    "sampler",
    "cache",
    "logger",
    "monitor",
)
VERBS = ("started", "finished", "resumed", "flushed", "skipped", "registered", "validated", "released", "built", "building", "queued", "synced")  # fmt: skip


def message(draw: random.Random, ranks: int, unique: float) -> str:
    """One message; with probability `unique` it ends in a word that nobody printed before."""
    values = {
        "i": draw.randrange(500_000), "big": draw.randrange(10**9), "f": draw.random() * 1000, "f2": draw.random() * 10,
        "f3": draw.random(), "e": draw.random() * 1e-3, "r": draw.randrange(ranks), "r2": draw.randrange(ranks),
        "c": draw.randrange(8), "n": ranks, "hex": draw.getrandbits(48), "bus": draw.getrandbits(16), "op": draw.choice(OPS),
        "way": draw.choice(("send", "receive")), "ip": f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}",
        "port": draw.randrange(1024, 65536), "node": draw.randrange(max(1, ranks // 8)),
    }  # fmt: skip
    if draw.random() < 0.7:
        text = draw.choice(STEMS).format(**values)
    else:
        text = f"{draw.choice(PARTS)} {draw.choice(VERBS)} {values['i']} items in {values['f']:.2f} s"
    if draw.random() < unique:
        text += " tag " + "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=10))
    return text


def lines(n: int, ranks: int = 64, unique: float = 0.0, seed: int = 1) -> list[str]:
    """`n` lines with a header as Python's logging prints it."""
    draw = random.Random(seed)
    return [
        f"2026-11-{draw.randrange(1, 31):02} {draw.randrange(24):02}:{draw.randrange(60):02}:{draw.randrange(60):02},{draw.randrange(1000):03} INFO trainer:{draw.randrange(90, 99)} | "
        + message(draw, ranks, unique)
        for _ in range(n)
    ]


def write_files(folder: Path, n: int, files: int, ranks: int = 64, block: int = 20_000) -> list[str]:
    """`n` lines in `files` files; a file's first `block` lines are drawn and then come again, so that millions are quick."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        drawn, wanted = lines(min(block, n // files), ranks, seed=number), n // files
        path = folder / f"rank{number}.log"
        with open(path, "w", encoding="utf-8") as out:
            while wanted > 0:
                out.write("\n".join(drawn[:wanted]) + "\n")
                wanted -= len(drawn)
        paths.append(str(path))
    return paths
