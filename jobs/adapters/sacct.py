"""Slurm's accounting exports: `sacct -P` with any delimiter, its broken lines joined, its jobs and their ends.

Fields that users write may hold line feeds: a record is complete when it has as many delimiters as the header. Jobs
are told apart by cluster, raw id and submission, since the scheduler uses ids again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from jobs.adapters.archive import open_file
from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.job_record import JobRecord, is_running, state_of
from jobs.adapters.lines import LineReader
from jobs.adapters.stamps import from_us, parse_iso

DELIMITERS = ("|#", "|", "\t", ",")
_JOB_FIELDS = ("JobID", "JobIDRaw")
MAX_JOINED = 64
MAX_RECORD = 256 << 10


def header_of(line: str) -> tuple[str, list[str]] | None:
    """Delimiter and field names of a header line; None when it is none."""
    for delimiter in DELIMITERS:
        names = line.rstrip("\r\n").split(delimiter)
        if len(names) >= 2 and "State" in names and any(name in names for name in _JOB_FIELDS):
            return delimiter, names
    return None


def looks_like_sacct(path: str, head: bytes) -> bool:
    """Whether a file begins with the header of an export."""
    first = head[:32768].split(b"\n", 1)[0]
    return b"State" in first and b"JobID" in first and header_of(first.decode("utf-8", "replace")) is not None


@dataclass(frozen=True)
class SacctRecord:
    """One record: its fields by name, where it began, and how many lines it took."""

    fields: dict[str, str]
    offset: int
    n_lines: int


@dataclass(frozen=True)
class SchedulerJob:
    """One job of an export, its steps left out."""

    job_id: str
    raw_id: str
    fields: dict[str, str] = field(default_factory=dict)

    def record(self, zone: str = "UTC") -> JobRecord:
        """The job's record."""
        get = self.fields.get
        told = {name: get(name, "") for name in ("Submit", "Start", "End")}
        times = {name: from_us(parse_iso(text, zone)) for name, text in told.items()}
        is_assumed = any(times[name] and not _ZONE.search(text) for name, text in told.items())
        state = state_of(get("State"))
        nodes = expand(get("NodeList", ""))
        code = get("ExitCode", "").partition(":")[0]
        comment = {f"slurm.{name}": value for name, value in self.fields.items() if value and name in _CONFIG_FIELDS}
        return JobRecord(
            job_id=self.job_id,
            state=state,
            is_settled=not is_running(get("State", "").split(" ")[0]),
            name=get("JobName") or None,
            user=get("User") or None,
            cluster=get("Cluster") or None,
            partition=get("Partition") or None,
            exit_code=int(code) if code.isdigit() and len(code) < 10 else None,
            submitted_at=times["Submit"],
            started_at=times["Start"],
            ended_at=times["End"],
            nodes=nodes,
            n_gpus=_gpus(get("AllocTRES", "")),
            config=comment,
            has_record=True,
            zone=zone,
            flags={"assumed_zone"} if is_assumed else set(),
        )


_CONFIG_FIELDS = (
    "AllocTRES",
    "ReqTRES",
    "Timelimit",
    "TimelimitRaw",
    "QOS",
    "Account",
    "NTasks",
    "Constraints",
    "Reservation",
    "SubmitLine",
    "WorkDir",
    "Reason",
)
_ZONE = re.compile(r"(?:[Zz]|[+-]\d\d:?\d\d)$")
_GPUS = re.compile(r"gres/gpu(?::\w+)?=(\d{1,6})")


def _gpus(tres: str) -> int | None:
    found = _GPUS.search(tres)
    return int(found.group(1)) if found else None


def expand(hosts: str, cap: int = 100_000) -> list[str]:
    """Names in a host list.

    >>> expand("gpu[001-003,007],x1")
    ['gpu001', 'gpu002', 'gpu003', 'gpu007', 'x1']
    """
    if hosts in ("", "None assigned", "Unknown", "None"):
        return []
    names: list[str] = []
    for piece in re.split(r",(?![^\[]{0,65536}\])", hosts[:65536]):
        names += _expand_one(piece.strip(), cap - len(names))
    return [name for name in names if name]


def _expand_one(piece: str, cap: int) -> list[str]:
    found = re.match(r"([^\[\]]*)\[([^\[\]]*)\](.*)$", piece)
    if found is None or cap <= 0:
        return [piece][: max(cap, 0)]
    head, ranges, tail = found.groups()
    rest = _expand_one(tail, cap) if tail else [""]
    names: list[str] = []
    for one in ranges.split(","):
        low, _, high = one.partition("-")
        if not high:
            names += [head + low + end for end in rest]
        elif low.isdigit() and high.isdigit() and len(high) < 10:
            width = len(low)
            for i in range(int(low), min(int(high), int(low) + cap) + 1):
                names += [f"{head}{i:0{width}d}{end}" for end in rest]
    return names[:cap]


