"""Ingest's table of folders: files, rows, quarantined records and the share that a format understood, before and after.

    python bench/ingest_folders.py ../shared/data                       # of this version
    python bench/ingest_folders.py ../shared/data --before CHECKOUT     # and of another one, in brackets where it differs

Each folder is read by `fleetdiff inspect` without a limit of time, in a process of its own. Figures are in `bench/ingest.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def totals(checkout: Path, folder: Path) -> dict[str, Any]:
    """What `inspect` says of a folder, by the code of a checkout."""
    command = [sys.executable, "-m", "jobs", "inspect", str(folder), "--json", "--budget", "100000"]
    done = subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return dict(json.loads(done.stdout)["totals"])


def cell(now: str, before: str | None) -> str:
    """A figure, and what it was where it was another one."""
    return now if before in (None, now) else f"{now} (was {before})"


def row(name: str, now: dict[str, Any], before: dict[str, Any] | None) -> str:
    """A row of the table."""
    was = before or now
    share = [f"{each['understood_share']:.1%}" if each["understood_share"] is not None else "–" for each in (now, was)]
    cells = [
        cell(f"{now['n_files']:,}", f"{was['n_files']:,}"),
        cell(f"{now['n_records']:,}", f"{was['n_records']:,}"),
        cell(f"{sum(now['rows'].values()):,}", f"{sum(was['rows'].values()):,}"),
        cell(f"{now['n_quarantined']:,}", f"{was['n_quarantined']:,}"),
        cell(*share),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path)
    options.add_argument("--before", type=Path)
    options.add_argument("--only", nargs="+", default=[])
    given = options.parse_args()
    print("| folder | files | records | events and rows | quarantined | understood beyond raw |\n|---|---|---|---|---|---|")
    for folder in sorted(path for path in given.data.resolve().iterdir() if path.is_dir()):
        if not given.only or folder.name in given.only:
            before = totals(given.before.resolve(), folder) if given.before else None
            print(row(folder.name, totals(HERE, folder), before), flush=True)


if __name__ == "__main__":
    main()
