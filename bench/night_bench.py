"""The whole night on the example archive: with Airflow, without it, and what a session's start costs.

    python bench/night_bench.py [--repeats 3]

Prints one table: wall seconds of each part, median of the repeats.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGE_LINE = re.compile(r"\[\d+/\d+\] (\w+)\s+([\d.]+) s")


def timed(command: list[str], **more: str) -> tuple[float, str]:
    """Wall seconds of a command and all that it printed; stops when it fails."""
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more}, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return time.monotonic() - began, done.stdout + done.stderr


def once(figures: dict[str, list[float]]) -> None:
    """One round of every measurement, each in a fresh lake."""
    python = [sys.executable]
    start = "from jobs.core import session; session.start().range(1).count()"
    figures["session start, first query"].append(timed([*python, "-c", start])[0])
    with tempfile.TemporaryDirectory() as scratch:
        lake = f"{scratch}/lake"
        run = [*python, "-m", "jobs", "run", str(ROOT / "examples/archive"), "--lake", lake]
        wall, said = timed(run)
        figures["night, no scheduler"].append(wall)
        for stage, seconds in STAGE_LINE.findall(said):
            figures[f"  stage {stage}"].append(float(seconds))
        figures["second night, nothing new"].append(timed(run)[0])
    with tempfile.TemporaryDirectory() as scratch:
        night = [
            str(ROOT / "examples/night.sh"),
            str(ROOT / "examples/archive"),
            f"{scratch}/lake",
            f"{scratch}/report",
        ]
        wall, said = timed(night)
        figures["night through Airflow"].append(wall)
        figures["  of it stages"].append(sum(float(seconds) for _, seconds in STAGE_LINE.findall(said)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    figures: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        once(figures)
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; median of {repeats}\n")
    print("| part | wall s | min | max |\n|---|---|---|---|")
    for name, values in figures.items():
        print(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f} | {max(values):.1f} |")


if __name__ == "__main__":
    main()
