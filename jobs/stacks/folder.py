"""Stack files of a bare folder, without a lake."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from jobs.adapters.base import FileContext, Problem, Rows
from jobs.adapters.stacks import ADAPTERS
from jobs.core.errors import NotFoundError
from jobs.core.folders import files_below, shared_out
from ml.stacks.samples import Sample

SURE = 0.5
PARALLEL_FROM = 2048
MAX_PROBLEMS = 50
_HEAD = 1 << 16


def read_folder(folder: Path) -> tuple[list[Sample], list[str]]:
    """All samples below a folder, and what could not be used, in one sentence each.

    Where no file says which rank it is of, the files are numbered in order and the problems say so. Raises
    NotFoundError when the folder does not exist or holds no stacks, UsageError when it is a file.
    """
    samples, problems = _read_all(folder, list(files_below(folder, "the stack files")))
    if not samples and not problems:
        known = ", ".join(adapter.name for adapter in ADAPTERS)
        raise NotFoundError(f"{folder}: no stack file in it; these are read: {known}")
    samples = _ranked(samples, problems)
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"{len(problems) - MAX_PROBLEMS} more problems"]
    return samples, problems


def _read_all(folder: Path, files: Sequence[Path]) -> tuple[list[Sample], list[str]]:
    n_workers, chunks = shared_out(files, PARALLEL_FROM)
    if n_workers == 1:
        return _read(str(folder), files)
    samples: list[Sample] = []
    problems: list[str] = []
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    with ProcessPoolExecutor(n_workers) as pool:
        for some, wrong in pool.map(_read, [str(folder)] * len(chunks), chunks):
            # Ranks share their stacks: one copy of each is kept.
            samples += (replace(s, frames=shared.setdefault(s.frames, s.frames)) for s in some)
            problems += wrong
    return samples, problems


def _read(folder: str, files: Sequence[Path]) -> tuple[list[Sample], list[str]]:
    samples: list[Sample] = []
    problems: list[str] = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        try:
            data = path.read_bytes() if path.stat().st_size <= 1 << 30 else path.open("rb").read(_HEAD)
        except OSError as error:
            problems.append(f"{name}: unreadable: {error.strerror}")
            continue
        scores = [adapter.sniff(name, data[:_HEAD]) for adapter in ADAPTERS]
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        if scores[best] < SURE:
            if not data:
                problems.append(f"{name}: empty")
            continue
        node = path.parent.name if path.parent != Path(folder) else None
        context = FileContext("", name, node=node)
        for parsed in ADAPTERS[best].parse(io.BytesIO(data), context):
            if isinstance(parsed, Problem):
                problems.append(f"{name}: {parsed.reason}: {parsed.detail}")
            elif isinstance(parsed, Rows):
                samples += samples_of(parsed)
    return samples, problems


def samples_of(rows: Rows) -> Iterator[Sample]:
    """Samples from rows of `stack_samples`."""
    columns = rows.columns
    for i in range(len(rows)):
        at = columns["sampled_at"][i]
        yield Sample(
            tuple(columns["frames"][i]), columns["rank"][i], columns["node"][i], columns["process_type"][i] or "trainer",
            columns["pid"][i], columns["thread_id"][i], columns["thread_name"][i], columns["is_active"][i],
            None if at is None else at.timestamp(), columns["snapshot"][i] or "", columns["file"][i],
        )  # fmt: skip


def _ranked(samples: list[Sample], problems: list[str]) -> list[Sample]:
    without = sorted({s.file or "" for s in samples if s.rank is None})
    if not without:
        return samples
    if len(without) < len({s.file for s in samples}):
        problems += [f"{name}: no rank in it nor in its name; left out" for name in without]
        return [s for s in samples if s.rank is not None]
    number = {name: i for i, name in enumerate(without)}
    problems.append(f"no file says its rank: numbered in order, 0 is {without[0]}, {len(without) - 1} is {without[-1]}")
    # What differs between the names is then not a moment but a process.
    return [replace(s, rank=number[s.file or ""], snapshot="") for s in samples]
