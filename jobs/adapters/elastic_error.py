"""torchrun's `error.json`: the exception of one rank, with its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.paths import bare_name
from jobs.adapters.stamps import from_epoch, from_us, parse_iso

MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class ElasticErrorAdapter:
    """One error file is one log event, at the time that it gives."""

    name: str = "torchelastic_error"
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """By name and the key `message`."""
        if not head.lstrip().startswith(b"{") or b'"message"' not in head:
            return 0.0
        if bare_name(path) in ("error.json", "torchelastic_error.json"):
            return 0.97
        return 0.6 if b'"py_callstack"' in head or b'"extraInfo"' in head else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """A log event, and the rank's failure."""
        data = stream.read(MAX_BYTES + 1)
        try:
            record = orjson.loads(data) if len(data) <= MAX_BYTES else None
        except orjson.JSONDecodeError as error:
            yield Problem("broken_json", error.pos or 0, 1, str(error)[:200], data[:64])
            yield Tally(1, 0)
            return
        said = _said(record)
        if said is None:
            yield Problem("missing_column", 0, 1, "no message in it", data[:64])
            yield Tally(1, 0)
            return
        message, trace, stamp, code = said
        at_us = _time(stamp)
        text = trace if trace and (message in trace or not message) else "\n".join(part for part in (trace, message) if part)
        columns: dict[str, list[Any]] = {
            "line": [1],
            "byte_offset": [0],
            "n_lines": [text.count("\n") + 1],
            "occurred_at": [at_us],
            "time_source": ["json" if at_us else None],
            "time_uncertainty_s": [1.0 if at_us else None],
            "node": [context.node],
            "rank": [context.rank],
            "local_rank": [context.local_rank],
            "level": ["ERROR"],
            "message": [text],
        }
        yield Rows("log_records", columns)
        if context.rank is not None:
            yield Rows(
                "rank_failures",
                {
                    "rank": [context.rank],
                    "local_rank": [context.local_rank],
                    "node": [context.node],
                    "exit_code": [code],
                    "pid": [None],
                    "at_us": [at_us],
                    "error": [message[:2000]],
                    "is_first": [None],
                },
            )
        yield Tally(1, 1, from_us(at_us), from_us(at_us), "utf-8")


def _said(record: Any) -> tuple[str, str, Any, int | None] | None:
    """Message, call stack, time and code in either form of the file."""
    if not isinstance(record, dict):
        return None
    message, code = record.get("message"), record.get("errorCode")
    stamp: Any = record.get("timestamp")
    trace = ""
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        if isinstance(extra, dict):
            trace, stamp = str(extra.get("py_callstack") or ""), extra.get("timestamp", stamp)
        code = message.get("errorCode", code)
        message = message.get("message")
    if not isinstance(message, str) and not trace:
        return None
    return str(message or ""), trace.rstrip(), stamp, code if isinstance(code, int) and abs(code) < 1 << 31 else None


def _time(stamp: Any) -> int | None:
    if isinstance(stamp, int | float):
        return from_epoch(float(stamp))
    text = str(stamp or "")
    if text.replace(".", "", 1).isdigit() and len(text) < 24:
        return from_epoch(float(text))
    return parse_iso(text)


ADAPTERS = (ElasticErrorAdapter(),)
