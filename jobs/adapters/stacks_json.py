"""Stacks in JSON: py-spy, an envelope around it, DeepTrace process lists, Probing and FLAME call stacks, speedscope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from jobs.adapters.base import FileContext, Problem
from jobs.adapters.stacks_samples import Thread, frame, plain, rank_number, stamp

_DEEPTRACE_TYPES = {1: "trainer", 2: "dataloader", 3: "launcher"}
_DEEPTRACE_FRAME = re.compile(r'(?:\((?:Python|C)\)\s*)?File "([^"\n]{1,2000})", line (\d{1,9}),? in ([^\n]{1,500})')


def load(data: bytes) -> Any | Problem:
    """The document, or the problem that it is: cut off, or not JSON at all."""
    try:
        return orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        where = min(int(getattr(error, "pos", 0)), len(data))
        what = "ends in the middle; the sampler was cut off" if where >= len(data.rstrip()) - 1 else "is not JSON"
        return Problem("broken_json", where, 1, f"the document {what}: take the sample again", data[where : where + 64])


def listed(value: Any) -> list[Any]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def read_envelope(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """`{"timestamp", "node", "rank", "process_type", "pid", "threads": [py-spy threads]}`.

    A process that was asked and gave no threads is a row without frames: its silence is evidence.
    """
    document = load(data)
    if isinstance(document, Problem) or not isinstance(document, dict):
        yield document if isinstance(document, Problem) else Problem("bad_type", 0, 1, "not an object with threads")
        return
    shared: dict[str, Any] = {
        "rank": rank_number(document.get("rank")),
        "node": plain(document.get("node") or document.get("host") or document.get("hostname")) or None,
        "process_type": plain(document.get("process_type") or document.get("role")) or None,
        "pid": _whole(document.get("pid")),
        "sampled_at": stamp(document.get("timestamp") or document.get("time") or document.get("snapshot_time")),
        "snapshot": plain(document.get("snapshot") or document.get("tag")) or None,
    }
    threads = listed(document.get("threads"))
    if not threads:
        why = plain(document.get("error")) or "no threads in it"
        yield Problem("bad_value", 0, 0, f"the process could not be sampled: {why}")
        yield Thread(**shared)
    yield from _py_spy_threads(threads, shared)


def read_py_spy(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """The list that `py-spy dump --json` prints. An empty list is a process that could not be sampled."""
    document = load(data)
    if isinstance(document, Problem) or not isinstance(document, list):
        yield document if isinstance(document, Problem) else Problem("bad_type", 0, 1, "not a list of threads")
        return
    if not document:
        yield Problem("bad_value", 0, 0, "no threads in it: the process could not be sampled")
        yield Thread()
    yield from _py_spy_threads(document, {})


def _py_spy_threads(threads: list[Any], shared: dict[str, Any]) -> Iterator[Thread | Problem]:
    for number, thread in enumerate(threads):
        if not isinstance(thread, dict):
            yield Problem("bad_type", number, 1, "a thread that is not an object")
            continue
        frames = [f for f in listed(thread.get("frames")) if isinstance(f, dict)]
        given = {name: value for name, value in shared.items() if value is not None}
        if (pid := _whole(thread.get("pid"))) is not None:
            given["pid"] = pid
        yield Thread(
            frames=tuple(frame(f.get("name"), f.get("filename"), f.get("line")) for f in reversed(frames)),
            thread_id=plain(thread.get("os_thread_id") or thread.get("thread_id")) or None,
            thread_name=plain(thread.get("thread_name")) or None,
            is_active=_flag(thread.get("active")),
            has_gil=_flag(thread.get("owns_gil")),
            **given,
        )


def read_deeptrace(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """DeepTrace's process lists: snapshots of processes of threads; a rank is written `RANK7`, frames are text."""
    document = load(data)
    if isinstance(document, Problem):
        yield document
        return
    for number, process, tag in _deeptrace_processes(document):
        if not isinstance(process, dict):
            yield Problem("bad_type", number, 1, "a process that is not an object")
            continue
        shared: dict[str, Any] = {
            "rank": rank_number(process.get("rank")),
            "process_type": _DEEPTRACE_TYPES.get(process.get("type", 0)) or (plain(process.get("type")) or None),
            "pid": _whole(process.get("pid")),
            "sampled_at": stamp(process.get("snapshot_time") or process.get("timestamp")),
            "snapshot": tag,
        }
        threads = [t for t in listed(process.get("threads")) if isinstance(t, dict)]
        if not threads:
            yield Thread(**shared)
        for thread in threads:
            yield Thread(
                frames=tuple(deeptrace_frame(text) for text in listed(thread.get("stack_frames")) if isinstance(text, str)),
                thread_id=plain(thread.get("thread_id")) or None,
                thread_name=plain(thread.get("thread_name")) or None,
                **shared,
            )


