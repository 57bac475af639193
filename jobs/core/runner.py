"""Runs stages: skips what has nothing to do, hands each one its context, records progress last."""

from __future__ import annotations

import hashlib
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.core import progress, watch
from jobs.core.lake import create_missing, version
from jobs.core.stages import STAGES, Stage
from jobs.core.tables import Lake
from schemas import tables

CODE = (".py", ".yaml", ".j2", ".html", ".css", ".js")
"""Kinds of file that decide what a stage does."""
SHARED_CODE = ("jobs/core", "schemas", "ml")
"""Folders whose code any stage may run; ingest keeps its own account of the adapters."""
RULE_FILES = {"template_rules", "cause_rules"}
"""Settings that name a file whose text decides."""
NAMED_JOBS = 1000
"""Up to here jobs are named in the filter, so that files and row groups without them are skipped."""


@dataclass(frozen=True)
class StageContext:
    """What a stage gets: nothing else may change its results.

    `pending` is the list of jobs that the stage has not seen in their present form; None stands for all jobs.
    """

    stage: Stage
    lake: Lake
    pending: tuple[str, ...] | None
    batch: int
    as_of: datetime | None = None
    archive: str | None = None
    report: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    is_refresh: bool = False

    @cached_property
    def spark(self) -> SparkSession:
        """The session."""
        return self.lake.spark

    def read(self, name: str) -> DataFrame:
        """All rows of a declared input."""
        self._must_declare(name)
        return self.lake.read(name)

    def root_of(self, name: str) -> str:
        """The lake's folder, for workers that ask a declared input themselves."""
        self._must_declare(name)
        return self.lake.root

    def _must_declare(self, name: str) -> None:
        if name not in (*self.stage.reads, *self.stage.writes):
            raise KeyError(f"stage {self.stage.name} does not declare that it reads {name} (jobs/core/stages.py)")

    def read_pending(self, name: str) -> DataFrame:
        """The rows of a declared input that belong to pending jobs."""
        rows = self.read(name)
        return rows if self.pending is None else self.of_jobs(rows, self.pending)

    def of_jobs(self, rows: DataFrame, jobs: Sequence[str]) -> DataFrame:
        """Those of the rows that belong to these jobs."""
        if len(jobs) <= NAMED_JOBS:
            return rows.where(F.col("job_id").isin(*jobs))
        wanted = self.spark.createDataFrame([(job,) for job in jobs], "job_id string")
        return rows.join(F.broadcast(wanted), "job_id", "left_semi")

    def write(self, name: str, rows: DataFrame) -> None:
        """Write a declared output: for tables that belong to jobs, exactly the pending jobs' rows are replaced."""
        self.write_all({name: rows})

    def write_all(self, rows: Mapping[str, DataFrame]) -> None:
        """Write declared outputs that do not need each other, several at a time: `write`, sooner done."""
        for name in rows:
            if name not in self.stage.writes:
                raise KeyError(f"stage {self.stage.name} does not declare that it writes {name} (jobs/core/stages.py)")
        has_work = {name: self.pending != () or not tables()[name].replaced_by for name in rows}
        self.lake.write_all({name: table_rows for name, table_rows in rows.items() if has_work[name]}, self.pending)


@dataclass(frozen=True)
class Ran:
    """What became of one stage."""

    stage: str
    seconds: float
    is_skipped: bool


@dataclass(frozen=True)
class Given:
    """What a run is told from outside: everything that may change results beside the lake and the code."""

    archive: str | None = None
    report: str | None = None
    as_of: datetime | None = None
    refresh: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def seen_by(stage: Stage, given: Given) -> Given:
    """What a stage is told: of settings and of the time that stands for now, only what it declares."""
    settings = {name: given.settings[name] for name in stage.settings if name in given.settings}
    return replace(given, settings=settings, as_of=given.as_of if stage.knows_now else None)


def definition_of(stage: Stage, given: Given) -> str:
    """Hash of what decides a stage's results, beside the archive: a change recomputes.

    That is its code, what it is told, rule files with their text, and the same of the stages whose tables it reads. Ingest stands
    apart: what it reads anew is pending for all others.
    """
    seen = seen_by(stage, given)
    told = (sorted(seen.settings.items()), seen.as_of, None if stage.writes else given.report)
    digest = hashlib.sha256(repr(told).encode())
    for name in sorted(RULE_FILES & seen.settings.keys()):
        file = Path(seen.settings[name])
        digest.update(file.read_bytes() if file.is_file() else b"")
    for each in STAGES:
        if not each.needs_archive and each.name != stage.name and set(each.writes) & set(stage.reads):
            digest.update(definition_of(each, given).encode())
    for folder in (f"jobs/{stage.name}", *SHARED_CODE):
        digest.update(_code_hash(folder))
    return digest.hexdigest()[:16]


@cache
def _code_hash(folder: str) -> bytes:
    """Hash of the names and contents of a folder's code; read once a process, since every stage shares most of it."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for file in sorted(path for path in (root / folder).rglob("*") if path.suffix in CODE):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.digest()


def run_stage(stage: Stage, lake: Lake, given: Given) -> Ran:
    """Run one stage, or skip it when its inputs, code and settings are those of its last completed run.

    Ingest always looks at the archive; when it finds nothing new, it leaves no trace.
    """
    began = time.monotonic()
    create_missing(lake.root)
    definition = definition_of(stage, given)
    last = progress.last(lake.root, stage.name)
    inputs = {name: version(lake.root, name) for name in stage.reads}
    is_same = last is not None and last.definition == definition and not given.refresh
    if is_same and last and last.inputs == inputs and not stage.needs_archive and _pages_exist(stage, given):
        return Ran(stage.name, time.monotonic() - began, True)
    batch, pending = progress.pending_jobs(lake.root, last.ingest_batch if is_same and last else 0)
    seen = seen_by(stage, given)
    context = StageContext(
        stage, lake, pending if is_same else None, batch, seen.as_of, seen.archive, seen.report, seen.settings, seen.refresh
    )
    importlib.import_module(stage.module).run(context)
    if stage.needs_archive:
        batch, _ = progress.pending_jobs(lake.root, 0)
    reached = progress.Progress(batch, inputs, definition)
    if reached != last:
        progress.record(lake.root, stage.name, reached)
    return Ran(stage.name, time.monotonic() - began, reached == last and not given.refresh)


def _pages_exist(stage: Stage, given: Given) -> bool:
    """Whether a stage that writes pages has left them where they are wanted; true for stages that write tables."""
    return bool(stage.writes) or bool(given.report and Path(given.report, "index.html").exists())


def run_stages(stages: Sequence[Stage], lake: Lake, given: Given) -> list[Ran]:
    """Run stages in order; a progress line for each goes to standard error."""
    done = []
    for number, each in enumerate(stages, 1):
        with watch.bar(f"[{number}/{len(stages)}] {each.name:<15}", lake.spark.sparkContext.statusTracker()):
            ran = run_stage(each, lake, given)
        word = "nothing new" if ran.is_skipped else f"{ran.seconds:.1f} s"
        print(f"[{number}/{len(stages)}] {each.name:<15} {word}", file=sys.stderr, flush=True)  # noqa: T201
        done.append(ran)
    return done
