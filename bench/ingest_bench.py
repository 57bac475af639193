"""Ingest's speed: a generated archive of logs in the lab's shape, read by the stage, beside plain Python and Drain3.

    python bench/ingest_bench.py --megabytes 200              # the workers' path and its peers, no Spark
    python bench/ingest_bench.py --spark 512 1024 2048        # the whole stage into Delta
    python bench/ingest_bench.py --one-file 5120              # peak memory with one large file
    python bench/ingest_bench.py --small-files 100000         # many small files

Words, numbers and names are drawn from a seed; nothing is copied from a real log. Figures are in `bench/ingest.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow.compute as pc
from processes import processor_s, watch

DRAWN_BYTES = 2 << 20
STYLES = ("megatron", "trainer", "nemo")
WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "sigma",
    "omega",
    "tensor",
    "shard",
    "buffer",
    "queue",
    "stream",
    "graph",
    "kernel",
]


def stamp(style: str, at_ms: int) -> str:
    """A line's header up to the rank."""
    seconds, ms = divmod(at_ms, 1000)
    day = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    return {"megatron": f"{day}.{ms:03d}", "trainer": f"{day},{ms:03d}", "nemo": day}[style]


def header(style: str, at_ms: int, rank: int, draw: random.Random) -> str:
    """What stands before a message."""
    if style == "megatron":
        return f"{stamp(style, at_ms)} [rank{rank}] "
    if style == "trainer":
        return f"{stamp(style, at_ms)} INFO {draw.choice(WORDS)}:{draw.randrange(20, 900)} | "
    return f"[NeMo I {stamp(style, at_ms)} {draw.choice(WORDS)}:{draw.randrange(20, 900)}] "


def templates(draw: random.Random, n: int = 180) -> list[str]:
    """Message forms of one code base, with slots for numbers, paths and names."""
    slots = ("{n}", "{f}", "{p}", "{h}", "{w}")
    forms = []
    for _ in range(n):
        words = [draw.choice(WORDS) for _ in range(draw.randrange(3, 9))]
        for _ in range(draw.randrange(1, 4)):
            words.insert(draw.randrange(1, len(words) + 1), draw.choice(slots))
        forms.append(" ".join(words))
    return forms


def fill(form: str, draw: random.Random) -> str:
    """A message of a form."""
    return form.format(
        n=draw.randrange(100_000), f=f"{draw.random() * 100:.4f}", p=f"/workspace/data{draw.randrange(64)}/shard_{draw.randrange(10**5):05d}.bin",
        h=f"0x{draw.randrange(16**8):08x}", w=draw.choice(WORDS),
    )  # fmt: skip


def lines(style: str, rank: int, forms: list[str], draw: random.Random) -> Iterator[str]:
    """Lines of one rank, without end."""
    at_ms, step = 1_796_000_000_000 + draw.randrange(10**6), 0
    while True:
        at_ms += draw.randrange(1, 400)
        head = header(style, at_ms, rank, draw)
        kind = draw.random()
        if kind < 0.12:
            step += 1
            yield (
                f"{head} iteration {step:8d}/  500000 | consumed samples: {step * 512:12d} | elapsed time per iteration (ms): {draw.random() * 900:.1f} | "
                f"learning rate: {draw.random():.3E} | global batch size:   512 | lm loss: {draw.random() * 9:.6E} | grad norm: {draw.random():.3f} |"
            )
        elif kind < 0.13:
            yield f"[W1130 {time.strftime('%H:%M:%S', time.gmtime(at_ms // 1000))}.{draw.randrange(10**9):09d} socket.cpp:207] [c10d] retry {draw.randrange(99)} of peer 10.77.0.{draw.randrange(255)}:{draw.randrange(65536)}"
        elif kind < 0.1302:
            yield from traceback(draw)
        else:
            yield head + fill(draw.choice(forms), draw)


def traceback(draw: random.Random) -> Iterator[str]:
    """A traceback of a few frames."""
    yield "Traceback (most recent call last):"
    for _ in range(draw.randrange(2, 8)):
        yield f'  File "/workspace/{draw.choice(WORDS)}.py", line {draw.randrange(900)}, in {draw.choice(WORDS)}'
        yield f"    {draw.choice(WORDS)}({draw.choice(WORDS)})"
    yield f"RuntimeError: {draw.choice(WORDS)} failed after {draw.randrange(999)} tries"


