"""Adapters for stacks: which format a file is in. The readers are in `stacks_json` and `stacks_text`."""

from __future__ import annotations

import re

from jobs.adapters import stacks_json, stacks_text
from jobs.adapters.stacks_samples import StackAdapter

_PATH_SAYS = re.compile(r"stack|py-?spy|callstack|flame|trace_?back|faulthandler|\.folded|\.collapsed", re.IGNORECASE)


def _hint(path: str) -> float:
    return 0.1 if _PATH_SAYS.search(path) else 0.0


def _is_json(head: bytes, first: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == first


def _envelope(path: str, head: bytes) -> float:
    """An object with a rank or pid and threads with frames, or one that says why it has none."""
    if not _is_json(head, b"{") or b'"traceEvents"' in head:
        return 0.0
    if b'"threads"' not in head or not (b'"pid"' in head or b'"rank"' in head or b'"process_type"' in head):
        # An envelope without threads: the sampler failed, and says so where stacks are kept.
        return 0.6 if b'"process_type"' in head and b'"error"' in head and _hint(path) else 0.0
    if b'"stack_frames"' in head:
        return 0.0
    return 0.85 + _hint(path)


def _py_spy(path: str, head: bytes) -> float:
    if not _is_json(head, b"["):
        return 0.0
    if head.strip() == b"[]":
        return 0.5 + _hint(path) if _hint(path) else 0.0
    return 0.85 + _hint(path) if b'"thread_id"' in head and b'"frames"' in head and b'"owns_gil"' in head else 0.0


def _deeptrace(path: str, head: bytes) -> float:
    return 0.85 + _hint(path) if b'"stack_frames"' in head and b'"threads"' in head else 0.0


def _probing(path: str, head: bytes) -> float:
    has_frame = b'"PyFrame"' in head or b'"CFrame"' in head
    return 0.85 + _hint(path) if _is_json(head, b"[") and has_frame else 0.0


def _speedscope(path: str, head: bytes) -> float:
    return 0.9 if _is_json(head, b"{") and b"speedscope" in head[:4096] and b'"profiles"' in head else 0.0


def _lines(head: bytes) -> list[str]:
    return [line for _, line in stacks_text.lines_of(head[:16384])][:200]


def _has(patterns: tuple[re.Pattern[str], ...], head: bytes) -> bool:
    return any(pattern.match(line.strip()) for line in _lines(head) for pattern in patterns)


def _py_spy_text(path: str, head: bytes) -> float:
    threads = [line for line in _lines(head) if stacks_text.PY_SPY_THREAD.match(line)]
    if not threads:
        return 0.0
    return 0.85 + _hint(path) if _has((stacks_text.PY_SPY_PROCESS,), head) else 0.6 + _hint(path)


def _pystack(path: str, head: bytes) -> float:
    return 0.85 + _hint(path) if _has((stacks_text.PYSTACK_THREAD,), head) else 0.0


def _faulthandler(path: str, head: bytes) -> float:
    # A log may hold such a dump among its own lines: only a file that begins with one is a stack file.
    lines = [line.strip() for line in _lines(head) if line.strip()][:3]
    found = any(stacks_text.FAULT_THREAD.match(line) for line in lines)
    return (0.8 if found else 0.0) + (_hint(path) if found else 0.0)


def _gdb(path: str, head: bytes) -> float:
    return 0.8 + _hint(path) if _has((stacks_text.GDB_THREAD,), head) and b"\n#0 " in head else 0.0


def _folded(path: str, head: bytes) -> float:
    lines = [line for line in _lines(head) if line.strip()][:20]
    good = [line for line in lines if re.match(r"^[^;\n]{1,2000};[^\n]{1,3000} \d{1,15}$", line)]
    if not lines or len(good) < len(lines):
        return 0.0
    # Many texts have semicolons and end in a number: only a path that speaks of stacks makes it sure.
    return 0.8 if _hint(path) else 0.4


ADAPTERS: tuple[StackAdapter, ...] = (
    StackAdapter("stack_envelope", _envelope, stacks_json.read_envelope),
    StackAdapter("py_spy_json", _py_spy, stacks_json.read_py_spy),
    StackAdapter("deeptrace_processes", _deeptrace, stacks_json.read_deeptrace),
    StackAdapter("probing_callstacks", _probing, stacks_json.read_probing),
    StackAdapter("speedscope", _speedscope, stacks_json.read_speedscope),
    StackAdapter("py_spy_text", _py_spy_text, stacks_text.read_py_spy_text),
    StackAdapter("pystack_text", _pystack, stacks_text.read_pystack),
    StackAdapter("faulthandler_text", _faulthandler, stacks_text.read_faulthandler),
    StackAdapter("gdb_text", _gdb, stacks_text.read_gdb),
    StackAdapter("folded_stacks", _folded, stacks_text.read_folded),
)
