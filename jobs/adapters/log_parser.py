"""Reads a log: header by header, merged into events, each with its time, place, phase and iteration.

One parser reads one file. It takes lines (`feed`) and gives rows a block at a time; transports that wrap lines
(container logs) unwrap them first and feed the same parser.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs.adapters import facts, phases
from jobs.adapters.base import VERSIONS, FileContext, Rows
from jobs.adapters.failures import failures_in
from jobs.adapters.headers import NOTHING, Header, HeaderReader
from jobs.adapters.log_rows import IterationColumns, RecordColumns, Stamps
from jobs.adapters.merge import Event, Merger, kind_of
from jobs.adapters.stamps import Clock, from_us, to_us
from jobs.adapters.tracebacks import glued, take_apart

_COMM = re.compile(r"\bcomm 0x[0-9a-f]{1,16} rank (\d{1,6}) nranks (\d{1,6})(?: cudaDev (\d{1,3}))?")
_LABELLED = re.compile(r" {0,6}\d{1,6}: ?")
_XTRACE = re.compile(r"\+{1,6} ")
_KNOWN = ("NCCL ", "slurmstepd:", "srun:", "Traceback (most recent", "time (ms)", "{'loss':", "{'train_")


@dataclass
class Place:
    """Where an event comes from."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    role: str | None = None


@dataclass
class Writer:
    """What is known of one writer while its lines go by."""

    phases: phases.PhaseTracker = field(default_factory=phases.PhaseTracker)
    iteration: int | None = None


def has_labels(head: str) -> bool:
    """Whether most lines begin with srun's task label."""
    lines = [line for line in head.split("\n")[:400] if line.strip()]
    return len(lines) >= 3 and sum(bool(_LABELLED.match(line)) for line in lines) > 0.6 * len(lines)


def written_by(context: FileContext) -> int | None:
    """Microseconds of the last moment of which the file can tell: a day after it was last written, or its job ended."""
    known = [at for at in (context.modified_at, context.started_at, context.ended_at) if at]
    return to_us(max(known)) + 86_400_000_000 if context.modified_at else None