def write_log(path: Path, n_bytes: int, style: str, rank: int, seed: int) -> int:
    """Write one log; the bytes written. Beyond `DRAWN_BYTES` what was drawn comes again, so that writing is quick."""
    draw = random.Random(seed)
    source = lines(style, rank, templates(random.Random(7)), draw)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(path, "w", encoding="utf-8") as out:
        while written < min(n_bytes, DRAWN_BYTES):
            block = "\n".join(next(source) for _ in range(min(2000, max(1, n_bytes // 100)))) + "\n"
            out.write(block)
            written += len(block)
    drawn = path.read_bytes() if written < n_bytes else b""
    with open(path, "ab") as again:
        while written < n_bytes:
            written += again.write(drawn[: drawn.rfind(b"\n", 0, n_bytes - written) + 1] or drawn[: drawn.find(b"\n") + 1])
    return written


def write_job(folder: Path, job: int, n_bytes: int, n_ranks: int = 8, per_node: int = 2) -> int:
    """Write one job's folder; the bytes of its logs."""
    style = STYLES[job % len(STYLES)]
    nodes = [f"gpu-{job % 400:03d}-{i}" for i in range(n_ranks // per_node)]
    ranks = [{"rank": r, "node": nodes[r // per_node], "local_rank": r % per_node, "role": "trainer"} for r in range(n_ranks)]
    record = {
        "job_id": f"gen-{job}", "name": f"task-{job % 5}", "state": "COMPLETED" if job % 3 else "FAILED", "exit_code": 0 if job % 3 else 1, "nodes": nodes,
        "start_time": "2026-11-30T00:00:00Z", "end_time": "2026-12-01T00:00:00Z", "world_size": n_ranks, "ranks": ranks, "config": {"model": {"layers": 4}},
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(record))
    total = 0
    for r in range(n_ranks):
        path = folder / "logs" / nodes[r // per_node] / f"gen-{job}_x" / "attempt_0" / str(r % per_node) / "stdout.log"
        total += write_log(path, n_bytes // n_ranks, style, r, job * 1000 + r)
    return total


def generate(folder: Path, megabytes: float, n_jobs: int) -> int:
    """Write an archive on all cores; bytes of logs."""
    each = int(megabytes * 1e6 / n_jobs)
    with ProcessPoolExecutor(2) as pool:
        return sum(pool.map(write_job, [folder / f"gen-{i}" for i in range(n_jobs)], range(n_jobs), [each] * n_jobs))


def read_plain(paths: list[Path]) -> int:
    """Plain Python's way: read, split into lines, split off the header's first words. Lines."""
    n = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                line.rstrip("\n").split(" ", 3)
                n += 1
    return n


def read_drain3(paths: list[Path], limit: int) -> int:
    """Drain3's own loop over the first `limit` lines. Lines."""
    from drain3 import TemplateMiner
    from drain3.template_miner_config import TemplateMinerConfig

    miner, n = TemplateMiner(config=TemplateMinerConfig()), 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                miner.add_log_message(line.rstrip("\n").split("] ", 1)[-1])
                n += 1
                if n >= limit:
                    return n
    return n


def read_worker(folder: str) -> tuple[int, int]:
    """What a worker does with one job, without Spark: lines and events."""
    import tempfile

    from jobs.adapters.archive import find_jobs
    from jobs.ingest.worker import Staging, _read_job

    n_read = n_events = 0
    with tempfile.TemporaryDirectory() as scratch:
        staging = Staging(scratch, "bench")
        for job in find_jobs(folder):
            summary = _read_job(job, staging, scratch, None)
            n_read += int(str(summary["n_read"]))
        staging.finish()
        import pyarrow.parquet as pq

        for part in Path(scratch).glob("log_records/*.parquet"):
            n_events += pq.ParquetFile(part).metadata.num_rows
    return n_read, n_events


def timed(name: str, n_bytes: int, work: object) -> float:
    """Run, print a row, and give the seconds."""
    began, cpu_began = time.perf_counter(), time.process_time()
    n = work()  # type: ignore[operator]
    seconds = time.perf_counter() - began
    cpu_s = time.process_time() - cpu_began
    print(
        f"{name:<42} {seconds:8.1f} s ({cpu_s:.1f} s of this process) {n_bytes / seconds / 1e6:8.1f} MB/s {n / seconds:12,.0f} a second",
        flush=True,
    )
    return seconds


def compare(folder: Path, n_bytes: int, n_cores: int) -> None:
    """Workers beside their peers, in one run."""
    paths = sorted(folder.rglob("*.log"))
    jobs = sorted({str(p) for p in folder.iterdir()})
    read_worker(jobs[0])
    timed("plain Python: read and split, 1 core", n_bytes, lambda: read_plain(paths))
    with ProcessPoolExecutor(n_cores) as pool:
        list(pool.map(read_worker, [jobs[0]] * n_cores))
        timed(f"ingest workers to Parquet, {n_cores} cores", n_bytes, lambda: sum(n for _, n in pool.map(read_worker, jobs)))
    limit = 100_000
    share = sum(p.stat().st_size for p in paths[:1])
    n_lines = read_plain(paths[:1])
    bytes_read = share * min(1.0, limit / max(n_lines, 1))
    timed("Drain3's own loop, defaults, 1 core", int(bytes_read), lambda: read_drain3(paths[:1], limit))


def through_spark(folder: Path, sizes_mb: list[float], job_mb: float = 64.0) -> None:
    """The whole stage into a fresh lake for archives of several sizes, in one session, beside plain Python and Drain3."""
    from jobs.core import lake as plain
    from jobs.core.runner import Given, run_stage
    from jobs.core.session import start
    from jobs.core.stages import stage
    from jobs.core.tables import Lake

    jobs = folder / "jobs"
    generate(jobs, max(sizes_mb), max(1, round(max(sizes_mb) / job_mb)))
    spark = start()
    watch()
    for mb in [min(sizes_mb) / 4, *sizes_mb]:
        archive, lake = folder / f"archive-{mb:g}", folder / "lake"
        chosen = sorted(jobs.iterdir())[: max(1, round(mb / job_mb))]
        for job in chosen:
            shutil.copytree(job, archive / job.name, copy_function=os.link)
        n_bytes = sum(path.stat().st_size for path in archive.rglob("*.log"))
        before, began = processor_s(), time.perf_counter()
        run_stage(stage("ingest"), Lake(spark, str(lake)), Given(archive=str(archive)))
        seconds = time.perf_counter() - began
        spent = {name: value - before.get(name, 0.0) for name, value in processor_s().items()}
        n_lines = int(pc.sum(plain.rows(str(lake), "log_records", columns=["n_lines"])["n_lines"]).as_py())
        size = sum(path.stat().st_size for path in lake.rglob("*.parquet"))
        note = " (first of the session)" if mb < min(sizes_mb) else ""
        listed = ", ".join(f"{name} {value:.1f} s" for name, value in sorted(spent.items()))
        print(
            f"{n_bytes / 1e9:.2f} GB, {n_lines:,} lines: {seconds:.1f} s, {n_lines / seconds:,.0f} lines/s, {n_bytes / seconds / 1e6:.1f} MB/s;"
            f" processor {listed}: {n_lines / sum(spent.values()):,.0f} lines/s a core; Parquet {size / 1e6:.0f} MB{note}",
            flush=True,
        )
        shutil.rmtree(lake)
        shutil.rmtree(archive)
    paths = sorted(jobs.rglob("*.log"))[:64]
    n_bytes = sum(path.stat().st_size for path in paths)
    timed("plain Python: read and split, 1 core", n_bytes, lambda: read_plain(paths))
    timed("Drain3's own loop, defaults, 1 core", 0, lambda: read_drain3(paths, 100_000))


def without_spark(folder: Path, sizes_mb: list[float], n_cores: int, job_mb: float = 64.0) -> None:
    """What the stage's workers do, in processes of our own, for archives of several sizes."""
    generate(folder, max(sizes_mb), max(1, round(max(sizes_mb) / job_mb)))
    jobs = sorted(str(path) for path in folder.iterdir())
    paths = sorted(folder.rglob("*.log"))[:64]
    n_bytes = sum(path.stat().st_size for path in paths)
    timed("plain Python: read and split, 1 core", n_bytes, lambda: read_plain(paths))
    timed("Drain3's own loop, defaults, 1 core", 0, lambda: read_drain3(paths, 100_000))
    with ProcessPoolExecutor(n_cores) as pool:
        list(pool.map(read_worker, [jobs[0]] * n_cores))
        for mb in sizes_mb:
            chosen = jobs[: max(1, round(mb / job_mb))]
            n_bytes = sum(path.stat().st_size for job in chosen for path in Path(job).rglob("*.log"))
            before, began = processor_s(), time.perf_counter()
            n_lines = sum(n for n, _ in pool.map(read_worker, chosen))
            seconds = time.perf_counter() - began
            cpu_s = sum(processor_s().values()) - sum(before.values())
            print(
                f"{n_bytes / 1e9:.2f} GB, {n_lines:,} lines: {seconds:.1f} s wall, {n_lines / seconds:,.0f} lines/s on {n_cores} cores;"
                f" {cpu_s:.1f} s of processor, {n_lines / cpu_s:,.0f} lines/s a core, {n_bytes / cpu_s / 1e6:.1f} MB/s a core",
                flush=True,
            )


def peak_of_one_file(folder: Path, megabytes: int) -> None:
    """Peak resident memory of a worker that reads one large log."""
    n_bytes = write_job(folder / "gen-0", 0, int(megabytes * 1e6), n_ranks=1, per_node=1)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import ingest_bench as b; print(b.read_worker({str(folder / 'gen-0')!r}))"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"one file of {n_bytes / 1e6:,.0f} MB: {time.perf_counter() - began:.0f} s, peak {peak:,.0f} MiB", flush=True)


def small_files(folder: Path, n_files: int) -> None:
    """Many small files: one job of rank logs a thousand files."""
    for job in range(max(1, n_files // 1000)):
        root = folder / f"small-{job}"
        (root / "logs").mkdir(parents=True, exist_ok=True)
        (root / "job.json").write_text(json.dumps({"job_id": f"small-{job}", "state": "COMPLETED"}))
        for i in range(min(1000, n_files)):
            (root / "logs" / f"rank{i}.log").write_text(f"2026-11-30 03:04:05.035 [rank{i}] hello {job} {i}\n")
    began = time.perf_counter()
    n = sum(read_worker(str(root))[0] for root in sorted(folder.iterdir()))
    seconds = time.perf_counter() - began
    print(
        f"{n_files:,} small files: {seconds:.1f} s, {n_files / seconds:,.0f} files a second on one core, {n:,} records", flush=True
    )


def main() -> None:
    """Run what was asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=float, default=60)
    options.add_argument("--jobs", type=int, default=8)
    options.add_argument("--cores", type=int, default=2)
    options.add_argument("--folder", type=Path, default=Path("/tmp/fleetdiff-bench-ingest"))
    options.add_argument("--spark", type=float, nargs="+", metavar="MB", help="sizes of archives, through Spark")
    options.add_argument("--sizes", type=float, nargs="+", metavar="MB", help="sizes of archives, without Spark")
    options.add_argument("--one-file", type=int, default=0)
    options.add_argument("--small-files", type=int, default=0)
    given = options.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    try:
        if given.one_file:
            peak_of_one_file(given.folder / "one", given.one_file)
        elif given.spark:
            through_spark(given.folder, given.spark)
        elif given.sizes:
            without_spark(given.folder / "archive", given.sizes, given.cores)
        elif given.small_files:
            small_files(given.folder / "small", given.small_files)
        else:
            n_bytes = generate(given.folder / "archive", given.megabytes, given.jobs)
            print(f"{n_bytes / 1e6:,.0f} MB in {given.jobs} jobs")
            compare(given.folder / "archive", n_bytes, given.cores)
    finally:
        shutil.rmtree(given.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
