"""Flight-recorder dumps of a bare folder, without a lake: the quickest way from files to entries."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from jobs.adapters.base import Problem
from jobs.adapters.flight_recorder import ADAPTERS
from jobs.adapters.flight_recorder_dump import Dump, document_in, dump_of, group_of, rank_and_host
from jobs.adapters.stacks_samples import frame, plain
from jobs.core.errors import NotFoundError
from jobs.core.folders import files_below, shared_out
from ml.collectives.builder import EntriesBuilder
from ml.collectives.entries import Entries

SURE = 0.5
MAX_TEXT = 256
PARALLEL_FROM = 256
_HEAD = 1 << 16


@dataclass
class Found:
    """What the files of a folder gave: entries in the making, the file of each rank, and what could not be used."""

    builder: EntriesBuilder = field(default_factory=EntriesBuilder)
    file_of: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_folder(folder: Path) -> tuple[Entries, list[str]]:
    """Entries of all dumps below a folder, and the problems in one sentence each.

    Raises NotFoundError when the folder does not exist or holds no dump, UsageError when it is a file.
    """
    files = list(dump_files(folder))
    found = _read_all(folder, files)
    if not found.builder.dumped and not found.problems:
        raise NotFoundError(f"{folder}: no flight-recorder dump in it; dumps are pickles or JSON, one a rank, named …_RANK")
    entries = found.builder.entries()
    absent = [rank for rank in entries.known_ranks if rank not in entries.dumped]
    if absent:
        listed = ", ".join(map(str, absent[:20])) + (" …" if len(absent) > 20 else "")
        found.problems.append(f"{len(absent)} of {len(entries.known_ranks)} ranks left no readable dump: {listed}")
    return entries, found.problems


def dump_files(folder: Path) -> Iterator[Path]:
    """Files below a folder that look like dumps, in order of their path. Links are not followed."""
    for path in files_below(folder, "the ranks' dumps"):
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        if ADAPTERS[0].sniff(path.name, head) >= SURE or (not head and rank_and_host(path.name)[0] is not None):
            yield path


def _read_all(folder: Path, files: Sequence[Path]) -> Found:
    n_workers, chunks = shared_out(files, PARALLEL_FROM)
    if n_workers == 1:
        return _read(str(folder), files)
    whole = Found()
    with ProcessPoolExecutor(n_workers) as pool:
        for part in pool.map(_read_apart, [str(folder)] * len(chunks), chunks):
            for rank in sorted(part.file_of.keys() & whole.file_of.keys()):
                whole.problems.append(f"{part.file_of[rank]}: rank {rank} has a second dump; both were used")
            whole.builder.merge(part.builder)
            whole.file_of |= part.file_of
            whole.problems += part.problems
    return whole


def _read_apart(folder: str, files: Sequence[Path]) -> Found:
    # A worker that only builds plain data has no cycles to look for, and looking takes a third of its time.
    gc.disable()
    return _read(folder, files)


def _read(folder: str, files: Sequence[Path]) -> Found:
    found = Found()
    for path in files:
        name = str(path.relative_to(folder))
        with path.open("rb") as stream:
            document = document_in(stream)
        dump = document if isinstance(document, Problem) else dump_of(document)
        rank, _ = rank_and_host(path.name)
        if isinstance(dump, Problem):
            found.problems.append(f"{name}: {dump.reason}: {dump.detail}")
        elif rank is None:
            found.problems.append(f"{name}: no rank in its name; name dumps …_RANK")
        elif rank in found.file_of:
            found.problems.append(f"{name}: rank {rank} has a dump already in {found.file_of[rank]}; this one is left out")
        else:
            found.file_of[rank] = name
            _add(found, rank, dump)
            if not dump.groups:
                found.problems.append(
                    f"{name}: version {dump.version or '?'} without group configuration; ranks that left no dump are not known"
                )
    return found


def _add(found: Found, rank: int, dump: Dump) -> None:
    labels = {name: group.label for name, group in dump.groups.items()}
    status = {
        labels[name]: (_whole(told.get("last_enqueued_collective")), _whole(told.get("last_completed_collective")))
        for name, told in dump.status.items()
        if name in labels
    }
    ranks = {group.label: group.ranks for group in dump.groups.values()}
    found.builder.add(rank, columns_of(dump, labels), ranks, status)


def columns_of(dump: Dump, labels: dict[str, str]) -> dict[str, Any]:
    """The entries of a dump as columns of plain numbers and text, as the builder takes them."""
    entries = dump.entries
    numbers = {
        "sequence": ("collective_seq_id", -1), "order": ("record_id", None), "created_ns": ("time_created_ns", -1),
        "p2p": ("p2p_seq_id", -1),
    }  # fmt: skip
    found = {name: _numbers(entries, key, default) for name, (key, default) in numbers.items()}
    is_p2p = np.array([e.get("is_p2p") is True for e in entries], np.bool_)
    sequence = np.where(is_p2p, found["p2p"], found["sequence"])
    if (sequence < 0).any():
        sequence = np.where(sequence < 0, _numbers(entries, "seq_id", -1), sequence)
    return {
        "group": _labels(entries, labels),
        "op": _texts(entries, "profiling_name"),
        "shape": [repr(e.get("input_sizes"))[:512] for e in entries],
        "dtype": [repr(e.get("input_dtypes"))[:256] for e in entries],
        "frame": [_top(e.get("frames")) if "frames" in e else "" for e in entries],
        "state": _texts(entries, "state"),
        "sequence": sequence,
        "is_p2p": is_p2p,
        "order": found["order"],
        "created_us": np.maximum(found["created_ns"], -1000) // 1000,
        "duration_ms": [_real(e["duration_ms"]) if "duration_ms" in e else math.nan for e in entries],
    }


def _numbers(entries: Sequence[Any], key: str, default: int | None) -> np.ndarray:
    """Whole numbers of a field; where there is none the default, or without a default the place of the entry."""
    try:
        return np.array(list(map(itemgetter(key), entries)), np.int64)
    except (KeyError, TypeError, ValueError, OverflowError):
        values = [_whole(e.get(key), n if default is None else default) for n, e in enumerate(entries)]
        return np.array(values, np.int64)


def _texts(entries: Sequence[Any], key: str) -> list[str]:
    found = [e.get(key) for e in entries]
    if set(map(type, found)) <= {str} and max(map(len, found), default=0) <= MAX_TEXT:
        return found
    return [value[:MAX_TEXT] if isinstance(value, str) else "" for value in found]


def _labels(entries: Sequence[Any], labels: dict[str, str]) -> list[str]:
    """The group of each entry; a rank is in a few groups, so that each is worked out once."""
    known: dict[Any, str] = {}
    found = []
    for entry in entries:
        group = entry.get("process_group")
        key = group if type(group) is tuple and set(map(type, group)) <= {str} else repr(group or entry.get("pg_id"))
        if key not in known:
            name, description = group_of(entry)
            known[key] = labels.get(name) or f"{name} {description}".strip()
        found.append(known[key])
    return found


def _top(frames: Any) -> str:
    """Where the user's code called: the innermost frame outside of the framework, else the innermost."""
    if not isinstance(frames, list) or not frames:
        return ""
    inner = [f for f in frames if isinstance(f, dict)]
    own = [
        f
        for f in inner
        if "torch/distributed" not in str(f.get("filename")) and "site-packages/torch" not in str(f.get("filename"))
    ]
    chosen = (own or inner or [{}])[0]
    return frame(plain(chosen.get("name")), plain(chosen.get("filename")), chosen.get("line"))


def _whole(value: Any, default: int = -1) -> int:
    return value if type(value) is int and -1 <= value < 1 << 62 else default


def _real(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan
