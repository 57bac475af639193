"""Bare folders, read without a lake: which files they hold, and how the reading is shared out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.core.errors import NotFoundError, UsageError

MAX_FILES = 200_000
MAX_WORKERS = 8


def files_below(folder: Path, holding: str) -> Iterator[Path]:
    """Regular files below a folder in the order of their paths, `MAX_FILES` at most; links are not followed.

    `holding` says what the folder should hold, for the error. Raises NotFoundError when the folder does not exist,
    UsageError when it is a file; both before the first file is asked for.
    """
    if not folder.exists():
        raise NotFoundError(f"{folder}: no such folder; name the folder that holds {holding}")
    if not folder.is_dir():
        raise UsageError(f"{folder}: a file, not a folder; name the folder that holds {holding}")
    return _regular(folder)


def _regular(folder: Path) -> Iterator[Path]:
    n_seen = 0
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            n_seen += 1
            if n_seen > MAX_FILES:
                return
            if not path.is_symlink() and path.is_file():
                yield path


def shared_out(files: Sequence[Path], parallel_from: int) -> tuple[int, list[Sequence[Path]]]:
    """Number of processes and what each call reads: one process with everything below `parallel_from` files."""
    n_workers = min(os.cpu_count() or 1, MAX_WORKERS)
    if len(files) < parallel_from or n_workers < 2:
        return 1, [files]
    size = max(1, math.ceil(len(files) / (4 * n_workers)))
    return n_workers, [files[i : i + size] for i in range(0, len(files), size)]
