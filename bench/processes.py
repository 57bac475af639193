"""What the benchmarks measure of processes: wall and processor seconds and peak memory, of a command and of all that Spark starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SCRIPT = (
    "import importlib, resource as r, sys; command = importlib.import_module(sys.argv[1]).command;"
    "command([sys.argv[2], '--json'], standalone_mode=False);"
    "own, part = r.getrusage(r.RUSAGE_SELF), r.getrusage(r.RUSAGE_CHILDREN);"
    "print(own.ru_maxrss, part.ru_maxrss, own.ru_utime + own.ru_stime, part.ru_utime + part.ru_stime, file=sys.stderr)"
)


@dataclass(frozen=True)
class Measured:
    """What a command on a bare folder printed, and what it took: seconds, and GB at most, of itself and of a worker."""

    printed: bytes
    wall_s: float
    own_s: float
    workers_s: float
    own_gb: float
    worker_gb: float

    def told(self) -> str:
        """The figures as a line tells them."""
        return (
            f"{self.own_s:.2f} s of processor and {self.workers_s:.2f} s in workers,"
            f" peak {self.own_gb:.2f} GB and {self.worker_gb:.2f} GB a worker"
        )


def measured(module: str, folder: Path) -> Measured:
    """Run the command of `jobs.cli.MODULE` on a folder, as JSON, in a process of its own."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", SCRIPT, f"jobs.cli.{module}", str(folder)], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    own, child, cpu, cpu_child = (float(n) for n in done.stderr.split()[-4:])
    return Measured(done.stdout, seconds, cpu, cpu_child, own / 1e6, child / 1e6)


def tree_seconds() -> float:
    """Processor seconds so far of all processes that this one started: the JVM and its Python workers."""
    spent = _below()
    return sum(spent.values())


def tree_peak_gb() -> float:
    """Greatest resident memory so far of the processes below this one that still live, summed."""
    peaks = 0
    for pid in _below():
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks += int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return peaks / 1e6


def _below() -> dict[int, float]:
    """Processor seconds of each process below this one, their ended children's included."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: spent[pid] for pid in below - {os.getpid()}}


SEEN: dict[int, tuple[str, float]] = {}
"""Kind and processor seconds of every process below this one, as last seen."""


def processor_s() -> dict[str, float]:
    """Processor seconds so far of this process and of all that it started, by the kind of process (Linux)."""
    children: dict[int, list[tuple[int, str, float]]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            children.setdefault(int(fields[1]), []).append((int(entry.name), name, (int(fields[11]) + int(fields[12])) / ticks))
    open_pids = [os.getpid()]
    while open_pids:
        for pid, name, seconds in children.get(open_pids.pop(), []):
            SEEN[pid] = "jvm" if name == "java" else "workers", seconds
            open_pids.append(pid)
    spent = {"driver": time.process_time(), "jvm": 0.0, "workers": 0.0}
    for kind, seconds in list(SEEN.values()):
        spent[kind] += seconds
    return spent


def watch(every_s: float = 0.5) -> None:
    """Look at the processes from now on: Spark's workers end when idle, and nobody waits for them to tell their time."""

    def look() -> None:
        while True:
            processor_s()
            time.sleep(every_s)

    threading.Thread(target=look, daemon=True).start()
