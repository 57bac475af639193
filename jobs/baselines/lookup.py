"""Baselines of one job straight from the lake, without Spark: a hash, a few row groups, a handful of comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.baselines.index import HEAVY, LIGHT, bucket_of, candidates_of, described_row
from jobs.core import lake
from jobs.core.errors import FleetdiffError, NotFoundError
from jobs.core.query import Filters, listed
from jobs.core.unknown_job import require_job
from ml.configs.classes import KeyClasses
from ml.configs.describe import Described, describe
from ml.configs.match import Match, Tried, decide
from ml.configs.parse import MAX_BYTES, ConfigError, ParsedConfig, parse_config
from ml.configs.shortlist import Shortlist, fitness, shortlist

INDEX = "config_index"


def of_job(root: str, job_id: str, classes: KeyClasses) -> Match:
    """Baselines of a job that is in the lake; raises NotFoundError when it is not."""
    found = lake.rows(root, INDEX, ["job_id", "model_hash", "must_hash", "classes"], [("job_id", "=", job_id)])
    if not found.num_rows:
        _missing(root, job_id)
    row = found.to_pylist()[0]
    if row["classes"] != classes.version:
        raise FleetdiffError(
            f"{lake.table_path(root, INDEX)}: made with key classes {row['classes']}, asked with {classes.version}; "
            "give the site's file as --settings, or run `fleetdiff baselines --refresh`"
        )
    place = [("model_hash", "=", row["model_hash"]), ("must_hash", "=", row["must_hash"]), ("job_id", "=", job_id)]
    this = described_row(listed(lake.rows(root, INDEX, list(HEAVY), place))[0], classes)
    return match(root, this, job_id, classes)


def _missing(root: str, job_id: str) -> None:
    require_job(root, job_id)
    index = lake.table_path(root, INDEX)
    raise FleetdiffError(f"{index}: {job_id} is not indexed yet; run `fleetdiff baselines --lake {root}`")


def read_config(path: str) -> ParsedConfig:
    """A configuration file in any form; raises FleetdiffError with the reason when it cannot be used."""
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise FleetdiffError(f"{path}: larger than {MAX_BYTES // 2**20} MiB; give the configuration alone")
        text = Path(path).read_bytes().decode("utf-8", "replace")
        return parse_config(text)
    except IsADirectoryError:
        raise FleetdiffError(f"{path}: is a folder; give its job.json") from None
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file; give a job.json, YAML, or a log with an argument block") from None
    except OSError as error:
        raise FleetdiffError(f"{path}: {error.strerror or error}; give a readable file") from None
    except ConfigError as error:
        raise FleetdiffError(f"{path}: {error}; give a job.json, YAML, or a log with an argument block") from None


def of_config(root: str, parsed: ParsedConfig, classes: KeyClasses) -> Match:
    """Baselines of a new incident's configuration."""
    this = describe(
        parsed.config, classes, world_size=parsed.world_size, n_nodes=parsed.n_nodes, n_gpus=parsed.n_gpus,
        name=parsed.name, user=parsed.user,
    )  # fmt: skip
    return match(root, this, parsed.job_id, classes)


def match(root: str, this: Described, job_id: str | None, classes: KeyClasses) -> Match:
    """Shortlist the jobs that match in all that must, then compare key by key; look further only to explain a refusal."""
    if not this.is_identified:
        return decide(this, [], [], Tried(), classes)
    same: Filters = [("model_hash", "=", this.model_hash), ("must_hash", "=", this.must_hash)]
    if this.is_block_only:
        same = _beside_block(root, this) or same
    chosen, kept, _ = _shortlisted(root, this, job_id, same, classes)
    near: list[Any] = []
    if not kept and not chosen.out and not chosen.n_matching:
        _, _, near = _shortlisted(root, this, job_id, [("model_hash", "=", this.model_hash)], classes)
    return decide(this, kept, near, Tried(chosen.n_matching, chosen.n_successful, chosen.out), classes)


def _beside_block(root: str, this: Described) -> Filters:
    """Where jobs lie whose argument block states what this one's states, whatever their job.json adds."""
    found = lake.rows(root, INDEX, ["model_hash", "must_hash"], [("block_hash", "=", this.block_hash)])
    models, musts = (sorted(set(found[name].to_pylist())) for name in ("model_hash", "must_hash"))
    return [("model_hash", "in", models), ("must_hash", "in", musts)] if models else []


def _shortlisted(
    root: str, this: Described, job_id: str | None, place: Filters, classes: KeyClasses
) -> tuple[Shortlist, list[Any], list[Any]]:
    """The shortlist within a part of the index, and its rows with their configurations."""
    bucket = bucket_of(lake.rows(root, INDEX, list(LIGHT), place))
    itself = bucket.job_ids.index(job_id) if job_id in bucket.job_ids else None
    chosen = shortlist(this, itself, bucket, fitness(bucket, classes), classes)
    wanted = [bucket.job_ids[row] for row in (*chosen.kept, *chosen.near)]
    if not wanted:
        return chosen, [], []
    rows: pa.Table = lake.rows(root, INDEX, list(HEAVY), [*place, ("job_id", "in", wanted)])
    known = candidates_of(rows, classes)
    return chosen, [known[bucket.job_ids[row]] for row in chosen.kept], [known[bucket.job_ids[row]] for row in chosen.near]
