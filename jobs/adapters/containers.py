"""Log transports: CRI pod files, Docker's JSON files, Loki, Fluent Bit, Vector and ELK as JSON Lines.

Each wraps the lines of a log; here they are unwrapped and given to the log parser with the time, stream and place
that the transport adds. Parts of a line that was split are joined.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Tally
from jobs.adapters.lines import LINE_CAP, LineReader, without_ansi
from jobs.adapters.log_parser import LogParser, Place
from jobs.adapters.stamps import from_epoch, parse_iso

_CRI = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP])(?: (.*))?$", re.S)
_POD = re.compile(r"(?:^|/)([^/_]+)_([^/_]+)_[0-9a-f-]{8,}/[^/]+/(\d{1,4})\.log")
NODE_LABELS = ("node", "node_name", "nodename", "host", "hostname", "instance", "kubernetes_node")
STREAM_LABELS = ("stream", "filename")
RANK_LABELS = ("rank", "global_rank", "replica_index", "replica-index", "job_completion_index")
TEXT_KEYS = ("line", "log", "message", "msg", "MESSAGE", "text", "body")
TIME_KEYS = ("timestamp", "time", "@timestamp", "ts", "date", "asctime", "datetime")


@dataclass
class Wrapped:
    """One unwrapped line. `is_part` says that the next one of its stream goes on with it."""

    text: str
    at_us: int | None = None
    stream: str | None = None
    place: Place = field(default_factory=Place)
    is_part: bool = False
    level: str | None = None


@dataclass(frozen=True)
class TransportAdapter:
    """One transport: how its records are recognised and unwrapped."""

    name: str
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """By the form of the first lines."""
        whole = head[:32768]
        if len(whole) == 32768:
            whole = whole[: whole.rfind(b"\n") + 1] or whole
        lines = [line for line in whole.split(b"\n")[:20] if line.strip()]
        return _SNIFFERS[self.name](path, lines) if lines else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """Events of the wrapped log."""
        reader, books = LineReader(stream), _Books()
        parser = LogParser(context)
        parser.time_source = "line" if self.name == "cri_log" else "json"
        unwrap = _UNWRAPPERS[self.name]
        # The newest line first is how some tools print: such a file is turned around, a block at a time.
        for block in reader.blocks():
            yield from block.problems
            books.n_read += len(block.lines)
            items: list[tuple[int, int, Wrapped]] = []
            for i, (line, offset) in enumerate(zip(block.lines, block.offsets)):
                if not line.strip():
                    books.n_understood += i not in block.refused
                    continue
                found = unwrap(line)
                if found is None:
                    books.n_bad += 1
                    yield Problem(
                        "broken_json" if self.name != "cri_log" else "bad_value",
                        offset,
                        1,
                        "no record of this form",
                        line[:64].encode("utf-8", "replace"),
                    )
                    continue
                items += [(block.first_line + i, offset, wrapped) for wrapped in found]
            _feed(parser, _in_order(items), books)
            yield from parser.rows()
        _flush(parser, books)
        yield from parser.close()
        first, last = parser.span()
        flags = tuple(sorted(parser.flags | reader.encoding.flags | books.flags))
        yield Tally(books.n_read, books.n_understood, first, last, reader.encoding.name, flags)


@dataclass
class _Books:
    n_read: int = 0
    n_understood: int = 0
    n_bad: int = 0
    parts: dict[str | None, tuple[int, int, Wrapped]] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    n_sub: int = 0


def _in_order(items: list[tuple[int, int, Wrapped]]) -> list[tuple[int, int, Wrapped]]:
    """Records oldest first: those of a file that runs backwards are turned around."""
    times = [w.at_us for _, _, w in items if w.at_us is not None]
    n_down = sum(a > b for a, b in itertools.pairwise(times))
    n_up = sum(a < b for a, b in itertools.pairwise(times))
    return items[::-1] if n_down > n_up else items


def _feed(parser: LogParser, items: list[tuple[int, int, Wrapped]], books: _Books) -> None:
    last = -1
    for number, offset, wrapped in items:
        books.n_understood += offset != last
        last = offset
        held = books.parts.pop(wrapped.stream, None)
        if held is not None:
            text = (held[2].text + wrapped.text)[:LINE_CAP]
            number, offset, wrapped = (
                held[0],
                held[1],
                Wrapped(text, held[2].at_us, wrapped.stream, wrapped.place, wrapped.is_part, wrapped.level),
            )
        if wrapped.is_part:
            books.parts[wrapped.stream] = (number, offset, wrapped)
        else:
            _give(parser, number, offset, wrapped)


def _give(parser: LogParser, number: int, offset: int, wrapped: Wrapped) -> None:
    text = without_ansi(wrapped.text).rstrip("\r\n")
    for i, line in enumerate(text.split("\n")):
        if line:
            parser.feed_one(line[:LINE_CAP], offset + i, number, wrapped.at_us, wrapped.place, wrapped.stream)


def _flush(parser: LogParser, books: _Books) -> None:
    for number, offset, wrapped in books.parts.values():
        _give(parser, number, offset, wrapped)
    books.parts.clear()


def _cri(line: str) -> list[Wrapped] | None:
    found = _CRI.match(line)
    if found is None:
        return None
    stamp, stream, tag, text = found.groups()
    return [Wrapped(text or "", parse_iso(stamp), stream, Place(), tag == "P")]


def _loads(line: str) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _docker(line: str) -> list[Wrapped] | None:
    record = _loads(line)
    if record is None or not isinstance(record.get("log"), str):
        return None
    text = record["log"]
    stream = record.get("stream")
    return [Wrapped(text, _time(record.get("time")), stream if isinstance(stream, str) else None, Place(), not text.endswith("\n"))]


def _loki(line: str) -> list[Wrapped] | None:
    record = _loads(line)
    if record is None:
        return None
    if isinstance(record.get("data"), dict):
        return _loki_api(record["data"])
    labels = record.get("labels") if isinstance(record.get("labels"), dict) else record.get("stream")
    if not isinstance(record.get("line"), str):
        return None
    return [Wrapped(record["line"], _time(record.get("timestamp")), _stream(labels), _place(labels))]


def _loki_api(data: dict[str, Any]) -> list[Wrapped] | None:
    found: list[Wrapped] = []
    for result in data.get("result") or []:
        if isinstance(result, dict) and isinstance(result.get("values"), list):
            labels = result.get("stream")
            for value in result["values"]:
                if isinstance(value, list) and len(value) >= 2 and isinstance(value[1], str):
                    found.append(Wrapped(value[1], _time(value[0]), _stream(labels), _place(labels)))
    return sorted(found, key=lambda w: w.at_us or 0) or None


def _json_lines(line: str) -> list[Wrapped] | None:
    record = _loads(line)
    if record is None:
        return None
    inner = record.get("_source")
    source: dict[str, Any] = inner if isinstance(inner, dict) else record
    text = next((source[k] for k in TEXT_KEYS if isinstance(source.get(k), str)), None)
    if text is None:
        return None
    nested = source.get("kubernetes")
    kubernetes: dict[str, Any] = nested if isinstance(nested, dict) else {}
    labels = {
        **{k: v for k, v in source.items() if isinstance(v, str | int)},
        **{k: v for k, v in kubernetes.items() if isinstance(v, str)},
    }
    if isinstance(kubernetes.get("host"), str):
        labels["node"] = kubernetes["host"]
    stamp = next((source[k] for k in TIME_KEYS if source.get(k) is not None), None)
    return [Wrapped(text, _time(stamp), _stream(labels), _place(labels))]


def _time(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return from_epoch(float(value))
    text = str(value or "")
    if text.isdigit() and len(text) < 22:
        return from_epoch(int(text))
    return parse_iso(text)


def _stream(labels: Any) -> str | None:
    if not isinstance(labels, dict):
        return None
    value = labels.get("stream")
    return str(value) if value in ("stdout", "stderr") else None


def _place(labels: Any) -> Place:
    if not isinstance(labels, dict):
        return Place()
    node = next((str(labels[k]) for k in NODE_LABELS if labels.get(k)), None)
    rank = next((int(labels[k]) for k in RANK_LABELS if str(labels.get(k, "")).isdigit() and len(str(labels[k])) < 7), None)
    return Place(rank=rank, node=node)


def _unwrapped_share(lines: list[bytes], unwrap: Callable[[str], list[Wrapped] | None]) -> float:
    """Share of whole lines that are records of a form: the top-level keys decide, not words somewhere inside."""
    whole = [line for line in lines if line.startswith(b"{") and line.rstrip().endswith(b"}")]
    if not whole or len(whole) < len(lines) * 0.5:
        return 0.0
    return sum(unwrap(line.decode("utf-8", "replace")) is not None for line in whole) / len(lines)


def _sniff_cri(path: str, lines: list[bytes]) -> float:
    share = sum(bool(_CRI.match(line.decode("utf-8", "replace").rstrip("\r"))) for line in lines) / len(lines)
    return 0.97 * share if share > 0.5 else 0.0


def _sniff_docker(path: str, lines: list[bytes]) -> float:
    share = _unwrapped_share(lines, lambda line: _docker(line) if '"time"' in line else None)
    return 0.96 * share if share > 0.5 else 0.0


def _sniff_loki(path: str, lines: list[bytes]) -> float:
    if b'"resultType":"streams"' in lines[0] or b'"resultType": "streams"' in lines[0]:
        return 0.96
    share = _unwrapped_share(lines, _loki)
    return 0.96 * share if share > 0.5 else 0.0


def _sniff_json(path: str, lines: list[bytes]) -> float:
    share = _unwrapped_share(lines, lambda line: _json_lines(line) if any(f'"{key}"' in line for key in TIME_KEYS) else None)
    return 0.65 * share if share > 0.5 else 0.0


_SNIFFERS = {"cri_log": _sniff_cri, "docker_log": _sniff_docker, "loki_log": _sniff_loki, "json_log": _sniff_json}
_UNWRAPPERS = {"cri_log": _cri, "docker_log": _docker, "loki_log": _loki, "json_log": _json_lines}
ADAPTERS = tuple(TransportAdapter(name) for name in _SNIFFERS)
