"""Archives: which jobs lie in them, which files belong to each, and the rows of one job, all without Spark."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.adapters import job_record
from jobs.adapters.base import Problem

MAX_DEPTH = 64
MAX_FILES = 5_000_000


@dataclass(frozen=True)
class FoundFile:
    """One file of the archive. `path` is what tables show (valid text), `place` what the system opens."""

    path: str
    place: str
    size: int
    modified_ns: int
    refusal: Problem | None = None


@dataclass(frozen=True)
class JobFiles:
    """One job's files. `root` is the folder below the archive to which paths are relative; `record` names `job.json`.

    `is_export`: no job, but what a scheduler says of many; its file is only accounted for.
    """

    job_id: str
    root: str
    files: tuple[FoundFile, ...]
    record: str | None = None
    scheduler: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    is_export: bool = False


def shown(path: str) -> str:
    """A path as text that every table can hold: bytes that are no UTF-8 become replacement characters."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def walk(root: str | Path) -> Iterator[FoundFile]:
    """Every file below a folder, in order of its path; links to folders are not followed, so that no walk is endless."""
    base = os.path.abspath(root)
    pending: list[tuple[str, int]] = [("", 0)]
    found: list[FoundFile] = []
    while pending:
        folder, depth = pending.pop()
        try:
            with os.scandir(os.path.join(base, folder)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            found.append(FoundFile(shown(folder or "."), os.path.join(base, folder), 0, 0, _unreadable(error)))
            continue
        for entry in listed:
            inner = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False) and not entry.is_symlink():
                if depth < MAX_DEPTH:
                    pending.append((inner, depth + 1))
                continue
            found.append(_file(base, inner, entry))
    yield from _named_apart(sorted(found, key=lambda file: (file.path, file.place)))


def _named_apart(files: list[FoundFile]) -> Iterator[FoundFile]:
    """Files whose names differ only in bytes that no text can show get a number, so that each has its own path."""
    taken: dict[str, int] = {}
    for file in files:
        n = taken[file.path] = taken.get(file.path, 0) + 1
        yield file if n == 1 else replace(file, path=f"{file.path}~{n}")


def _unreadable(error: OSError) -> Problem:
    return Problem(
        "vanished" if isinstance(error, FileNotFoundError) else "unreadable",
        0,
        0,
        f"{type(error).__name__}: give read permission, or copy it again",
    )


def _file(base: str, inner: str, entry: os.DirEntry[str]) -> FoundFile:
    place = os.path.join(base, inner)
    try:
        status = entry.stat(follow_symlinks=True)
    except OSError as error:
        return FoundFile(shown(inner), place, 0, 0, _unreadable(error))
    refusal = None
    if entry.is_symlink() and not _is_inside(place, base):
        refusal = Problem("not_a_regular_file", 0, 0, "a link that leads out of the archive, or to a folder")
    elif not stat.S_ISREG(status.st_mode):
        refusal = Problem(
            "not_a_regular_file",
            0,
            0,
            "neither a file nor a folder" if not entry.is_symlink() else "a link to something that is no file",
        )
    size = status.st_size if refusal is None else 0
    return FoundFile(shown(inner), place, size, status.st_mtime_ns, refusal)


def single_file(path: Path) -> FoundFile:
    """A file that was named by itself; what is no file (a pipe, a socket, a device) is refused."""
    status = path.stat()
    is_file = stat.S_ISREG(status.st_mode)
    refusal = None if is_file else Problem("not_a_regular_file", 0, 0, "neither a file nor a folder")
    return FoundFile(shown(path.name), str(path), status.st_size if is_file else 0, status.st_mtime_ns, refusal)


def open_file(place: str) -> BufferedReader:
    """Open a file for reading, and nothing else: a pipe that took its place meanwhile would keep its reader waiting.

    Raises OSError when it is no file, or cannot be read.
    """
    return open(place, "rb", opener=_only_files)


