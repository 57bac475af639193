"""What is known of a job after all its files were read: its record, and what its files say where the record is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.base import VERSIONS
from jobs.adapters.job_reader import JobRead
from jobs.adapters.stamps import from_us, to_us
from ml.collectives.groups import groups_from_pg_config

FLAGS = (
    "no_record",
    "missing_job_id",
    "broken_record",
    "duplicate_job_id",
    "bad_time",
    "inferred_state",
    "inferred_times",
    "inferred_nodes",
    "inferred_ranks",
    "missing_ranks",
    "missing_nodes",
    "skew",
    "truncated",
    "interleaved",
    "glued",
    "decode_errors",
    "empty_file",
    "unreadable_files",
    "restarts",
    "foreign_rank_prefix",
    "partial",
    "series_dropped",
    "assumed_zone",
    "set_aside",
)
"""All flags that a job can carry."""
_FROM_FILES = ("truncated", "interleaved", "glued", "decode_errors", "empty_file", "foreign_rank_prefix", "series_dropped")
SOURCE_TABLES = (("logs", "log_records"), ("stacks", "stack_samples"), ("operations", "operations"), ("collectives", "collectives"))


@dataclass
class JobFacts:
    """A job as ingest knows it. `timeline` holds times (µs, sorted) and the iteration printed at each."""

    state: str
    started_at: datetime | None
    ended_at: datetime | None
    nodes: list[str]
    world_size: int | None
    ranks: list[dict[str, Any]]
    config: dict[str, str]
    flags: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    timeline: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.int64)))
    failed_at_us: dict[int, int] = field(default_factory=dict)
    node_of: dict[int, str | None] = field(default_factory=dict)
    seen: dict[str, tuple[set[int], set[str]]] = field(default_factory=dict)


def gather(done: JobRead, shifts: dict[str, int]) -> JobFacts:
    """Put together what the record and the files say."""
    record = done.record
    first, last = _span(done)
    facts = JobFacts(
        record.state, record.started_at, record.ended_at, list(record.nodes), record.world_size, list(record.ranks),
        dict(record.config), set(record.flags) | set(done.job.flags), [],
    )  # fmt: skip
    facts.seen = {source: _places(done, table) for source, table in SOURCE_TABLES}
    facts.seen["metrics"] = _metric_places(done)
    facts.seen["node_events"] = _places(done, "node_events")
    _infer_state(done, facts)
    _infer_times(facts, first, last)
    _infer_places(done, facts)
    facts.timeline = _timeline(done, shifts)
    facts.failed_at_us = _failures(done)
    told = sorted(done.rows.table("config_entries").to_pylist(), key=lambda e: e["key"].startswith(VERSIONS))
    for entry in told:
        _take_entry(facts, entry["key"], entry["value"] or "")
    _flag(done, facts, shifts)
    return facts


def _take_entry(facts: JobFacts, key: str, value: str) -> None:
    """An entry that the files tell, unless the record says it: a version counts as said under any name of its software."""
    if not key.startswith(VERSIONS):
        facts.config.setdefault(f"args.{key}", value)
        return
    software = key.removeprefix(VERSIONS)
    ends = (f".{software}", f".{software}_version", f".{software}.version")
    is_said = any(f".{name.lower()}".endswith(ends) for name in facts.config if not name.startswith(VERSIONS))
    is_framework = facts.config.get("framework.name", "").lower() == software and "framework.version" in facts.config
    if not is_said and not is_framework:
        facts.config.setdefault(key, value)


def _span(done: JobRead) -> tuple[datetime | None, datetime | None]:
    times = [at for r in done.reports for at in (r.tally.first_at, r.tally.last_at) if at is not None]
    return (min(times), max(times)) if times else (None, None)


def _places(done: JobRead, table: str) -> tuple[set[int], set[str]]:
    """Ranks and nodes from which a table has rows."""
    ranks: set[int] = set()
    nodes: set[str] = set()
    for batch in done.rows.batches(table):
        names = batch.schema.names
        if "rank" in names:
            ranks.update(v for v in pc.unique(batch["rank"]).to_pylist() if v is not None)
        nodes.update(v for v in pc.unique(batch["node"]).to_pylist() if v is not None)
    return ranks, nodes


def _metric_places(done: JobRead) -> tuple[set[int], set[str]]:
    found: set[str] = set()
    for table in ("metric_samples", "machine_metrics"):
        for batch in done.rows.batches(table):
            found.update(v for v in pc.unique(batch["node"]).to_pylist() if v is not None)
    return set(), found


def _infer_state(done: JobRead, facts: JobFacts) -> None:
    if facts.state != "UNKNOWN":
        return
    marks = Counter(row["value"] for row in done.rows.table("job_marks").to_pylist() if row["key"] == "state")
    for state in ("TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "CANCELLED", "FAILED", "COMPLETED"):
        if marks[state]:
            facts.state = state
            facts.flags.add("inferred_state")
            facts.notes.append(f"the state {state} was inferred from the logs")
            return
    if done.rows.n_rows("rank_failures"):
        facts.state = "FAILED"
        facts.flags.add("inferred_state")


def _infer_times(facts: JobFacts, first: datetime | None, last: datetime | None) -> None:
    if _ends_before_start(facts):
        facts.flags.add("bad_time")
        facts.notes.append("its end lies before its start: both were inferred from the files")
        facts.started_at = facts.ended_at = None
    if facts.started_at is None and first is not None:
        facts.started_at = first
        facts.flags.add("inferred_times")
    if facts.ended_at is None and last is not None:
        facts.ended_at = last
        facts.flags.add("inferred_times")
    if _ends_before_start(facts):  # one side is the record's, and the files' clocks contradict it
        facts.flags.add("bad_time")
        facts.notes.append("the files end before the start in the record: when it ended is not known")
        facts.ended_at = None


def _ends_before_start(facts: JobFacts) -> bool:
    return facts.started_at is not None and facts.ended_at is not None and facts.ended_at < facts.started_at


def _inferred_ranks(done: JobRead) -> list[dict[str, Any]]:
    """Ranks with their places as logs, and beside them dumps, name them, in order."""
    known: dict[int, dict[str, Any]] = {}
    for row in done.rows.table("placements").to_pylist():
        known.setdefault(row["rank"], _rank(row["rank"], row["node"], row["local_rank"]))
    pairs: dict[int, Counter[tuple[str | None, int | None]]] = {}
    for batch in done.rows.batches("log_records"):
        part = batch.filter(pc.is_valid(batch["rank"]))
        counted = (
            pa.table({n: part[n] for n in ("rank", "node", "local_rank")})
            .group_by(["rank", "node", "local_rank"])
            .aggregate([([], "count_all")])
        )
        for row in counted.to_pylist():
            pairs.setdefault(row["rank"], Counter())[row["node"], row["local_rank"]] += row["count_all"]
    for rank in sorted(pairs):
        node, local = max(pairs[rank].items(), key=lambda kv: (kv[0][0] is not None, kv[1], str(kv[0])))[0]
        known.setdefault(rank, _rank(rank, node, local))
    for rank, node in _dumped(done).items():
        known.setdefault(rank, _rank(rank, node, None))
    return [known[rank] for rank in sorted(known)]


def _infer_places(done: JobRead, facts: JobFacts) -> None:
    """Ranks and nodes that the record lacks, as far as lines and paths name them."""
    if not facts.ranks:
        facts.ranks = _inferred_ranks(done)
        if facts.ranks:
            facts.flags.add("inferred_ranks")
    facts.node_of = {r["rank"]: r["node"] for r in facts.ranks}
    told = _groups_of_dumps(done)
    for row in facts.ranks:
        row["job_id"] = done.job.job_id
        row["groups"] = row["groups"] or list(told.get(row["rank"], {}).items())
    if not facts.nodes:
        named = {r["node"] for r in facts.ranks if r["node"]} or set().union(*(nodes for _, nodes in facts.seen.values()))
        facts.nodes = sorted(named)
        if named:
            facts.flags.add("inferred_nodes")
    if facts.world_size is None and facts.ranks:
        size = facts.config.get("args.world_size", "") or _told_world_size(done)
        facts.world_size = int(size) if size.isdigit() and len(size) < 8 else len(facts.ranks)


def _group_rows(done: JobRead) -> list[dict[str, Any]]:
    """What flight-recorder dumps say of their process groups: rank, node, group, group_ranks."""
    found = []
    for batch in done.rows.batches("collectives"):
        told = batch.filter(pc.less(batch["record_id"], 0)).select(["rank", "node", "group", "group_ranks"])
        found += told.to_pylist()
    return found


def _dumped(done: JobRead) -> dict[int, str | None]:
    """Every rank that a dump or its group configuration names, with its node where that is known, in order of rank."""
    rows = _group_rows(done)
    nodes: dict[int, str | None] = {rank: None for row in rows for rank in row["group_ranks"] or ()}
    nodes |= {row["rank"]: row["node"] for row in rows}
    return dict(sorted(nodes.items()))


def _groups_of_dumps(done: JobRead) -> dict[int, dict[str, list[int]]]:
    """Parallel groups of each rank, from the group configuration of its flight recorder."""
    return groups_from_pg_config({(row["group"], tuple(row["group_ranks"])) for row in _group_rows(done) if row["group_ranks"]})


def _told_world_size(done: JobRead) -> str:
    for row in done.rows.table("config_entries").to_pylist():
        if row["key"] == "world_size":
            return str(row["value"])
    return ""


def _rank(rank: int, node: str | None, local_rank: int | None) -> dict[str, Any]:
    return {
        "rank": rank,
        "node": node,
        "local_rank": local_rank,
        "device": None,
        "nic": None,
        "switch": None,
        "role": None,
        "groups": [],
    }


def _timeline(done: JobRead, shifts: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """When which iteration was printed, in order of time."""
    times: list[np.ndarray] = []
    steps: list[np.ndarray] = []
    for batch in done.rows.batches("iterations"):
        part = batch.filter(pc.is_valid(batch["occurred_at"]))
        at = part["occurred_at"].cast(pa.int64()).to_numpy(zero_copy_only=False)
        if shifts:
            at = at - np.array([shifts.get(node, 0) for node in part["node"].to_pylist()], np.int64)
        times.append(at)
        steps.append(part["iteration"].to_numpy(zero_copy_only=False))
    if not times:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at, step = np.concatenate(times).astype(np.int64), np.concatenate(steps).astype(np.int64)
    order = np.lexsort((step, at))
    return at[order], step[order]


def _failures(done: JobRead) -> dict[int, int]:
    found: dict[int, int] = {}
    for row in done.rows.table("rank_failures").to_pylist():
        if row["at_us"] is not None and row["rank"] is not None:
            found[row["rank"]] = min(row["at_us"], found.get(row["rank"], row["at_us"]))
    return found


def _flag(done: JobRead, facts: JobFacts, shifts: dict[str, int]) -> None:
    """Flags and their sentences."""
    for flag in _FROM_FILES:
        named = [r.path for r in done.reports if flag in r.flags]
        if named:
            facts.flags.add(flag)
            facts.notes.append(f"{flag.replace('_', ' ')}: {_some(named)}")
    for node, shift in sorted(shifts.items()):
        facts.flags.add("skew")
        facts.notes.append(f"the clock of {node} was {shift / 1e6:+.1f} s off; its stamps were put right")
    unread = [
        r.path for r in done.reports if r.state == "quarantined" or any(p.reason in ("unreadable", "vanished") for p in r.problems)
    ]
    if unread:
        facts.flags |= {"unreadable_files", "partial"}
        facts.notes.append(f"could not be read: {_some(unread)}")
    attempts = {a for batch in done.rows.batches("log_records") for a in pc.unique(batch["attempt"]).to_pylist() if a}
    if attempts:
        facts.flags.add("restarts")
    if "assumed_zone" in facts.flags:
        facts.notes.append("the scheduler's times name no zone: they were taken as UTC")
    if done.job.record is not None and not done.record.has_record:
        facts.flags.add("broken_record")
        facts.notes.append("job.json could not be read: everything was inferred from the other files")
    _flag_missing(facts)


def _flag_missing(facts: JobFacts) -> None:
    expected = {r["rank"] for r in facts.ranks} or set(range(facts.world_size or 0))
    missing = sorted(expected - facts.seen["logs"][0])
    if missing and len(missing) < len(expected):
        facts.flags |= {"missing_ranks", "partial"}
        facts.notes.append(
            f"logs cover {len(expected) - len(missing)} of {len(expected)} ranks; missing is not healthy: ranks"
            f" {_some([str(m) for m in missing])}"
        )
    seen = set().union(*(nodes for _, nodes in facts.seen.values()))
    absent = [node for node in facts.nodes if node not in seen]
    if absent and seen:
        facts.flags |= {"missing_nodes", "partial"}
        facts.notes.append(f"nothing at all from {_some(absent)}")


def _some(names: Iterable[str], n: int = 5) -> str:
    listed = list(names)
    return ", ".join(listed[:n]) + (f" and {len(listed) - n} more" if len(listed) > n else "")


def coverage_of(done: JobRead, facts: JobFacts) -> dict[str, float]:
    """Share of ranks, or of nodes where ranks are not told, from which each source has rows."""
    n_ranks, n_nodes = len(facts.ranks) or facts.world_size or 0, len(facts.nodes)
    shares: dict[str, float] = {}
    for source, (ranks, nodes) in facts.seen.items():
        by_rank = len(ranks & set(facts.node_of)) / n_ranks if n_ranks and ranks else 0.0
        by_node = len(nodes & set(facts.nodes)) / n_nodes if n_nodes else 0.0
        is_present = bool(ranks or nodes) or _has_rows(done, source)
        shares[source] = min(1.0, by_rank or by_node or (1.0 if is_present and not n_ranks and not n_nodes else 0.0))
    return shares


def _has_rows(done: JobRead, source: str) -> bool:
    table = dict(SOURCE_TABLES).get(source)
    return bool(table) and any(batch.num_rows for batch in done.rows.batches(str(table)))


def bounds_us(facts: JobFacts) -> tuple[int | None, int | None]:
    """Start and end of the job, microseconds."""
    start, end = facts.started_at, facts.ended_at
    return (to_us(start) if start else None), (to_us(end) if end else None)


__all__ = ["FLAGS", "JobFacts", "bounds_us", "coverage_of", "from_us", "gather"]
