"""Kineto traces of the PyTorch profiler, of any size: streamed, and summed to (rank, step, category, name) on the way.

Events are never kept. Kineto writes each event as an object that begins with `"ph"`; a block of whole events is cut at
such beginnings and parsed at once. A file in another order of keys is read event by event with ijson, more slowly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import ijson
import orjson

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.json_depth import checked
from jobs.adapters.operations_kineto_sums import Sums

_BLOCK = 1 << 22
_MAX_EVENT = 1 << 26
_SNIFF = re.compile(rb'"traceEvents"|"schemaVersion"|"distributedInfo"|"deviceProperties"')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_NEXT_EVENT = re.compile(rb'\}\s*,\s*(?=\{\s*"ph")')
_FIRST_EVENT = re.compile(rb'\{\s*"ph"')
_END = re.compile(rb"\}\s*\]")
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]{0,4096}?"rank"\s*:\s*(\d{1,9})')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,20})')
_HOST = re.compile(rb'"host_?name"\s*:\s*"([^"\\]{1,200})"', re.IGNORECASE)
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,7})", re.IGNORECASE)
_OVERLAP = 8192


class _NotInBlocks(Exception):
    """The file's events cannot be cut where Kineto begins them."""


@dataclass
class _Header:
    """What stands around the events: the rank, the host, and the time to which all stamps are relative."""

    rank: int | None = None
    host: str | None = None
    base_ns: int = 0

    def look(self, text: bytes) -> None:
        if self.rank is None and (found := _RANK.search(text)):
            self.rank = int(found[1])
        if self.host is None and (found := _HOST.search(text)):
            self.host = found[1].decode("utf-8", "replace")
        if not self.base_ns and (found := _BASE.search(text)):
            self.base_ns = int(found[1])


class KinetoAdapter:
    """Reads Kineto traces into `operations`, one row a (step, category, name)."""

    name = "kineto"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """Sure for JSON objects that name trace events, and by the usual file name."""
        if not head.lstrip().startswith(b"{"):
            return 0.0
        if b'"traceEvents"' in head or path.rstrip(".gzst").endswith(".pt.trace.json"):
            return 0.95
        return 0.7 if len(_SNIFF.findall(head)) >= 2 else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """Rows at the end of the file, since a step may be named after its events; memory does not grow with the file."""
        header, sums = _Header(), Sums()
        problems: list[Problem] = []
        try:
            for block in _blocks(stream, header):
                sums.add(block)
        except _NotInBlocks as found:
            yield from _slowly(stream, found.args[0], header, sums, problems)
        except _BrokenError as error:
            problems.append(Problem("broken_json", error.offset, 1, str(error)[:200]))
            sums.n_read += 1
        yield from problems
        yield from sums.problems()
        rank, remark = _rank(header, context)
        if remark:
            yield remark
        nodes = {p.rank: p.node for p in context.placements}
        node = (nodes.get(rank) if rank is not None else None) or context.node or header.host
        first, last = sums.span_us(header.base_ns)
        yield from (Rows("operations", columns) for columns in sums.rows(rank, node, header.base_ns))
        yield Tally(sums.n_read, sums.n_understood, _time(first), _time(last), "utf-8")


ADAPTERS = (KinetoAdapter(),)


class _BrokenError(Exception):
    def __init__(self, words: str, offset: int) -> None:
        super().__init__(words)
        self.offset = offset


def _rank(header: _Header, context: FileContext) -> tuple[int | None, Problem | None]:
    """The rank that the trace states, else that of its file's name, else null: never 0 for want of one."""
    if header.rank is not None:
        return header.rank, None
    named = _RANK_IN_NAME.search(context.path.rsplit("/", 1)[-1])
    if context.rank is not None or named:
        return context.rank if context.rank is not None else int(named[1]) if named else None, None
    return None, Problem("missing_column", 0, 0, "neither the trace nor its file's name says which rank this is")