def _only_files(place: str, flags: int) -> int:
    descriptor = os.open(place, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return descriptor


def _is_inside(place: str, base: str) -> bool:
    return os.path.realpath(place).startswith(os.path.realpath(base) + os.sep)


def find_jobs(archive: str | Path) -> list[JobFiles]:
    """The jobs of an archive: folders with a record, and what else lies there, by scheduler exports and paths.

    Raises FleetdiffError when the archive is no folder.
    """
    from jobs.adapters.orphans import jobs_of
    from jobs.core.errors import FleetdiffError

    if not os.path.isdir(archive):
        raise FleetdiffError(f"{archive}: no such folder; give the folder that holds the jobs")
    files = list(walk(archive))
    roots = _record_folders(files)
    owned: dict[str, list[FoundFile]] = {root: [] for root in roots}
    orphans: list[FoundFile] = []
    for file in files:
        owner = _owner(file.path, roots)
        (orphans if owner is None else owned[owner]).append(file)
    name = os.path.basename(os.path.abspath(archive))
    jobs = [_job(root, roots[root], owned[root], name) for root in sorted(owned)]
    return _distinct([*jobs, *jobs_of(orphans, {job.job_id for job in jobs})])


def _record_folders(files: list[FoundFile]) -> dict[str, FoundFile]:
    """Folder of each record; `job.json` before `job.yaml` where a folder has both."""
    found: dict[str, FoundFile] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if name in job_record.NAMES and file.refusal is None:
            known = found.get(folder)
            if known is None or job_record.NAMES.index(name) < job_record.NAMES.index(known.path.rpartition("/")[2]):
                found[folder] = file
    return found


def _owner(path: str, roots: dict[str, FoundFile]) -> str | None:
    folder = path
    while folder:
        folder = folder.rpartition("/")[0]
        if folder in roots:
            return folder
    return None


def _job(root: str, record: FoundFile, files: list[FoundFile], archive: str) -> JobFiles:
    name = record.path.rpartition("/")[2]
    data = read_bytes(record.place, job_record.MAX_BYTES)
    said = job_record.parse(name, data)
    fallback = root.rpartition("/")[2] or shown(archive)
    flags = () if said.job_id else ("missing_job_id",)
    prefix = len(root) + 1 if root else 0
    inner = tuple(FoundFile(f.path[prefix:], f.place, f.size, f.modified_ns, f.refusal) for f in files)
    return JobFiles(said.job_id or fallback, root, inner, record.path[prefix:], {}, flags)


def read_bytes(place: str, cap: int) -> bytes:
    """At most `cap` bytes and one more of a file; empty when it cannot be read."""
    try:
        with open_file(place) as file:
            return file.read(cap + 1)
    except OSError:
        return b""


def _distinct(jobs: list[JobFiles]) -> list[JobFiles]:
    """Jobs with distinct ids: a later one of the same id gets its folder's name appended, and says so."""
    taken: dict[str, int] = {}
    distinct: list[JobFiles] = []
    for job in sorted(jobs, key=lambda each: (each.job_id, each.root)):
        n = taken.get(job.job_id, 0)
        taken[job.job_id] = n + 1
        if n:
            job = replace(job, job_id=f"{job.job_id}~{n + 1}", flags=(*job.flags, "duplicate_job_id"))
        distinct.append(job)
    return distinct


def read_job(folder: str | Path) -> dict[str, pa.Table]:
    """The rows of one job's folder, by table name, as the ingest stage would write them (without `ingest_batch`).

    >>> read_job("archive/job-7107")["iterations"].num_rows  # doctest: +SKIP
    24
    """
    from jobs.adapters.job_reader import read_files

    jobs = find_jobs(folder)
    job = next((each for each in jobs if each.root == ""), jobs[0] if jobs else JobFiles(Path(folder).name, "", ()))
    with read_files(job) as done:
        return done.tables()