def _deeptrace_processes(document: Any) -> Iterator[tuple[int, Any, str | None]]:
    """Every process with its place in the file and its snapshot's tag: lists of lists are snapshots in order."""
    snapshots = document if isinstance(document, list) else [document]
    if snapshots and not any(isinstance(snapshot, list) for snapshot in snapshots):
        snapshots = [snapshots]
    number = 0
    for index, snapshot in enumerate(snapshots):
        for process in listed(snapshot):
            yield number, process, f"snapshot{index}" if len(snapshots) > 1 else None
            number += 1


def deeptrace_frame(text: str) -> str:
    """A frame from `File "x.py", line 198, in f` and the code below it, which is left out.

    >>> deeptrace_frame('File "x.py", line 198, in f\\n    loss.backward()')
    'f (x.py:198)'
    """
    match = _DEEPTRACE_FRAME.search(text[:4096])
    return frame(match[3].strip(), match[1], int(match[2])) if match else frame(text.split("\n", 1)[0], None, None)


def read_probing(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """Probing and FLAME: a rank is a list of `{"PyFrame": …}` and `{"CFrame": …}`, innermost first.

    A list of such lists holds all ranks, a rank being its place in the list; `null` is a rank that gave nothing.
    """
    document = load(data)
    if isinstance(document, Problem) or not isinstance(document, list):
        yield document if isinstance(document, Problem) else Problem("bad_type", 0, 1, "not a list of frames")
        return
    if all(isinstance(item, dict) for item in document):
        yield Thread(frames=_probing_frames(document), thread_name="MainThread")
        return
    for rank, frames in enumerate(document):
        if frames is not None and not isinstance(frames, list):
            yield Problem("bad_type", rank, 1, "a rank that is not a list of frames")
            continue
        yield Thread(frames=_probing_frames(frames or []), rank=rank, thread_name="MainThread" if frames else None)


def _probing_frames(frames: list[Any]) -> tuple[str, ...]:
    inner = [next(iter(f.values())) for f in frames if isinstance(f, dict) and f]
    return tuple(frame(f.get("func"), f.get("file"), f.get("lineno")) for f in reversed(inner) if isinstance(f, dict))


def read_speedscope(data: bytes, context: FileContext) -> Iterator[Thread | Problem]:
    """speedscope: every distinct sampled stack of every profile, outermost first, as one thread."""
    document = load(data)
    if isinstance(document, Problem) or not isinstance(document, dict):
        yield document if isinstance(document, Problem) else Problem("bad_type", 0, 1, "not an object")
        return
    shared = document.get("shared")
    named = [
        frame(f.get("name"), f.get("file"), f.get("line")) if isinstance(f, dict) else "?"
        for f in listed(shared.get("frames") if isinstance(shared, dict) else None)
    ]
    for profile in listed(document.get("profiles")):
        if not isinstance(profile, dict):
            continue
        name = plain(profile.get("name")) or None
        for stack in _distinct(listed(profile.get("samples"))):
            known = tuple(named[i] for i in stack if 0 <= i < len(named))
            yield Thread(frames=known, thread_name=name, rank=_rank_in(name))


def _distinct(samples: list[Any]) -> list[tuple[int, ...]]:
    found = {tuple(i for i in sample if isinstance(i, int)) for sample in samples if isinstance(sample, list)}
    return sorted(found)


def _rank_in(name: str | None) -> int | None:
    match = re.search(r"rank[_\- ]?(\d{1,7})", name or "", re.IGNORECASE)
    return int(match[1]) if match else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
