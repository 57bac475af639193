"""How each process ended, as launchers report it: torchrun's agent, srun, mpirun, DeepSpeed's, Composer's, Ray's, Kubernetes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from ml.log_diffs.messages import bounded

_ORDERLY = frozenset({-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE})
"""Signals with which launchers and schedulers end processes; they say nothing of the process itself."""

_BLOCK = re.compile(
    r"time\s*:\s*(?P<time>[\d\-_:.]{8,32})\s*\n\s*host\s*:\s*(?P<host>\S{1,255})\s*\n"
    r"\s*rank\s*:\s*(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,4})\)"
    r"\s*\n\s*exitcode\s*:\s*(?P<code>-?\d{1,5})"
)
_AGENT = re.compile(r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,4})\b")
_SRUN = re.compile(r"srun: error: (?P<host>[\w.\-\[\],]{1,255}): tasks? (?P<tasks>[\d,\-]{1,200}): (?P<how>[^\n]{1,80})")
_MPI = re.compile(r"process rank (?P<rank>\d{1,7}) with PID \d+ on node (?P<host>\S{1,255}) exited on signal (?P<signal>\d{1,2})")
_PLAIN = re.compile(
    r"\brank[ =:]{0,2}(?P<rank>\d{1,7})\b[^\n]{0,80}?"
    r"\b(?:exited|died|terminated|killed|crashed|failed|aborted)\b"
    r"[^\n]{0,40}?\b(?P<what>signal|code|status)[ =:]{0,3}(?P<code>-?\d{1,5})",
    re.IGNORECASE,
)
_RETURN = re.compile(r"(?:--local_rank[= ](?P<local>\d{1,4})\b[^\n]{0,2000})?exits with return code = (?P<code>-?\d{1,5})")
_SPAWNED = re.compile(
    r"\bprocess (?P<local>\d{1,4}) terminated with (?:signal (?P<signal>SIG[A-Z]{2,6})|exit code (?P<code>-?\d{1,5}))",
    re.IGNORECASE,
)
_DIED_WITH = re.compile(r"died with <Signals\.SIG[A-Z]{2,6}: (?P<signal>\d{1,2})>")
_ACTOR = re.compile(
    r"\bActor(?:Died|Unavailable)?Error\b[^\0]{0,600}?\bip: (?P<host>[\w.:-]{1,64})[^\0]{0,200}?\bworker process has died"
)
_CONTAINER = re.compile(
    r"\b(?:pod|container|worker|actor|executor)\b[ /:\"'\[]{1,4}(?P<host>[\w.-]{1,253})[^\n]{0,120}?"
    r"(?:\b(?P<oom>OOMKilled)\b|\bexit ?code[\"' =:]{1,4}(?P<code>-?\d{1,3})\b)",
    re.IGNORECASE,
)
_HOW = (
    ("out of memory", -9), ("out-of-memory", -9), ("killed", -9), ("segmentation fault", -11), ("bus error", -7), ("aborted", -6),
    ("illegal instruction", -4), ("floating point", -8), ("terminated", -15),
)  # fmt: skip


UNKNOWN_CODE = 1
"""A launcher that tells of a death without a code."""


@dataclass(frozen=True)
class Exit:
    """One process's end: `code` is negative for a signal; `at` is seconds since 1970 when the report tells it."""

    code: int
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    at: float | None = None
    is_first: bool = False
    """The launcher says that this process was the first of its node to fail."""

    @property
    def is_signal(self) -> bool:
        """Ended by a signal that no launcher sends in good order: killed, aborted, segmentation fault …"""
        return self.code < 0 and self.code not in _ORDERLY

    @property
    def is_orderly(self) -> bool:
        """Ended well, or by the signal with which launchers end the peers of a failed process."""
        return self.code == 0 or self.code in _ORDERLY


def normal_code(code: int) -> int:
    """Shells report a signal as 128 plus its number; Python as its negative.

    >>> normal_code(137)
    -9
    """
    return 128 - code if 128 < code < 165 else code


def signal_name(code: int) -> str:
    """`SIGKILL` for -9; `exit code 1` for 1."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def exits_in(message: str) -> list[Exit]:
    """Every process end that a message reports, in order of appearance, without repeats."""
    text = bounded(message)
    found: list[Exit] = []
    for source in (_blocks, _agents, _tasks, _others):
        for each in source(text):
            if not any(_same(each, other) for other in found):
                found.append(each)
    return found


def _same(one: Exit, other: Exit) -> bool:
    if one.code != other.code:
        return False
    if one.rank is not None and other.rank is not None:
        return one.rank == other.rank
    if one.rank is None and one.local_rank is None:
        return one.host == other.host
    return one.local_rank is not None and one.local_rank == other.local_rank


def _blocks(text: str) -> Iterator[Exit]:
    first = text.find("first observed failure")
    for block in _BLOCK.finditer(text):
        code = normal_code(int(block["code"]))
        yield Exit(
            code, int(block["rank"]), int(block["local"]), block["host"], _instant(block["time"]), 0 <= first < block.start()
        )


def _agents(text: str) -> Iterator[Exit]:
    for line in _AGENT.finditer(text):
        yield Exit(normal_code(int(line["code"])), local_rank=int(line["local"]), is_first=True)


def _tasks(text: str) -> Iterator[Exit]:
    for line in _SRUN.finditer(text):
        how = line["how"].lower()
        number = re.search(r"exit(?:ed with exit)? code (\d{1,3})", how)
        code = normal_code(int(number.group(1))) if number else next((c for word, c in _HOW if word in how), 1)
        host = line["host"] if "[" not in line["host"] else None
        for rank in _numbers(line["tasks"]):
            yield Exit(code, rank, host=host)


def _others(text: str) -> Iterator[Exit]:
    for line in _MPI.finditer(text):
        yield Exit(-int(line["signal"]), int(line["rank"]), host=line["host"])
    for line in _PLAIN.finditer(text):
        number = int(line["code"])
        code = -abs(number) if line["what"].lower() == "signal" else normal_code(number)
        yield Exit(code, int(line["rank"]))
    for line in _RETURN.finditer(text):
        yield Exit(normal_code(int(line["code"])), local_rank=int(line["local"]) if line["local"] else None, is_first=True)
    for line in _SPAWNED.finditer(text):
        code = -_number_of(line["signal"]) if line["signal"] else normal_code(int(line["code"]))
        yield Exit(code, local_rank=int(line["local"]))
    for line in _DIED_WITH.finditer(text):
        yield Exit(-int(line["signal"]))
    for line in _ACTOR.finditer(text):
        yield Exit(UNKNOWN_CODE, host=line["host"])
    for line in _CONTAINER.finditer(text):
        code = -9 if line["oom"] else normal_code(int(line["code"]))
        yield Exit(code, host=line["host"])


def _number_of(name: str) -> int:
    """Number of a signal's name, 0 for one that does not exist here."""
    return int(getattr(signal, name.upper(), 0))


def _numbers(spans: str) -> list[int]:
    """Ranks of `0-3,6`; a span of more than 4096 is cut."""
    numbers: list[int] = []
    for span in spans.split(","):
        low, _, high = span.partition("-")
        if low.isdigit():
            last = int(high) if high.isdigit() else int(low)
            numbers += range(int(low), min(last, int(low) + 4096) + 1)
    return numbers


def _instant(stamp: str) -> float | None:
    """Seconds since 1970 of the launcher's own stamp, read as UTC."""
    for form in ("%Y-%m-%d_%H:%M:%S", "%Y-%m-%d_%H:%M:%S.%f"):
        try:
            return datetime.strptime(stamp, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None
