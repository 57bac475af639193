"""Sums of Kineto events by step, category and name, in memory that does not grow with the trace."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jobs.adapters.base import Problem
from jobs.adapters.operation_words import Meaning, meaning

MOST_WAITING = 200_000
MOST_SUMS = 200_000
_STEP = "ProfilerStep#"
_ROWS = 8192

_CATEGORIES: dict[str, Meaning] = {
    "kernel": Meaning("gpu", "gpu"),
    "concurrent_kernel": Meaning("gpu", "gpu"),
    "gpu_memcpy": Meaning("memcpy", "gpu"),
    "gpu_memset": Meaning("memcpy", "gpu"),
    "gpu_user_annotation": Meaning("other", "gpu"),
    "cpu_op": Meaning("host", "host"),
    "operator": Meaning("host", "host"),
    "cuda_runtime": Meaning("host", "host"),
    "cuda_driver": Meaning("host", "host"),
    "runtime": Meaning("host", "host"),
    "python_function": Meaning("python", "python"),
}
_NAMED = ("user_annotation",)
_COLLECTIVE_WORDS = ("nccl", "rccl", "gloo", "c10d")
_P2P_WORDS = ("sendrecv", "send_recv", "_send", "_recv", ":send", ":recv")


class _Event(NamedTuple):
    """A complete event, small enough to wait for the name of its step."""

    started_us: float
    duration_us: float
    category: str
    name: str
    group: str | None


class Sums:
    """Adds events up; those whose step is not known yet wait, up to `MOST_WAITING` of them."""

    def __init__(self) -> None:
        self.n_read = self.n_understood = self.n_broken = self.n_stepless = self.n_other = 0
        self.first = math.inf
        self.last = -math.inf
        self._starts: list[float] = []
        self._steps: list[tuple[float, float, int]] = []
        self._latest: tuple[float, float, int] = (math.inf, -math.inf, 0)
        self._waiting: list[_Event] = []
        self._sums: dict[tuple[int | None, str, str, str | None], list[float]] = {}

    def add(self, events: Iterable[Any]) -> None:
        """Take events as parsed: complete ones (`ph` X) with a name are understood, others are only counted."""
        for event in events:
            self.n_read += 1
            if not isinstance(event, dict):
                self.n_broken += 1
                continue
            self.n_understood += 1
            if event.get("ph") != "X":
                continue
            started, duration, name = event.get("ts"), event.get("dur", 0), event.get("name")
            category = event.get("cat")
            if not isinstance(name, str) or not isinstance(category, str):
                continue
            if started is None or not _are_times(started, duration):
                self.n_broken += 1
                self.n_understood -= 1
                continue
            self._take(_Event(started, duration, category, name, _group(event.get("args"))))

    def _take(self, event: _Event) -> None:
        if event.name.startswith(_STEP):
            self._step(event)
        elif event.category in _CATEGORIES or event.category in _NAMED:
            started = event.started_us
            if started < self.first:
                self.first = started
            if started + event.duration_us > self.last:
                self.last = started + event.duration_us
            begin, end, number = self._latest
            step = number if begin <= started < end else self._step_at(started)
            if step is not None:
                self._sum(step, event)
                return
            self._waiting.append(event)
            if len(self._waiting) >= MOST_WAITING:
                self._settle(is_end=False)

    def _step(self, event: _Event) -> None:
        number = event.name[len(_STEP) :]
        if event.category == "gpu_user_annotation" or not number.isdigit() or len(number) > 12:
            return
        place = bisect_right(self._starts, event.started_us)
        self._starts.insert(place, event.started_us)
        self._latest = (event.started_us, event.started_us + event.duration_us, int(number))
        self._steps.insert(place, self._latest)
        self._sum(int(number), event)

    def _settle(self, is_end: bool) -> None:
        """Sum up the events that wait: those of a known step first; the others too when there is no room for more."""
        kept: list[_Event] = []
        for event in self._waiting:
            step = self._step_at(event.started_us)
            if step is None and not is_end and len(kept) < MOST_WAITING // 2:
                kept.append(event)
                continue
            if step is None and self._steps:
                self.n_stepless += 1
            self._sum(step, event)
        self._waiting = kept

    def _step_at(self, at: float) -> int | None:
        place = bisect_right(self._starts, at) - 1
        if place < 0:
            return None
        _, end, number = self._steps[place]
        return number if at < end else None

    def _sum(self, step: int | None, event: _Event) -> None:
        key = (step, event.category, event.name[:300], event.group)
        found = self._sums.get(key)
        if found is None:
            if len(self._sums) >= MOST_SUMS:
                self.n_other += 1
                key = (step, event.category, "(other)", None)
                found = self._sums.get(key)
            if found is None:
                found = self._sums[key] = [0, 0.0, event.started_us]
        found[0] += 1
        found[1] += event.duration_us
        if event.started_us < found[2]:
            found[2] = event.started_us

    def problems(self) -> Iterator[Problem]:
        """What could not be used, and remarks."""
        if self.n_broken:
            yield Problem("bad_value", 0, self.n_broken, f"{self.n_broken} events without usable times or of another form")
        if not any(_is_collective(c, n) for _, c, n, _ in self._keys()) and self.n_understood:
            yield Problem("missing_column", 0, 0, "no collective kernel or operation was found in this trace")
        if self.n_stepless:
            detail = f"{self.n_stepless} events lie outside all profiler steps; they are summed without a step"
            yield Problem("missing_column", 0, 0, detail)
        if self.n_other:
            yield Problem("series_cap", 0, 0, f"more than {MOST_SUMS} different operations: the rest is summed as (other)")

    def _keys(self) -> Iterator[tuple[int | None, str, str, str | None]]:
        self._settle(is_end=True)
        return iter(self._sums)

    def span_us(self, base_ns: int) -> tuple[float | None, float | None]:
        """First start and last end, µs since 1970."""
        if not math.isfinite(self.first):
            return None, None
        return self.first + base_ns / 1e3, self.last + base_ns / 1e3

    def rows(self, rank: int | None, node: str | None, base_ns: int) -> Iterator[dict[str, list[Any]]]:
        """Columns of `operations`, in order of step, category and name. Durations include what an operation encloses."""
        self._settle(is_end=True)
        keys = sorted(self._sums, key=lambda k: (-1 if k[0] is None else k[0], k[1], k[2], k[3] or ""))
        for first in range(0, len(keys), _ROWS):
            part = keys[first : first + _ROWS]
            found = [_meaning(category, name) for _, category, name, _ in part]
            sums = [self._sums[key] for key in part]
            yield {
                "node": [node] * len(part),
                "rank": [rank] * len(part),
                "step": [step for step, _, _, _ in part],
                "kind": [m.kind for m in found],
                "layer": [m.layer for m in found],
                "name": [name for _, _, name, _ in part],
                "started_us": [int(s[2] + base_ns / 1e3) for s in sums],
                "duration_us": [s[1] for s in sums],
                "n_calls": [int(s[0]) for s in sums],
                "group": [group for _, _, _, group in part],
                "sequence": list(range(first, first + len(part))),
                "source": ["kineto"] * len(part),
            }


def _are_times(started: Any, duration: Any) -> bool:
    if isinstance(started, str | bool) or isinstance(duration, str | bool):
        return False
    try:
        return math.isfinite(started) and math.isfinite(duration) and duration >= 0 and abs(started) < 1e19
    except (TypeError, OverflowError):
        return False


def _group(args: Any) -> str | None:
    if not isinstance(args, dict):
        return None
    found = args.get("Process Group Name") or args.get("Process Group Description")
    return str(found)[:100] if isinstance(found, str | int) else None


def _is_collective(category: str, name: str) -> bool:
    return category != "python_function" and any(word in name.lower() for word in _COLLECTIVE_WORDS)


def _meaning(category: str, name: str) -> Meaning:
    """Kind and layer by category; collectives under their old (`ncclKernel`) and new (`ncclDevKernel`) names alike."""
    if name.startswith(_STEP):
        return Meaning("step", "host")
    if _is_collective(category, name):
        is_p2p = any(word in name.lower() for word in _P2P_WORDS)
        return Meaning("p2p" if is_p2p else "collective", "collective")
    if category in _CATEGORIES:
        return _CATEGORIES[category]
    return meaning(name)