class LogParser:
    """One file's events. Feed it lines in order, take `rows()` after each block, and `close()` at the end."""

    def __init__(self, context: FileContext, labels: bool = False) -> None:
        self.context = context
        bound = context.ended_at or context.started_at or context.modified_at
        self.headers = HeaderReader(Clock(context.zone, to_us(bound) if bound else None, written_by(context)), labels)
        is_own = context.rank is not None or context.local_rank is not None or context.stream == "agent"
        self.merger = Merger(is_own_stream=is_own)
        self.n_read = 0
        self.n_understood = 0
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.flags: set[str] = set()
        self.time_source = "line"
        self.touched: set[tuple[int | None, int | None]] = set()
        self._records = RecordColumns()
        self._iterations = IterationColumns()
        self._counted_line = -1  # line whose progress an MLLOG record gave already
        self._config: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._marks: list[tuple[str, str]] = []
        self._failures: list[dict[str, Any]] = []
        self._places: dict[int, tuple[str, int | None]] = {}
        self._writers: dict[object, Writer] = {}
        self._pids: dict[tuple[str | None, int], int] = {}
        self._carried_us = -1
        self._by_local = {(p.node, p.local_rank): p for p in context.placements}
        self._by_rank = {p.rank: p for p in context.placements}
        self._is_stamped = False

    def feed(self, lines: list[str], offsets: list[int], first_line: int) -> None:
        """Take lines in: texts without their ends, offsets of their first bytes, number of the first."""
        self.n_read += len(lines)
        read, merger = self.headers.read, self.merger
        for number, (line, offset) in enumerate(zip(lines, offsets), first_line):
            if not line:
                self.n_understood += 1
                if not merger.is_idle:
                    self._merge(number, offset, NOTHING, "")
                continue
            if "\r" in line:
                self._segments(line, offset, number)
                continue
            header = read(line)
            self._take(line[header.start :], header, offset, number)

    def _take(self, message: str, header: Header, offset: int, number: int) -> None:
        """A line without its header: an event at once when nothing is open and it opens nothing."""
        if self.merger.is_idle and kind_of(message) is None and (header.start or len(message) < 40):
            self._emit(number, offset, 1, header, message)
        else:
            self._merge(number, offset, header, message)

    def feed_apart(self, line: str, offset: int, number: int, header: Header | None) -> None:
        """Take in a line whose neighbours may go another way; its header where that was read already."""
        if header is not None and "\r" not in line:
            self.n_read += 1
            self._take(line[header.start :], header, offset, number)
        else:
            self.feed([line], [offset], number)

    @property
    def is_idle(self) -> bool:
        """No event is open."""
        return self.merger.is_idle

    @property
    def known_ranks(self) -> Collection[int]:
        """The job's ranks, where its record gives them."""
        return self._by_rank.keys()

    def finish_open(self) -> None:
        """End the open events."""
        for event in self.merger.close():
            self._finish(event)

    def place_of(self, rank: int | None) -> Place:
        """The place of a line that says nothing of its own but a rank."""
        return self._place(NOTHING._replace(rank=rank), "")

    def saw(self, first_us: int, last_us: int, n: int) -> None:
        """Book plain lines that went another way."""
        self.n_understood += n
        self.n_read += n
        self.first_us = first_us if self.first_us is None else min(self.first_us, first_us)
        self.last_us = last_us if self.last_us is None else max(self.last_us, last_us)

    def feed_one(self, line: str, offset: int, number: int, at_us: int | None, place: Place, stream: str | None) -> None:
        """Take one unwrapped line in, with what its transport says of it; counting is the transport's."""
        header = self.headers.read(line)
        message = line[header.start :]
        rank = header.rank if header.rank is not None else place.rank
        header = header._replace(node=header.node or place.node, rank=rank, given_us=at_us)
        self._merge(number, offset, header, message, (place.node, stream))

    def _segments(self, line: str, offset: int, number: int) -> None:
        """Several states or messages on one physical line."""
        at = 0
        for segment in line.split("\r"):
            header = self.headers.read(segment)
            self._merge(number, offset + at, header, segment[header.start :])
            at += len(segment) + 1

    def _merge(self, number: int, offset: int, header: Header, message: str, writer: object = None) -> None:
        if not header.start and len(message) >= 40 and message.find(message[:10], 10) > 0:
            pieces = glued(message)
            if len(pieces) > 1:
                self.flags.add("glued")
                self.n_understood += 1
                for at, piece in pieces:
                    self._merge_one(number, offset + at, header, piece, writer)
                self.n_understood -= 1
                return
        self._merge_one(number, offset, header, message, writer)

    def _merge_one(self, number: int, offset: int, header: Header, message: str, writer: object) -> None:
        key = (
            writer if self.merger.is_own_stream else (header.rank, header.local_rank, header.label, header.pid, header.node, writer)
        )
        for event in self.merger.feed(key, number, offset, header, message):
            self._finish(event)

    def _finish(self, event: Event) -> None:
        if event.region is not None:
            self.flags.add("interleaved")
            traces = take_apart(event.region)
            self.n_understood += event.n_lines - len(traces)
            for i, trace in enumerate(traces):
                n_lines = event.n_lines - len(traces) + 1 if i == 0 else 1
                self._emit(trace.line, trace.offset, max(n_lines, 1), event.header, trace.text)
            return
        text = event.text
        if not text and event.n_lines == 1:
            self.n_understood += 1
            return
        if event.n_lines > 1:
            self.n_understood += event.n_lines - 1
            self._look_into(text)
        self._emit(event.line, event.offset, event.n_lines, event.header, text)

    def _look_into(self, text: str) -> None:
        """What a merged event says of ranks that failed."""
        if "exitcode" in text:
            self._failures += failures_in(text, self.headers)

    def _emit(self, number: int, offset: int, n_lines: int, header: Header, message: str) -> None:
        """One event into the columns."""
        if not message:
            self.n_understood += 1
            return
        place = self._place(header, message)
        writer = self.writer(place)
        self.touched.add((place.rank, place.local_rank))
        at_us = header.at_us if header.at_us is not None else header.given_us
        is_known = header.start > 0 or n_lines > 1
        phase, is_known = self._phase(writer, message, is_known)
        if (argument := facts.argument_of(message)) is not None:
            self._config.setdefault(*argument)
            is_known = True
        for name, value in facts.versions_in(message).items():
            self._versions.setdefault(name, value)
            is_known = True
        if message.startswith(facts.MLLOG):
            at_us, phase, is_known = self._mlperf(message, writer, at_us, phase, number, place)
        iteration = self._iteration(message, writer, number, header, at_us, place) if n_lines == 1 else writer.iteration
        phase = writer.phases.phase if iteration is not None and phase in ("init", "load") else phase
        self.n_understood += is_known or self._is_known(message)
        records = self._records
        records.line.append(number)
        records.byte_offset.append(offset)
        records.n_lines.append(n_lines)
        records.at_us.append(-1 if at_us is None else at_us)
        records.precision_s.append(header.precision_s or 0.001)
        records.node.append(place.node)
        records.rank.append(place.rank)
        records.local_rank.append(place.local_rank)
        records.role.append(place.role)
        records.level.append(header.level)
        records.message.append(message)
        records.phase.append(phase)
        records.iteration.append(iteration)
        records.waited_s.append(facts.waited_s(message))
        if at_us is not None:
            self.first_us = at_us if self.first_us is None or at_us < self.first_us else self.first_us
            self.last_us = at_us if self.last_us is None or at_us > self.last_us else self.last_us

    def _phase(self, writer: Writer, message: str, is_known: bool) -> tuple[str, bool]:
        before = writer.phases.phase
        phase = writer.phases.see(message)
        if (end := phases.end_of(message)) is not None:
            self._marks.append(("state", end))
        return phase, is_known or phase != before or not phases.says_no_phase(message)

    def _iteration(self, message: str, writer: Writer, number: int, header: Header, at_us: int | None, place: Place) -> int | None:
        progress = facts.progress_of(message)
        if progress is not None:
            writer.iteration = progress.iteration
            writer.phases.enter("train")
            if number != self._counted_line:
                self._iterations.add(progress, number, header, at_us, place.rank, place.node)
            self.n_understood += not header.start
            return progress.iteration
        named = facts.iteration_in(message)
        if named is not None and (writer.iteration is None or abs(named - writer.iteration) <= max(10_000, writer.iteration)):
            return named
        return writer.iteration

    def _mlperf(
        self, message: str, writer: Writer, at_us: int | None, phase: str, number: int, place: Place
    ) -> tuple[int | None, str, bool]:
        event = facts.mlperf_event(message)
        if event is None:
            return at_us, phase, False
        if event.at_ms is not None:
            at_us = int(event.at_ms * 1000)
        phase = writer.phases.mlperf(event.key)
        if event.key == "run_stop" and event.metadata.get("status"):
            self._marks.append(("state", "COMPLETED" if event.metadata["status"] == "success" else "FAILED"))
        is_setting = event.kind == "POINT_IN_TIME" and not event.metadata.get("epoch_num") and not event.metadata.get("step")
        if is_setting and isinstance(event.value, str | int | float | bool) and len(self._config) < 5000:
            self._config.setdefault(f"mllog.{event.key}", str(event.value))
        self._mlperf_progress(event, at_us, number, place)
        return at_us, phase, True

    def _mlperf_progress(self, event: facts.MlEvent, at_us: int | None, number: int, place: Place) -> None:
        step = event.metadata.get("step", event.metadata.get("step_num"))
        if isinstance(step, int) and step >= 0 and isinstance(event.value, dict):
            values = {str(k): float(v) for k, v in event.value.items() if isinstance(v, int | float)}
            self._iterations.add(facts.Progress(step, None, values), number, NOTHING, at_us, place.rank, place.node)
            self._counted_line = number

    @staticmethod
    def _is_known(message: str) -> bool:
        return message.startswith(_KNOWN) or bool(_XTRACE.match(message)) or "%|" in message[:64]

    def writer(self, place: Place) -> Writer:
        """What is known of the writer at a place."""
        key = (place.rank, place.local_rank)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = Writer()
        return writer

    def _place(self, header: Header, message: str) -> Place:
        """Rank, node and role of a line: the path's word stands, the line's must agree with it and with the job."""
        context = self.context
        rank, local, node, role = context.rank, context.local_rank, header.node or context.node, header.role or context.role
        told = header.rank if header.rank is not None else self._told(header, message)
        if told is not None and rank is None:
            rank = told if self._is_possible(told) else None
        elif told is not None and told != rank and header.is_prefixed:
            self.flags.add("foreign_rank_prefix")
        if local is None and header.local_rank is not None:
            local = header.local_rank
        if rank is None and local is not None and (found := self._by_local.get((node, local))):
            rank = found.rank
        if rank is not None and (known := self._by_rank.get(rank)):
            node, local, role = node or known.node, known.local_rank if local is None else local, role or known.role
        return Place(rank, local, node, role)

    def _told(self, header: Header, message: str) -> int | None:
        """The rank that a line without a prefix gives as its own."""
        if header.label is not None:
            return header.label
        if header.pid is not None:
            found = _COMM.search(message) if "comm 0x" in message else None
            if found:
                rank = int(found.group(1))
                self._pids[header.node, header.pid] = rank
                if header.node and len(self._places) < 100_000:
                    self._places[rank] = (header.node, int(found.group(3)) if found.group(3) else None)
            return self._pids.get((header.node, header.pid))
        return facts.rank_in(message) if self.context.rank is None else None

    def _is_possible(self, rank: int) -> bool:
        if self._by_rank and rank not in self._by_rank:
            self.flags.add("foreign_rank_prefix")
            return False
        return True

    def rows(self, others: Stamps | None = None) -> Iterator[Rows]:
        """What the lines so far gave, as rows; leaves the columns empty. `others` are stamps of lines that went another way."""
        in_file = {"attempt": self.context.attempt, "stream": self.context.stream}
        if len(self._records):
            rows, self._carried_us = self._records.rows(self._carried_us, self.time_source, in_file, others)
            self._records = RecordColumns()
            yield rows
        elif others is not None and len(others[1]):
            self._carried_us = int(others[1][-1])
        if len(self._iterations):
            rows, self._iterations = self._iterations.rows(), IterationColumns()
            yield rows

    def close(self) -> Iterator[Rows]:
        """The events that were still open, and what the file says of the whole job."""
        for event in self.merger.close():
            self._finish(event)
        yield from self.rows()
        config = self._config | {f"{VERSIONS}{name}": value for name, value in self._versions.items()}
        if config:
            yield Rows("config_entries", {"key": list(config), "value": list(config.values())})
        if self._marks:
            yield Rows("job_marks", {"key": [k for k, _ in self._marks[-50:]], "value": [v for _, v in self._marks[-50:]]})
        if self._failures:
            yield Rows("rank_failures", {name: [f[name] for f in self._failures] for name in self._failures[0]})
        if self._places:
            ranks = sorted(self._places)
            yield Rows(
                "placements",
                {"rank": ranks, "node": [self._places[r][0] for r in ranks], "local_rank": [self._places[r][1] for r in ranks]},
            )

    def span(self) -> tuple[Any, Any]:
        """Earliest and latest time in the file."""
        return from_us(self.first_us), from_us(self.last_us)
