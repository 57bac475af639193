"""What messages of training jobs say: progress, configuration, phases, waiting times, how the run ended.

Cheap substring tests stand before every pattern, so that a line that says none of this costs next to nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import orjson

NUMBER = r"[-+]?(?:\d[\d,]{0,24}(?:\.\d{0,24})?|\.\d{1,24})(?:[eE][-+]?\d{1,3})?|[-+]?(?:nan|inf|NaN|Inf|Infinity)"
_PROGRESS = re.compile(
    r"(?:^"
    r"|[\s,{(|/'\"])(?:global[_ ]?step|micro_step|iteration|iter|step|Iteration|Iter|Step|ITERATION|ITER|STEP)s?"
    r"['\"]?\s{0,8}[:=\[ ]\s{0,12}#?(\d{1,12})(?:\s{0,8}/\s{0,8}(\d{1,12}))?(?![\d.-]|:\d)"
)
_SPACED_LOSS = re.compile(rf"\b(\w{{0,24}}loss) {{1,4}}({NUMBER})(?=$|[\s,;|)])", re.I)
_GLOBAL_STEP = re.compile(r"global_?step\s{0,4}[=:]\s{0,4}(\d{1,12})")
_PAIR = re.compile(
    rf"([A-Za-z][\w()/%@. -]{{0,48}}?)['\"]?\s{{0,4}}[:=]\s{{0,12}}[\[(]{{0,2}}({NUMBER})(?=$|[\s,;|)\]}}%(]|[A-Za-z])"
)
_ARGUMENT = re.compile(r"^\s{0,16}([A-Za-z_][\w.-]{0,80}) \.{2,} ?(\S.{0,2000})$")
_SETTING = re.compile(r"^\s{0,16}([A-Za-z_][\w.-]{0,80}) {1,40}\.{2,} ?(\S.{0,2000})$")
_MENTION = re.compile(r"\b(?:iteration|iter|step)s?\s{0,4}[:=#]?\s{0,12}(\d{1,12})\b(?!\s{0,2}(?:s|ms|%|/s)\b)", re.I)
_WAITED = re.compile(
    r"(?:ran for|[Tt]imed ?out (?:after |waiting (?:for |after )?)?|[Tt]imeout (?:of |after )|blocked for more"
    r" than|stuck for|waited (?:for )?|no heartbeat for)"
    r"\s{0,3}(\d{1,12}(?:\.\d{1,6})?)\s{0,2}(milliseconds|millisec|ms|seconds|secs|sec|s|minutes|mins|min|hours|h)\b"
)
_NAMED_VERSION = re.compile(
    r"(?i)\b(nccl|rccl|hccl|pytorch|torch|cuda|cudnn|driver|python|deepspeed|megatron[a-z_-]{0,8}|transformers|apex|rocm|gloo)"
    r"(?: info:?| compiled| runtime)?[ _-]{0,2}version\W{1,4}v?(\d[\w.+-]{0,40})"
)
_SAME_VERSION = {"pytorch": "torch"}
_UNITS = {"m": 60.0, "h": 3600.0, "s": 1.0}
_RANK = re.compile(r"^\W{0,4}(?:global |worker |process )?[Rr]ank[ =:]?(\d{1,6})(?:[\]:, ]|$)(?! of)")
_RANK_OF = re.compile(r"\brank[=: ](\d{1,6})[ ,]+world_size[=: ]\d")
MLLOG = ":::MLLOG "
LOSSES = ("lm loss", "loss", "train_loss", "reduced_train_loss", "train loss", "total_loss", "training loss")
STEP_TIMES = (
    "elapsed time per iteration (ms)",
    "elapsed time per iteration (s)",
    "train_step_timing in s",
    "step_time",
    "iteration_time",
    "iter_time",
    "time per iteration",
    "time/iter",
    "step time",
    "time",
)


@dataclass(frozen=True)
class Progress:
    """An iteration line: `values` are all its numeric pairs by their printed names."""

    iteration: int
    n_planned: int | None
    values: dict[str, float]

    def first(self, names: tuple[str, ...]) -> float | None:
        """The value of the first of these names that the line has."""
        return next((self.values[name] for name in names if name in self.values), None)

    @property
    def loss(self) -> float | None:
        """Training loss: by its usual names, else the first pair that is called a loss."""
        named = self.first(LOSSES)
        return named if named is not None else next((v for k, v in self.values.items() if k.lower().endswith("loss")), None)

    @property
    def step_time_s(self) -> float | None:
        """Seconds of one iteration."""
        for name in STEP_TIMES:
            if name in self.values:
                return self.values[name] / 1000 if "(ms)" in name else self.values[name]
        return None


_NO_FIGURES = frozenset({"step", "iter", "iteration", "global_step", "micro_step", "epoch", "eta", "rank", "world_size", "pid"})
"""Pairs that do not make a line an iteration line."""


def progress_of(message: str) -> Progress | None:
    """The iteration line in a message: a step number and at least one numeric pair beside it.

    >>> progress_of(" iteration   5/ 140 | elapsed time per iteration (ms): 106.7 | lm loss: 5.86E+00 |").loss
    5.86
    """
    if "tep" not in message and "ter" not in message and "STEP" not in message and "ITER" not in message:
        return None
    head = message[:2048]
    found = _PROGRESS.search(head)
    if found is None or ("=" not in head and ":" not in head and "|" not in head):
        return None
    values = (
        _bar_pairs(head) if head.count("|") > 2 else {k.rpartition("  ")[2].strip(" -"): _number(v) for k, v in _PAIR.findall(head)}
    )
    if not values and (spaced := _SPACED_LOSS.search(head)):
        values[spaced[1].lower()] = _number(spaced[2])
    step = _GLOBAL_STEP.search(head)
    iteration = int(step.group(1)) if step else int(found.group(1))
    if all(name.lower() in _NO_FIGURES for name in values) or not (found.start() < 80 or "loss" in head):
        return None
    return Progress(iteration, int(found.group(2)) if found.group(2) and not step else None, values)


def _bar_pairs(text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for piece in text.split("|"):
        name, colon, value = piece.rpartition(":")
        if not colon and "=" not in piece:
            continue
        try:
            values[name.strip()] = float(value)
        except ValueError:
            values.update((k.strip(" -"), _number(v)) for k, v in _PAIR.findall(piece[:300]))
    values.pop("", None)
    return values


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def argument_of(message: str) -> tuple[str, str] | None:
    """Name and value of a line of an argument block: `hidden ........ 64`."""
    if " .." not in message[:140]:
        return None
    found = _ARGUMENT.match(message) or _SETTING.match(message)
    return (found.group(1), found.group(2).strip()) if found else None


def versions_in(message: str) -> dict[str, str]:
    """Versions of software that a message names, by the software.

    >>> versions_in("NCCL version 2.30.3+cuda13.0"), versions_in("Driver Version: 460.32.03    CUDA Version: 11.2")
    ({'nccl': '2.30.3+cuda13.0'}, {'driver': '460.32.03', 'cuda': '11.2'})
    """
    if "ersion" not in message:
        return {}
    found: dict[str, str] = {}
    for match in _NAMED_VERSION.finditer(message[:512]):
        name, value = match.group(1).lower(), match.group(2).partition("NCCL")[0].rstrip(".-")
        found.setdefault(_SAME_VERSION.get(name, name), value)
    return found


def waited_s(message: str) -> float | None:
    """Seconds that a watchdog or a time-out says it waited before it spoke.

    >>> waited_s("Watchdog caught … ran for 600081 milliseconds before timing out.")
    600.081
    """
    if "out" not in message and "for" not in message:
        return None
    found = _WAITED.search(message[:4096])
    if found is None:
        return None
    value, unit = float(found.group(1)), found.group(2)
    return value / 1000 if unit.startswith(("ms", "milli")) else value * _UNITS[unit[0]]


def iteration_in(message: str) -> int | None:
    """The iteration that a message names in passing."""
    if "ter" not in message and "tep" not in message:
        return None
    found = _MENTION.search(message[:512])
    return int(found.group(1)) if found else None


def rank_in(message: str) -> int | None:
    """The rank that a message gives as its own."""
    if "ank" not in message[:200]:
        return None
    found = _RANK.match(message) or (_RANK_OF.search(message[:200]) if "world_size" in message[:220] else None)
    return int(found.group(1)) if found else None


@dataclass(frozen=True)
class MlEvent:
    """A line of MLPerf's logging."""

    key: str
    at_ms: float | None
    kind: str
    value: object
    metadata: dict[str, object] = field(default_factory=dict)


def mlperf_event(message: str) -> MlEvent | None:
    """The MLLOG record of a message; None when there is none or it is broken."""
    at = message.find(MLLOG)
    if at < 0:
        return None
    try:
        record = orjson.loads(message[at + len(MLLOG) :])
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("key"), str):
        return None
    metadata = record.get("metadata")
    at_ms = record.get("time_ms")
    return MlEvent(
        record["key"],
        float(at_ms) if isinstance(at_ms, int | float) else None,
        str(record.get("event_type", "")),
        record.get("value"),
        metadata if isinstance(metadata, dict) else {},
    )
