"""Words that make a log line worth a closer look, as one automaton: a line without any of them is plain."""

from __future__ import annotations

from collections import deque
from functools import cache

import numpy as np

from jobs.adapters.redaction import RULES

TRIGGERS: tuple[str, ...] = (
    # merged events and failures
    "Traceback",
    "rror",
    "xception",
    "terminate called",
    "ignal",
    "Warning:",
    "-----BEGIN",
    "frame #",
    # progress, and iterations named in passing
    "iter",
    "Iter",
    "ITER",
    "step",
    "Step",
    "STEP",
    # waiting times
    "imed out",
    "imedout",
    "imeout",
    "ran for",
    "blocked for",
    "stuck for",
    "waited",
    "no heartbeat",
    # phases and ends
    "aving",
    "aved",
    "oading",
    "oaded",
    "uilding",
    "pening",
    "raining",
    "valuat",
    "alidat",
    "eval",
    "exiting",
    "Exiting",
    "estroy",
    "received SIG",
    "losing signal",
    "slurmstepd",
    "srun:",
    "CANCELLED",
    "oom",
    "inish",
    "exits with",
    "run_stop",
    "train metrics",
    # configuration, other formats, further headers
    "ersion",
    " ..",
    ":::MLLOG",
    "exitcode",
    "%|",
    "it/s",
    "s/it",
    "B/s",
)

HEADER_TRIGGERS: tuple[str, ...] = (
    " INFO", " WARN", " ERROR", " DEBUG", " CRITICAL", " FATAL", " TRACE", " NOTICE", " EXCEPTION", " ERR",
    " info", " warning", " error",
    " debug", " fatal", " Info", " Warning", " Error", " Debug", " Fatal", "NCCL ", ": iteration", ": [",
)  # fmt: skip
"""Words by which a header may go on: such a line's header is read by the parser."""
HEADER_WORD = 2


State = frozenset[tuple[bytes, int]]
"""Words whose beginnings were just read, each with how many of its bytes."""


@cache
def automaton() -> tuple[np.ndarray, np.ndarray]:
    """Next state by (state, byte), int16, and which states end a word (`HEADER_WORD`: one of a header), these last.

    Hints of secrets are words too, in any case.
    """
    kinds = {word.encode(): 1 for word in TRIGGERS} | {word.encode(): HEADER_WORD for word in HEADER_TRIGGERS}
    hints = {hint.encode() for rule in RULES for hint in rule.hints}
    first: dict[int, set[tuple[bytes, int]]] = {}
    for word in {*kinds, *hints}:
        for byte in _forms(word, 0, word in hints):
            first.setdefault(byte, set()).add((word, 1))
    start: State = frozenset()
    numbers, rows, ends, pending = {start: 0}, [np.zeros(256, np.int16)], [0], deque([start])
    while pending:
        state = pending.popleft()
        after = {byte: set(begun) for byte, begun in first.items()}
        for word, n in state:
            if n < len(word):
                for byte in _forms(word, n, word in hints):
                    after.setdefault(byte, set()).add((word, n + 1))
        for byte, begun in after.items():
            to = frozenset(begun)
            if to not in numbers:
                numbers[to] = len(rows)
                rows.append(np.zeros(256, np.int16))
                ends.append(max(kinds.get(word, 1) if n == len(word) else 0 for word, n in to))
                pending.append(to)
            rows[numbers[state]][byte] = numbers[to]
    order = np.argsort(ends, kind="stable")
    renamed = np.empty(len(order), np.int16)
    renamed[order] = np.arange(len(order))
    return renamed[np.array(rows)[order]], np.array(ends, np.uint8)[order]


def _forms(word: bytes, at: int, is_any_case: bool) -> set[int]:
    letter = word[at : at + 1]
    return {*letter.lower(), *letter.upper()} if is_any_case else {*letter}
