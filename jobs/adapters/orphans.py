"""Jobs of archives that have no `job.json`: made from scheduler exports and from paths."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import orjson

from jobs.adapters.archive import FoundFile, JobFiles, read_bytes
from jobs.adapters.job_record import MAX_BYTES, JobRecord, is_running, state_of
from jobs.adapters.paths import bare_name, job_id_in, stamp_in
from jobs.adapters.sacct import SchedulerJob, looks_like_sacct, scheduler_jobs
from jobs.adapters.stamps import from_epoch, from_us

_GENERIC = frozenset(
    {
        "logs",
        "log",
        "stdout",
        "stderr",
        "metrics",
        "traces",
        "trace",
        "stacks",
        "events",
        "out",
        "err",
        "output",
        "outputs",
        "data",
        "slurm",
        "profile",
        "profiles",
        "dumps",
        "node",
        "nodes",
    }
)
_PART_OF_TREE = re.compile(
    r"(?:^|/)attempt_\d+/|(?:^|[/_.-])rank[_-]?\d+|(?:^|/)workerlog\.\d+|_rank_\d+$|(?:^|/)_dump_\d+$|agent\.log$", re.I
)
_JOB_FOLDER = re.compile(r"(?:^|/)(\d{6,})(?=/)")
"""A folder named by a number holds the job of that number."""
_NOT_DATA = re.compile(r"(?i)(?:^|/)(?:licen[cs]e|citation|readme|notice|copying|changelog)[^/]*$|\.(?:md|py|sh|bib)$")
_SUFFIX = re.compile(r"\.(?:log|out|err|txt|jsonl?|csv|parquet)$")


def jobs_of(orphans: list[FoundFile], taken: set[str]) -> list[JobFiles]:
    """Jobs made from files that no job's folder owns; scheduler rows give them names, times and states.

    A file whose name has a Slurm id belongs to that job; a tree of rank logs is one job, named by its folder, with the
    files in folders like `metrics` beside them; any other file is a job of its own. Scheduler rows without files are
    jobs too, unless the job is among those `taken` by records: a job that has both is one job.
    """
    found: dict[str, list[FoundFile]] = {}
    rows: dict[str, SchedulerJob] = {}
    exports: list[FoundFile] = []
    loose: list[FoundFile] = []
    trees = {file.path.rpartition("/")[0] for file in orphans if _PART_OF_TREE.search(file.path)} - {""}
    for file in orphans:
        if file.refusal is None and looks_like_sacct(file.path, read_bytes(file.place, 65536)[:65536]):
            exports.append(file)
        elif not _NOT_DATA.search(file.path):
            group = group_of(file.path, trees)
            if group == _stem(file.path):
                loose.append(file)
            else:
                found.setdefault(group, []).append(file)
    runs = set(found)
    for file in loose:
        found.setdefault(_run_beside(file.path, runs) or _stem(file.path), []).append(file)
    for file in exports:
        rows.update(scheduler_jobs(file.place))
    told = [JobFiles(f"scheduler/{_stem(file.path)}", "", (file,), is_export=True) for file in exports]
    return [*_named(found, _without(rows, taken)), *told]


def _without(rows: dict[str, SchedulerJob], taken: Collection[str]) -> dict[str, SchedulerJob]:
    """Rows but those of jobs that have a record; of several runs under one id, the record is taken to be the last one's."""
    last: dict[str, str] = {}
    for key in sorted(rows):
        job = rows[key]
        for name in (key, key.partition("@")[0], job.raw_id, job.fields.get("JobID") or job.raw_id):
            if name in taken:
                last[name] = key
    return {key: job for key, job in rows.items() if key not in last.values()}


