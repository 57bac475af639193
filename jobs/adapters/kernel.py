"""Kernel logs (dmesg, /dev/kmsg, syslog, journald's JSON Lines) and platform events as `node_events`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.kernel_words import Told, told_by
from jobs.adapters.lines import LineReader, is_binary
from jobs.adapters.paths import bare_name
from jobs.adapters.stamps import ISO, MONTHS, SYSLOG, Clock, from_epoch, from_us, to_us

_SYSLOG = re.compile(rf"{SYSLOG} ([\w.-]{{1,64}}) ([\w./-]{{1,40}})(?:\[\d{{1,9}}\])?: (.*)$", re.S)
_DMESG_T = re.compile(rf"\[{SYSLOG}\] (.*)$", re.S)
_UPTIME = re.compile(r"\[ {0,8}(\d{1,12}(?:\.\d{1,9})?)\] (.*)$", re.S)
_KMSG = re.compile(r"(\d{1,4}),(\d{1,12}),(\d{1,16}),[^;]{0,64};(.*)$", re.S)
_LEVELLED = re.compile(rf"(?:kern|user|daemon|syslog|auth) {{0,4}}:(\w{{1,8}}) {{0,4}}: {ISO}(?:\+00:00)? ?(.*)$", re.S)
_ISO_LINE = re.compile(rf"{ISO} (?:([\w.-]{{1,64}}) )?(?:kernel|systemd\[\d+\]): (.*)$", re.S)
_HOST_KERNEL = re.compile(r"([\w.-]{1,64}) kernel: (.*)$", re.S)
_NAME = re.compile(r"(?i)(?:^|[/_.-])(?:dmesg|kern(?:el)?|kmsg|messages|syslog|journal(?:ctl|d)?)(?=[/_.-]|$)")
_HEAD_WORDS = (
    b"kernel:",
    b"NVRM:",
    b"] NVRM",
    b"__REALTIME_TIMESTAMP",
    b"nvidia-nvswitch",
    b"Linux version",
    b"mlx5_core",
    b"EXT4-fs",
)
BATCH = 20_000


@dataclass
class Line:
    """A kernel line without what stood before its message."""

    message: str
    at_us: int | None = None
    node: str | None = None
    is_known: bool = False


@dataclass
class Events:
    """Columns of `node_events` being filled."""

    columns: dict[str, list[Any]] = field(
        default_factory=lambda: {
            n: [] for n in ("node", "device", "occurred_at", "kind", "code", "severity", "message", "byte_offset")
        }
    )

    def add(self, line: Line, told: Told, node: str | None, offset: int) -> None:
        """One event."""
        row = (line.node or node, told.device, line.at_us, told.kind, told.code, told.severity, line.message[:4096], offset)
        for column, value in zip(self.columns.values(), row):
            column.append(value)

    def __len__(self) -> int:
        return len(self.columns["kind"])


class KernelLines:
    """Parses the lines of one kernel log; stamps that count from boot have no time without a boot time."""

    def __init__(self, context: FileContext) -> None:
        near = context.ended_at or context.started_at or context.modified_at
        self._clock = Clock(context.zone, to_us(near) if near else None)

    def parse(self, text: str) -> Line:
        """One line taken apart."""
        if text.startswith("{"):
            return self._journal(text)
        if text.startswith("["):
            return self._bracketed(text)
        if found := _LEVELLED.match(text):
            return self._inner(found.group(6), self._clock.iso(*found.groups()[1:5]))
        if found := _SYSLOG.match(text):
            return Line(found.group(7), self._syslog(found), found.group(5), True)
        if found := _ISO_LINE.match(text):
            return Line(found.group(6), self._clock.iso(*found.groups()[:4]), found.group(5), True)
        if found := _KMSG.match(text):
            return Line(found.group(4), None, None, True)
        return self._inner(text, None, False)

    def _bracketed(self, text: str) -> Line:
        if found := _DMESG_T.match(text):
            return self._inner(found.group(5), self._syslog(found))
        if found := _UPTIME.match(text):
            return self._inner(found.group(2), from_epoch(float(found.group(1))) if float(found.group(1)) > 1e9 else None)
        return self._inner(text, None, False)

    def _syslog(self, found: re.Match[str]) -> int | None:
        month, day, time, year = MONTHS[found.group(1)], int(found.group(2)), found.group(3), found.group(4)
        return self._clock.iso(f"{year}-{month:02d}-{day:02d} {time}") if year else self._clock.yearless(month, day, time)

    @staticmethod
    def _inner(text: str, at_us: int | None, is_known: bool = True) -> Line:
        if text.startswith("kernel: "):
            return Line(text[8:], at_us, None, True)
        if found := _HOST_KERNEL.match(text):
            return Line(found.group(2), at_us, found.group(1), True)
        return Line(text, at_us, None, is_known)

    @staticmethod
    def _journal(text: str) -> Line:
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            return Line(text)
        if not isinstance(record, dict) or "MESSAGE" not in record:
            return Line(text)
        message = record["MESSAGE"]
        if isinstance(message, list):
            message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
        stamp = record.get("__REALTIME_TIMESTAMP", record.get("_SOURCE_REALTIME_TIMESTAMP"))
        at_us = from_epoch(float(stamp)) if isinstance(stamp, str | int) and str(stamp).isdigit() else None
        node = record.get("_HOSTNAME")
        return Line(str(message), at_us, str(node) if node else None, True)


@dataclass(frozen=True)
class KernelAdapter:
    """Kernel log lines. Each becomes a log event; those that tell of hardware or the system become node events too."""

    name: str = "kernel_log"
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """By name and by the words that only kernels and drivers say."""
        if is_binary(head) or head.startswith((b"{\n", b"[{")):
            return 0.0
        has_words = any(word in head for word in _HEAD_WORDS)
        if head.startswith(b"{") and b"__REALTIME_TIMESTAMP" not in head[:8192]:
            return 0.0
        if _NAME.search(bare_name(path)) and bare_name(path).endswith(
            (".log", ".txt", ".json", ".jsonl", "dmesg", "messages", "syslog", "kmsg")
        ):
            return 0.9 if has_words else 0.6
        lines = head[:16384].split(b"\n")
        n_telling = sum(any(word in line for word in _HEAD_WORDS) for line in lines)
        return 0.85 if n_telling > 0.3 * len(lines) and n_telling > 1 else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """Node events; every line is kept as a log event as well."""
        reader, parser, events = LineReader(stream), KernelLines(context), Events()
        n_read = n_understood = n_refused = 0
        span: list[int] = []
        for block in reader.blocks():
            yield from block.problems
            n_refused += len(block.refused)
            records: dict[str, list[Any]] = {
                n: []
                for n in (
                    "line",
                    "byte_offset",
                    "n_lines",
                    "occurred_at",
                    "time_source",
                    "node",
                    "level",
                    "message",
                    "time_uncertainty_s",
                )
            }
            for i, (text, offset) in enumerate(zip(block.lines, block.offsets)):
                n_read += 1
                if not text.strip():
                    n_understood += i not in block.refused
                    continue
                line = parser.parse(text)
                told = told_by(line.message)
                n_understood += line.is_known or told is not None
                if told is not None:
                    events.add(line, told, context.node, offset)
                if line.at_us is not None:
                    span = [min(line.at_us, *span), max(line.at_us, *span)] if span else [line.at_us, line.at_us]
                _record(records, line, told, block.first_line + i, offset, context.node)
            yield Rows("log_records", records)
            if len(events) >= BATCH:
                yield Rows("node_events", events.columns)
                events = Events()
        yield Rows("node_events", events.columns)
        first, last = (span[0], span[1]) if span else (None, None)
        flags = tuple(sorted(reader.encoding.flags))
        yield Tally(n_read, min(n_understood, n_read - n_refused), from_us(first), from_us(last), reader.encoding.name, flags)


def _record(records: dict[str, list[Any]], line: Line, told: Told | None, number: int, offset: int, node: str | None) -> None:
    level = {"critical": "ERROR", "warning": "WARNING"}.get(told.severity) if told else None
    source = "line" if line.at_us is not None else None
    row = (number, offset, 1, line.at_us, source, line.node or node, level, line.message, 1.0 if source else None)
    for column, value in zip(records.values(), row):
        column.append(value)


@dataclass(frozen=True)
class HealthCheckAdapter:
    """Health-check and platform events as JSON Lines: time, node, a name, a result or severity, a message."""

    name: str = "health_events"
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """JSON Lines with a node and a check or an event below `events/`, or with the words of known tools."""
        first = head[:16384].split(b"\n", 1)[0]
        if not first.startswith(b"{") or not first.rstrip().endswith(b"}"):
            return 0.0
        keys = (b'"health_check"', b'"check"', b'"event"', b'"component"', b'"alert"', b'"kind"')
        has_node = any(k in first for k in (b'"node"', b'"host"', b'"hostname"', b'"_HOSTNAME"'))
        if has_node and any(k in first for k in keys):
            return 0.8 if "events/" in path or b'"health_check"' in first else 0.55
        return 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """One node event a line."""
        reader, events, n_read, n_bad = LineReader(stream), Events(), 0, 0
        span: list[int] = []
        for block in reader.blocks():
            yield from block.problems
            for i, (text, offset) in enumerate(zip(block.lines, block.offsets)):
                n_read += 1
                if not text.strip():
                    continue
                event = _health_event(text, context)
                if event is None and i not in block.refused:
                    n_bad += 1
                    yield Problem("broken_json", offset, 1, "no JSON object with a message", text[:64].encode("utf-8", "replace"))
                elif event is not None:
                    events.add(event[0], event[1], context.node, offset)
                    span = [*span[:1], event[0].at_us] if event[0].at_us is not None else span
        yield Rows("node_events", events.columns)
        yield Tally(
            n_read, n_read - n_bad, from_us(min(span)) if span else None, from_us(max(span)) if span else None, reader.encoding.name
        )


def _health_event(text: str, context: FileContext) -> tuple[Line, Told] | None:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict):
        return None
    flat = {
        **record,
        **{k: v for part in ("int", "normal", "double") if isinstance(record.get(part), dict) for k, v in record[part].items()},
    }
    said = next(
        (
            str(flat[k])
            for k in ("message", "_msg", "msg", "reason", "description", "health_check", "check", "event", "name")
            if flat.get(k)
        ),
        None,
    )
    if said is None:
        return None
    name = next((str(flat[k]) for k in ("health_check", "check", "event", "component", "alert", "kind", "name") if flat.get(k)), "")
    stamp = next(
        (flat[k] for k in ("timestamp", "time", "end_time", "startTime", "start_time", "at") if flat.get(k) is not None), None
    )
    at_us = (
        from_epoch(float(stamp))
        if isinstance(stamp, int | float)
        else Clock(context.zone).iso(*m.groups())
        if (m := re.match(ISO, str(stamp)))
        else None
    )
    node = next((str(flat[k]) for k in ("node", "host", "hostname") if flat.get(k)), None)
    result = flat.get("result", flat.get("code", flat.get("exit_code")))
    code = result if isinstance(result, int) and not isinstance(result, bool) and abs(result) < 1 << 31 else None
    told = told_by(said)
    severity = _severity(str(flat.get("severity", flat.get("level", flat.get("type", ""))) or ""), code)
    kind = told.kind if told and told.kind != "other" else ("drain" if "drain" in (name + said).lower() else "health_check")
    device = flat.get("device", flat.get("gpu", flat.get("gpu_id")))
    device = str(device) if device is not None else (told.device if told else None)
    message = said if not name or name in said else f"{name}: {said}"
    return Line(message, at_us, node, True), Told(kind, severity, told.code if told and told.code is not None else code, device)


def _severity(word: str, code: int | None) -> str:
    low = word.lower()
    if low in ("critical", "fatal", "crit", "error", "err"):
        return "critical"
    if low in ("warning", "warn"):
        return "warning"
    return {None: "info", 0: "info", 1: "warning"}.get(code, "critical") if code is None or code >= 0 else "warning"


ADAPTERS = (KernelAdapter(), HealthCheckAdapter())
