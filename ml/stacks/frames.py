"""Frames made comparable: paths cut where builds and environments differ, wrappers known, a key without the line.

>>> normal("all_reduce (/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:4181)").key
'all_reduce (torch/distributed/distributed_c10d.py:4181)'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_FRAME = re.compile(r"^(?P<function>.{1,600}?) \((?P<file>[^()]{1,1200}?)(?::(?P<line>\d{1,9}))?\)$")
_ENVIRONMENT = re.compile(r"^.{0,1000}(?:site-packages|dist-packages|/lib(?:64)?/python\d(?:\.\d{1,2})?)/")
_UNTOLD = re.compile(r"^(?:tmp.{0,40}|temp|workspace|work|home|root|scratch|src|app|code|.{0,30}\d{3,}.{0,30})$", re.IGNORECASE)
_WRAPPERS = frozenset(
    {
        "_wrapped_call_impl", "_call_impl", "wrapper", "inner", "_fn", "decorate_context", "_no_grad_wrapper", "wrapped",
        "maybe_fallback", "_use_grad", "new_forward", "_bootstrap", "_bootstrap_inner", "_run_code", "_run_module_code",
        "_run_module_as_main", "run_path", "nested_with_exceptions", "profile_hook_step", "__call__", "_lazy_wrapper",
        "return_wrapper", "context_wrapper", "main_wrapper", "_launch", "_Popen", "__torch_function__", "wrapped_fn",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """One frame: `key` tells it from others, `loose` is the same without the line; wrappers only pass calls on."""

    function: str
    file: str
    line: int | None
    is_wrapper: bool

    @property
    def key(self) -> str:
        """`function (file:line)` with the path cut."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.function} ({place})" if place else self.function

    @property
    def loose(self) -> str:
        """The key without the line: the same place in another version of a file, or a moment later."""
        return f"{self.function} ({self.file})" if self.file else self.function

    @property
    def name(self) -> str:
        """The function without class and enclosing functions.

        >>> normal("_exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)").name
        'wrapper'
        """
        return self.function.rsplit(".", 1)[-1]


@lru_cache(maxsize=1 << 16)
def normal(text: str) -> Frame:
    """The frame in `function (file:line)`; what is not in that form is a function without a file."""
    match = _FRAME.match(text[:2048])
    if not match:
        function = text[:600].strip()
        return Frame(function, "", None, False)
    function, file = match["function"].strip(), cut_path(match["file"])
    line = int(match["line"]) if match["line"] else None
    return Frame(function, file, line, function.rsplit(".", 1)[-1] in _WRAPPERS)


def cut_path(path: str) -> str:
    """A path without what depends on the machine: environments, build trees, temporary and numbered folders.

    >>> cut_path("/opt/venv/lib/python3.11/site-packages/torch/_tensor.py"), cut_path("/workspace/train.py")
    ('torch/_tensor.py', 'train.py')
    >>> cut_path("/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc"), cut_path("<string>")
    ('tcp/pair.cc', '<string>')
    """
    path = path.replace("\\", "/")
    match = _ENVIRONMENT.match(path)
    if match:
        return path[match.end() :]
    if not path.startswith("/") and not re.match(r"^[A-Za-z]:/", path):
        return path
    parts = [part for part in path.split("/") if part]
    if len(parts) < 2:
        return path.strip("/") or path
    parent, name = parts[-2:]
    return name if len(parts) < 3 or _UNTOLD.match(parent) else f"{parent}/{name}"


def normal_stack(frames: Iterable[str]) -> tuple[Frame, ...]:
    """A stack, outermost first, with its wrappers kept."""
    return tuple(normal(frame) for frame in frames)


def telling(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without wrappers; all of it when nothing else would be left."""
    kept = tuple(frame for frame in stack if not frame.is_wrapper)
    return kept or tuple(stack)
