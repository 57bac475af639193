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


@cache
def automaton() -> tuple[np.ndarray, np.ndarray]:
    """Next state by (state, byte), int16, and which states end a word (`HEADER_WORD`: one of a header).

    Hints of secrets are words too, in any case.
    """
    words = [word.encode() for word in TRIGGERS]
    kinds = {word.encode(): HEADER_WORD for word in HEADER_TRIGGERS}
    for rule in RULES:
        for hint in rule.hints:
            words += {hint.encode(), hint.upper().encode(), hint.capitalize().encode()}
    goto: list[dict[int, int]] = [{}]
    ends = [0]
    for word in sorted({*words, *kinds}):
        state = 0
        for byte in word:
            if byte not in goto[state]:
                goto.append({})
                ends.append(0)
                goto[state][byte] = len(goto) - 1
            state = goto[state][byte]
        ends[state] = kinds.get(word, 1)
    return _dense(goto, ends)


def _dense(goto: list[dict[int, int]], ends: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Aho and Corasick's failure links folded into a table."""
    table = np.zeros((len(goto), 256), np.int16)
    fail = [0] * len(goto)
    pending: deque[int] = deque()
    for byte, state in goto[0].items():
        table[0, byte] = state
        pending.append(state)
    while pending:
        state = pending.popleft()
        ends[state] = max(ends[state], ends[fail[state]])
        table[state] = table[fail[state]]
        for byte, after in goto[state].items():
            fail[after] = int(table[fail[state], byte])
            table[state, byte] = after
            pending.append(after)
    return table, np.array(ends, np.uint8)
