"""Merging stacks of many ranks: seconds, peak memory, growth.

    python bench/stacks_bench.py [--ranks 16384] [--frames 50] [--samples 3] [--spark]

Every rank has its own line numbers in two frames of ten stacks, so that a few hundred stacks are distinct: as in a hang
of a large job, where most ranks stand alike and some do not. `--distinct` makes every stack differ, the worst case.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

from processes import measured, tree_seconds

from ml.stacks.merged import tries_of
from ml.stacks.samples import Sample, snapshots_of

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"


def stack(rank: int, moment: int, n_frames: int, distinct: bool) -> tuple[str, ...]:
    """A rank's frames at a moment: outermost first, most ranks alike."""
    odd = rank if distinct else rank % 10 if rank % 64 == 0 else 0
    frames = [f"layer{depth}.forward ({TORCH}/nn/modules/block{depth % 7}.py:{100 + depth})" for depth in range(n_frames)]
    frames[n_frames // 2] = f"step (/workspace/train.py:{200 + odd})"
    frames[-1] = f"all_reduce ({TORCH}/distributed/distributed_c10d.py:{4181 + (odd if moment == 0 else 0)})"
    return tuple(frames)


def samples(n_ranks: int, n_frames: int, n_samples: int, distinct: bool) -> list[Sample]:
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    return [
        Sample(shared.setdefault(frames, frames), rank, f"n{rank // 8}", pid=1000 + rank, thread_name="MainThread",
               is_active=False, at=100.0 + 3 * moment, snapshot=f"T{moment}")
        for moment in range(n_samples)
        for rank in range(n_ranks)
        for frames in [stack(rank, moment, n_frames, distinct)]
    ]  # fmt: skip


def write_files(folder: Path, n_ranks: int, n_frames: int, n_samples: int) -> None:
    """py-spy dumps in an envelope, one a rank and moment, in a folder a node."""
    for sample in samples(n_ranks, n_frames, n_samples, False):
        node = folder / str(sample.node)
        node.mkdir(exist_ok=True)
        frames = []
        for text in reversed(sample.frames):
            name, _, place = text.partition(" (")
            file, _, line = place.rstrip(")").rpartition(":")
            frames.append(
                {"name": name, "filename": file, "short_filename": file.split("/")[-1], "line": int(line), "locals": None}
            )
        thread = {"pid": sample.pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": sample.pid, "active": False,
                  "owns_gil": False, "frames": frames}  # fmt: skip
        document = {"timestamp": f"2026-11-30T03:20:{int(sample.at or 0) % 60:02d}+00:00", "node": sample.node, "rank": sample.rank,
                    "process_type": "trainer", "pid": sample.pid, "threads": [thread]}  # fmt: skip
        (node / f"rank{sample.rank}_pid{sample.pid}_{sample.snapshot}.json").write_text(json.dumps(document))


def peak_gb(who: int = resource.RUSAGE_SELF) -> float:
    return resource.getrusage(who).ru_maxrss / 1e6


def merge_in_memory(n_ranks: int, n_frames: int, n_samples: int, distinct: bool) -> None:
    taken = samples(n_ranks, n_frames, n_samples, distinct)
    began = time.process_time()
    snapshots = snapshots_of(taken)
    nodes = sum(len(trie.nodes) for snapshot in snapshots for trie in tries_of(snapshot, None, 2000).values())
    seconds = time.process_time() - began
    print(
        f"merge    {n_ranks:>6} ranks{' distinct' if distinct else ''}: {seconds:6.2f} s of processor, {nodes} nodes, peak {peak_gb():.2f} GB"
    )


def command(n_ranks: int, n_frames: int, n_samples: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="stacks-bench-"))
    try:
        write_files(folder, n_ranks, n_frames, n_samples)
        taken = measured("stacks", folder)
        print(
            f"command  {n_ranks:>6} ranks: {taken.wall_s:6.2f} s wall for {n_ranks * n_samples} files, {taken.told()}",
            flush=True,
        )
    finally:
        shutil.rmtree(folder)


def spark(n_ranks: int, n_frames: int, n_samples: int) -> None:
    """The stage's own transforms on a table of samples."""
    from pyspark.sql import functions as F

    from jobs.core import session
    from jobs.stacks import transform

    with tempfile.TemporaryDirectory(prefix="stacks-bench-") as folder:
        started = session.start("stacks-bench")
        text = F.udf(lambda rank, moment: list(stack(rank, moment, n_frames, False)), "array<string>")
        started.range(n_ranks * n_samples).select(
            F.lit("job-1").alias("job_id"), (F.col("id") % n_ranks).cast("int").alias("rank"),
            F.floor(F.col("id") / n_ranks).cast("int").alias("moment"),
        ).select(
            "job_id", F.timestamp_seconds(F.col("moment") * 3 + 100).alias("sampled_at"),
            F.concat(F.lit("T"), "moment").alias("snapshot"), F.concat(F.lit("n"), F.floor(F.col("rank") / 8)).alias("node"), "rank",
            F.lit("trainer").alias("process_type"), (F.col("rank") + 1000).cast("long").alias("pid"), F.lit("1").alias("thread_id"),
            F.lit("MainThread").alias("thread_name"), F.lit(False).alias("is_active"), text("rank", "moment").alias("frames"),
            F.lit("f").alias("file"),
        ).write.parquet(f"{folder}/samples")  # fmt: skip
        taken = started.read.parquet(f"{folder}/samples")
        facts = started.createDataFrame([("job-1",)], "job_id string").select(
            "job_id", F.lit("FAILED").alias("state"), F.lit(None).cast("timestamp").alias("ended_at"), F.lit(n_ranks).alias("world_size"),
            F.lit(None).cast("array<struct<rank:int,node:string,role:string,groups:map<string,array<int>>>>").alias("ranks"),
            F.lit(None).cast("array<struct<at:timestamp,iteration:bigint>>").alias("iterations"),
            F.lit(None).cast("array<bigint>").alias("logs"),
        )  # fmt: skip
        began, spent = time.perf_counter(), tree_seconds()
        n_findings = transform.findings(taken, facts).count()
        transform.tries(taken).write.parquet(f"{folder}/tries")
        print(
            f"Spark    {n_ranks:>6} ranks: {time.perf_counter() - began:6.2f} s wall, {tree_seconds() - spent:.1f} s of processor,"
            f" {n_findings} findings",
            flush=True,
        )
        started.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 16384), ("frames", 50), ("samples", 3)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--distinct", action="store_true")
    options.add_argument("--spark", action="store_true")
    given = options.parse_args()
    if given.spark:
        spark(given.ranks, given.frames, given.samples)
        return
    # The command first: a child's peak begins at what its parent holds.
    for share in (4, 2, 1):
        command(given.ranks // share, given.frames, given.samples)
    for share in (4, 2, 1):
        merge_in_memory(given.ranks // share, given.frames, given.samples, given.distinct)


if __name__ == "__main__":
    main()