def group_of(path: str, trees: Collection[str] = ()) -> str:
    """The job that a path belongs to, by what the path says; `trees` are folders that hold files of single ranks.

    >>> group_of("logs/slurm-123.out"), group_of("run7/logs/n1/r_x/attempt_0/0/stdout.log"), group_of("a/2022.log")
    ('123', 'run7', 'a/2022')
    """
    by_id = job_id_in(path)
    if by_id:
        return by_id
    if numbered := _JOB_FOLDER.search(path):
        return numbered.group(1)
    if _PART_OF_TREE.search(path) or path.rpartition("/")[0] in trees:
        pieces = path.split("/")[:-1]
        for i, piece in enumerate(pieces):
            if piece.lower() in _GENERIC:
                return "/".join(pieces[:i]) or pieces[0]
        return "/".join(pieces) if pieces else _stem(path)
    return _stem(path)


def _run_beside(path: str, runs: Collection[str]) -> str | None:
    """The run in whose folder a file of its own lies, in a folder of a general name: `run7/metrics/n1.csv` is of `run7`."""
    pieces = path.split("/")[:-1]
    above = next(("/".join(pieces[:i]) for i, piece in enumerate(pieces) if piece.lower() in _GENERIC), "")
    return above if above in runs else None


def _stem(path: str) -> str:
    folder, _, _ = path.rpartition("/")
    stem = _SUFFIX.sub("", bare_name(path))
    return f"{folder}/{stem}" if folder else stem


def _named(found: dict[str, list[FoundFile]], rows: dict[str, SchedulerJob]) -> list[JobFiles]:
    by_raw: dict[str, str] = {}
    for row_key in sorted(rows):
        by_raw.setdefault(rows[row_key].raw_id, row_key)
        by_raw.setdefault(rows[row_key].job_id, row_key)
    jobs: list[JobFiles] = []
    used: set[str] = set()
    for group in sorted(found):
        key = by_raw.get(group)
        scheduler: dict[str, Any] = {}
        if key is not None:
            used.add(key)
            scheduler = {"row": rows[key]}
        flags = ("no_record",) if key is None else ()
        jobs.append(JobFiles(key or group, "", tuple(found[group]), None, scheduler, flags))
    jobs += [JobFiles(row_key, "", (), None, {"row": row}) for row_key, row in sorted(rows.items()) if row_key not in used]
    return jobs


def record_of(job: JobFiles) -> JobRecord:
    """What scheduler rows and file names say of a job without a record."""
    record = JobRecord(job_id=job.job_id)
    row = job.scheduler.get("row")
    if isinstance(row, SchedulerJob):
        return row.record()
    described = next((file for file in job.files if bare_name(file.path) == "meta.json" and file.refusal is None), None)
    if described is not None and (found := cockpit_record(read_bytes(described.place, MAX_BYTES))) is not None:
        return found
    stamps = [us for us in (stamp_in(file.path) for file in job.files) if us is not None]
    record.started_at = from_us(min(stamps)) if stamps else None
    record.flags.add("no_record")
    return record


def cockpit_record(data: bytes) -> JobRecord | None:
    """The record in a ClusterCockpit `meta.json`; None when it is none."""
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, dict) or "jobId" not in said or not isinstance(said.get("startTime"), int | float):
        return None
    start, duration = from_epoch(float(said["startTime"])), said.get("duration")
    end = start + round(float(duration) * 1e6) if start and isinstance(duration, int | float) else None
    resources = said.get("resources")
    nodes = (
        [str(r["hostname"]) for r in resources if isinstance(r, dict) and r.get("hostname")] if isinstance(resources, list) else []
    )
    said_of = {name: str(said[name]) for name in ("user", "cluster", "partition") if said.get(name)}
    return JobRecord(
        job_id=str(said["jobId"]),
        state=state_of(said.get("jobState")),
        is_settled=not is_running(said.get("jobState")),
        started_at=from_us(start),
        ended_at=from_us(end),
        nodes=nodes,
        has_record=True,
        user=said_of.get("user"),
        cluster=said_of.get("cluster"),
        partition=said_of.get("partition"),
    )
