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
from jobs.adapters.flight_recorder_dump import Dump, document_in, dump_of, group_of, is_own_name, rank_and_host
from jobs.adapters.stacks_samples import frame, plain
from jobs.core.errors import NotFoundError
from jobs.core.folders import files_below, shared_out
from ml.collectives.builder import EntriesBuilder
from ml.collectives.entries import Entries

SURE = 0.5
MAX_TEXT = 256
PARALLEL_FROM = 256
_HEAD = 1 << 16
_ALWAYS = (
    "process_group", "profiling_name", "input_sizes", "input_dtypes", "state", "collective_seq_id", "p2p_seq_id", "record_id",
    "time_created_ns", "is_p2p",
)  # fmt: skip
_FIELDS = (*_ALWAYS, "frames", "duration_ms")


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
        is_named = is_own_name(path.name) or (not head and rank_and_host(path.name)[0] is not None)
        if is_named or ADAPTERS[0].sniff(path.name, head) >= SURE:
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
            add_dump(found.builder, rank, dump)
            if not dump.groups:
                found.problems.append(
                    f"{name}: version {dump.version or '?'} without group configuration; ranks that left no dump are not known"
                )
    return found


def add_dump(builder: EntriesBuilder, rank: int, dump: Dump) -> None:
    """Add a rank's dump: its entries, the ranks of its groups, and how far it came in each."""
    labels = {name: group.label for name, group in dump.groups.items()}
    status = {
        labels[name]: (_whole(told.get("last_enqueued_collective")), _whole(told.get("last_completed_collective")))
        for name, told in dump.status.items()
        if name in labels
    }
    ranks = {group.label: group.ranks for group in dump.groups.values()}
    builder.add(rank, columns_of(dump, labels), ranks, status)


def columns_of(dump: Dump, labels: dict[str, str]) -> dict[str, Any]:
    """The entries of a dump as columns of plain numbers and text, as the builder takes them."""
    fields = _fields(dump.entries)
    is_p2p = np.array([value is True for value in fields["is_p2p"]], np.bool_)
    sequence = np.where(is_p2p, _numbers(fields["p2p_seq_id"]), _numbers(fields["collective_seq_id"]))
    if (sequence < 0).any():
        sequence = np.where(sequence < 0, _numbers([e.get("seq_id") for e in dump.entries]), sequence)
    has_frames, has_durations = (fields[name].count(None) < len(dump.entries) for name in ("frames", "duration_ms"))
    n = len(dump.entries)
    return {
        "group": _labels(dump.entries, fields["process_group"], labels),
        "op": _texts(fields["profiling_name"]),
        "shape": _written(fields["input_sizes"], 512),
        "dtype": _written(fields["input_dtypes"], 256),
        "frame": [_top(value) for value in fields["frames"]] if has_frames else [""] * n,
        "state": _texts(fields["state"]),
        "sequence": sequence,
        "is_p2p": is_p2p,
        "order": _numbers(fields["record_id"], range(n)),
        "created_us": np.maximum(_numbers(fields["time_created_ns"]), -1000) // 1000,
        "duration_ms": [_real(value) for value in fields["duration_ms"]] if has_durations else np.full(n, math.nan),
    }


def _fields(entries: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The fields that are used, a sequence each with a place an entry, None where an entry lacks it."""
    if not entries:
        return dict.fromkeys(_FIELDS, ())
    try:
        found: dict[str, Sequence[Any]] = dict(zip(_ALWAYS, zip(*map(itemgetter(*_ALWAYS), entries))))
    except KeyError:
        found = {name: [e.get(name) for e in entries] for name in _ALWAYS}
    return found | {name: [e.get(name) for e in entries] for name in _FIELDS if name not in found}


def _numbers(values: Sequence[Any], default: Sequence[int] | None = None) -> np.ndarray:
    """Whole numbers; where there is none -1, or what stands at its place in `default`."""
    if set(map(type, values)) == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([_whole(v, -1 if default is None else default[n]) for n, v in enumerate(values)], np.int64)


def _texts(values: Sequence[Any]) -> Sequence[str]:
    if set(map(type, values)) <= {str} and max(map(len, values), default=0) <= MAX_TEXT:
        return values
    return [value[:MAX_TEXT] if isinstance(value, str) else "" for value in values]


def _written(values: Sequence[Any], longest: int) -> list[str]:
    """Lists as text; neighbours are often alike, and to compare them is quicker than to write them."""
    found: list[str] = []
    previous, text = None, "None"
    for value in values:
        if value != previous:
            previous, text = value, repr(value)[:longest]
        found.append(text)
    return found


def _labels(entries: Sequence[Any], groups: Sequence[Any], labels: dict[str, str]) -> list[str]:
    """The group of each entry; a rank is in a few groups, so that each is worked out once."""
    is_plain = set(map(type, groups)) <= {tuple} and all(set(map(type, group)) <= {str} for group in set(groups))
    keys = groups if is_plain else [repr(g or e.get("pg_id") or e.get("pg_name")) for g, e in zip(groups, entries)]
    first = dict(zip(reversed(keys), reversed(entries)))
    known = {}
    for key, entry in first.items():
        name, description = group_of(entry)
        known[key] = labels.get(name) or f"{name} {description}".strip()
    return [known[key] for key in keys]


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