class SacctReader:
    """Reads an export record by record. `n_read` counts physical lines, `problems` what could not be used."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = LineReader(stream)
        self.n_read = 0
        self.n_understood = 0
        self.problems: list[Problem] = []
        self.delimiter = "|"
        self.names: list[str] = []

    def records(self) -> Iterator[SacctRecord]:
        """Complete records, broken lines joined by `\\n` as two characters."""
        held: list[str] = []
        held_at = 0
        for block in self._lines.blocks():
            for line, offset in zip(block.lines, block.offsets):
                self.n_read += 1
                if not self.names:
                    self._take_header(line, offset)
                    continue
                if not held and not line.strip():
                    self.n_understood += 1
                    continue
                held_at = offset if not held else held_at
                held.append(line)
                yield from self._complete(held, held_at)
        if held:
            self._refuse(held, held_at, "record without its end")

    def _take_header(self, line: str, offset: int) -> None:
        header = header_of(line)
        if header is None:
            self.problems.append(Problem("missing_column", offset, 1, "no header with JobID and State", line[:64].encode()))
            return
        self.delimiter, self.names = header
        self.n_understood += 1

    def _complete(self, held: list[str], offset: int) -> Iterator[SacctRecord]:
        joined = "\\n".join(held)
        n = joined.count(self.delimiter) + 1
        trailing = joined.endswith(self.delimiter) and n == len(self.names) + 1
        if n == len(self.names) or trailing:
            values = joined.split(self.delimiter)
            self.n_understood += len(held)
            yield SacctRecord(dict(zip(self.names, values)), offset, len(held))
            held.clear()
        elif n > len(self.names) or len(held) >= MAX_JOINED or len(joined) > MAX_RECORD:
            self._refuse(held, offset, f"{n} fields where the header has {len(self.names)}")
            held.clear()

    def _refuse(self, held: list[str], offset: int, detail: str) -> None:
        self.problems.append(Problem("bad_value", offset, len(held), detail, held[0][:64].encode("utf-8", "replace")))

    @property
    def encoding(self) -> str:
        """Encoding found."""
        return self._lines.encoding.name

    @property
    def flags(self) -> set[str]:
        """What the decoder noticed."""
        return self._lines.encoding.flags


def natural_key(fields: dict[str, str]) -> str:
    """Cluster, raw id and submission: what makes a job one job.

    >>> natural_key({"JobID": "7", "JobIDRaw": "7", "Cluster": "a", "Submit": "2026-01-01T00:00:00"})
    'a/7@2026-01-01T00:00:00'
    """
    raw = fields.get("JobIDRaw") or fields.get("JobID", "")
    cluster, at = fields.get("Cluster", ""), fields.get("Submit") or fields.get("Start") or ""
    return (f"{cluster}/" if cluster else "") + raw + (f"@{at}" if at and at != "Unknown" else "")


def is_step(job_id: str) -> bool:
    """Whether an id names a step (`123.batch`) and no job."""
    return "." in job_id


def scheduler_jobs(place: str) -> dict[str, SchedulerJob]:
    """The jobs of an export by their natural key; the last record of a key counts. Empty when it cannot be read.

    A job of which only steps were exported is made from its first step.
    """
    jobs: dict[str, SchedulerJob] = {}
    steps: dict[str, SchedulerJob] = {}
    try:
        with open_file(place) as stream:
            for record in SacctReader(stream).records():
                shown, raw = record.fields.get("JobID", ""), record.fields.get("JobIDRaw", "")
                raw = raw or shown
                base = raw.partition(".")[0]
                key = natural_key({**record.fields, "JobIDRaw": base})
                if base and (is_step(raw) or is_step(shown)):
                    steps.setdefault(base, SchedulerJob(key, base, record.fields))
                elif base:
                    jobs[key] = SchedulerJob(key, base, record.fields)
    except OSError:
        return jobs
    known = {job.raw_id for job in jobs.values()}
    return jobs | {step.job_id: step for base, step in steps.items() if base not in known}


@dataclass(frozen=True)
class SacctAdapter:
    """Accounts for an export in the ledger; its jobs are made when the archive is listed."""

    name: str = "sacct"
    version: int = 1

    def sniff(self, path: str, head: bytes) -> float:
        """Sure when the header names JobID and State."""
        return 0.98 if looks_like_sacct(path, head) else 0.0

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """One `scheduler_records` row a record; problems for what is no record."""
        reader = SacctReader(stream)
        first = last = None
        columns: dict[str, list[str]] = {"job_id": [], "state": []}
        for record in reader.records():
            for name in ("Start", "End"):
                at = parse_iso(record.fields.get(name, ""), context.zone)
                if at is not None:
                    first, last = min(first or at, at), max(last or at, at)
            columns["job_id"].append(natural_key(record.fields))
            columns["state"].append(state_of(record.fields.get("State")))
            if len(columns["state"]) >= 10_000:
                yield Rows("scheduler_records", columns)
                columns = {"job_id": [], "state": []}
        yield Rows("scheduler_records", columns)
        yield from reader.problems
        yield Tally(reader.n_read, reader.n_understood, from_us(first), from_us(last), reader.encoding, tuple(sorted(reader.flags)))


ADAPTERS = (SacctAdapter(),)