def _blocks(stream: BinaryIO, header: _Header) -> Iterator[list[Any]]:
    """Lists of whole events. Raises _NotInBlocks with the bytes read so far, _BrokenError for JSON that is none."""
    held = _until_events(stream, header)
    if held is None:
        return
    if not _FIRST_EVENT.match(held.lstrip()[:64]):
        raise _NotInBlocks(held)
    offset = 0
    while True:
        more = stream.read(_BLOCK)
        held += more
        cut = _last_beginning(held) if more else -1
        if cut > 0:
            whole, held = held[:cut], held[cut:]
            yield _events(whole.rstrip().rstrip(b","), offset)
            offset += cut
        elif not more:
            break
        elif len(held) > _MAX_EVENT:
            raise _BrokenError("an event of more than 64 MiB", offset)
    yield from _last_block(held, header, offset)


def _last_block(held: bytes, header: _Header, offset: int) -> Iterator[list[Any]]:
    """The end of the array may be followed by more of the document, or be missing where the file was cut."""
    ends = [found.start() + 1 for found in _END.finditer(held)]
    for end in reversed(ends[-64:]):
        try:
            events = orjson.loads(b"[" + held[:end] + b"]")
        except orjson.JSONDecodeError:
            continue
        header.look(held[end:])
        yield events
        return
    cut = _last_beginning(held)
    if cut > 0:
        yield _events(held[:cut].rstrip().rstrip(b","), offset)
    raise _BrokenError("the file ends inside its events", offset + max(cut, 0))


def _events(text: bytes, offset: int) -> list[Any]:
    try:
        found = orjson.loads(b"[" + text + b"]")
    except orjson.JSONDecodeError as error:
        raise _BrokenError(f"not JSON: {error}", offset) from None
    return list(found)


def _last_beginning(held: bytes) -> int:
    """Where the last event of a block begins, or -1; looks at the end first."""
    for size in (1 << 14, 1 << 18, len(held)):
        begin = max(0, len(held) - size)
        found = [match.end() for match in _NEXT_EVENT.finditer(held, begin)]
        if found:
            return found[-1]
        if not begin:
            break
    return -1


def _until_events(stream: BinaryIO, header: _Header) -> bytes | None:
    """Read up to the first event; None when the file ends before. What stands before is looked through."""
    held = b""
    while True:
        more = stream.read(1 << 16)
        held += more
        found = _EVENTS.search(held, 0)
        if found:
            header.look(held[: found.start()])
            return held[found.end() :]
        if not more:
            header.look(held)
            return None
        if len(held) > _MAX_EVENT:
            raise _BrokenError("no events within the first 64 MiB", 0)


def _slowly(stream: BinaryIO, held: bytes, header: _Header, sums: Sums, problems: list[Problem]) -> Iterator[Parsed]:
    """Events one by one, whatever the order of their keys."""
    events = ijson.sendable_list()
    parser = ijson.items_coro(events, "item", use_float=True)
    tail = b""
    try:
        parser.send(b"[")
        chunk = held
        while chunk:
            header.look(tail + chunk)
            tail = chunk[-_OVERLAP:]
            parser.send(checked(chunk))
            if events:
                sums.add(list(events))
                del events[:]
            chunk = stream.read(1 << 16)
        parser.close()
    except ijson.JSONError as error:
        # what follows the array is the rest of the document, which this parser was not told of
        if "trailing" not in str(error) and "additional data" not in str(error).lower():
            problems.append(Problem("broken_json", 0, 1, str(error).splitlines()[0][:200]))
            sums.n_read += 1
    except StopIteration:
        pass
    if events:
        sums.add(list(events))
    while chunk := stream.read(1 << 16):
        header.look(tail + chunk)
        tail = chunk[-_OVERLAP:]
    return
    yield


def _time(microseconds: float | None) -> datetime | None:
    if microseconds is None or not 0 <= microseconds < 4_102_444_800_000_000:
        return None
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
