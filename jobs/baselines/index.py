"""From jobs to rows of `config_index`, and from its rows to what the matcher compares: no Spark here, only Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ml.configs.classes import KeyClasses
from ml.configs.describe import Described, describe
from ml.configs.match import Candidate
from ml.configs.qualify import Outcome, disqualified, is_success
from ml.configs.shortlist import Bucket

PLANNED = "hyperparameters.iters"
LIGHT = (
    "job_id", "model_hash", "must_hash", "full_must_hash", "block_hash", "speed_hash", "has_block", "is_success", "disqualified",
    "lineage", "ended_at", "n_ranks", "n_planned", "step_time_s", "duration_s", "pairs",
)  # fmt: skip
"""The columns that a shortlist needs: all but the configuration's text."""
HEAVY = ("job_id", "lineage", "name", "user", "ended_at", "n_ranks", "n_nodes", "n_gpus", "config")
"""The columns that an exact comparison needs."""


def described_row(row: Mapping[str, Any], classes: KeyClasses) -> Described:
    """What the matcher compares, from a row with `config`, sizes, name and user."""
    return describe(
        dict(row["config"] or {}), classes,
        world_size=row.get("n_ranks"), n_nodes=row.get("n_nodes"), n_gpus=row.get("n_gpus"),
        name=row.get("name"), user=row.get("user"),
    )  # fmt: skip


def index_row(job: Mapping[str, Any], classes: KeyClasses) -> dict[str, Any]:
    """One row of `config_index` from a job's row joined with its `alerts` and its figures of iterations."""
    config = {key: value for key, value in dict(job["config"] or {}).items() if value is not None}
    base = {**job, "config": config, "n_ranks": job["world_size"]}
    described = described_row(base, classes)
    planned = job["n_planned"] or _planned(described)
    outcome = Outcome(
        state=job["state"],
        exit_code=job["exit_code"],
        node_exit_codes=[code for _, code in job["node_exit_codes"] or ()],
        alerts=job["alerts"] or (),
        launcher_alerts=job["launcher_alerts"] or (),
        last_iteration=job["last_iteration"],
        n_planned=planned,
        log_every=job["log_every"] or 1,
    )
    return {
        "job_id": job["job_id"],
        "model_hash": described.model_hash,
        "must_hash": described.must_hash,
        "full_must_hash": described.full_must_hash,
        "block_hash": described.block_hash,
        "speed_hash": described.speed_hash,
        "has_block": described.has_block,
        "is_success": is_success(outcome),
        "disqualified": disqualified(outcome, classes) or None,
        "state": job["state"],
        "lineage": job["lineage_id"] or job["job_id"],
        "name": job["name"],
        "user": job["user"],
        "ended_at": job["ended_at"],
        "n_ranks": job["world_size"],
        "n_nodes": job["n_nodes"],
        "n_gpus": job["n_gpus"],
        "n_planned": planned,
        "last_iteration": job["last_iteration"],
        "step_time_s": job["step_time_s"],
        "duration_s": job["duration_s"],
        "pairs": described.pairs,
        "config": list(config.items()),
        "classes": classes.version,
    }


def _planned(described: Described) -> int | None:
    """Iterations that the configuration plans."""
    item = described.items.get(PLANNED)
    return int(item.value) if item and item.value.isdigit() and len(item.value) < 16 else None


def bucket_of(rows: pa.Table) -> Bucket:
    """Arrays of the matcher from rows of `config_index` (columns `LIGHT`), in order of the job ids."""
    rows = rows.sort_by("job_id")
    pairs = rows["pairs"].combine_chunks() if rows.num_rows else pa.array([], pa.list_(pa.int64()))
    offsets = pairs.offsets.to_numpy().astype(np.int64)
    return Bucket(
        job_ids=rows["job_id"].to_pylist(),
        lineages=rows["lineage"].to_pylist(),
        must_hash=_whole(rows["must_hash"]),
        full_must_hash=_whole(rows["full_must_hash"]),
        block_hash=_whole(rows["block_hash"]),
        speed_hash=_whole(rows["speed_hash"]),
        has_block=_flags(rows["has_block"]),
        is_success=_flags(rows["is_success"]),
        disqualified=[reason or "" for reason in rows["disqualified"].to_pylist()],
        ended_us=_whole(rows["ended_at"].cast(pa.int64())),
        n_ranks=_whole(rows["n_ranks"]),
        n_planned=_whole(rows["n_planned"]),
        step_time_s=_real(rows["step_time_s"]),
        duration_s=_real(rows["duration_s"]),
        offsets=offsets - offsets[0],
        pairs=pairs.flatten().to_numpy(zero_copy_only=False).astype(np.int64),
    )


def candidates_of(rows: pa.Table, classes: KeyClasses) -> dict[str, Candidate]:
    """Candidates by job id from rows of `config_index` (columns `HEAVY`)."""
    ended = [micros or 0 for micros in rows["ended_at"].cast(pa.int64()).to_pylist()]
    listed = rows.drop_columns(["ended_at"]).to_pylist()
    return {
        row["job_id"]: Candidate(row["job_id"], row["lineage"], at, row["n_ranks"], described_row(row, classes))
        for row, at in zip(listed, ended, strict=True)
    }


# pyarrow imports pandas for the first scalar that it makes of a Python value (`fill_null`, `to_pylist` of a time stamp),
# which takes longer than the whole look-up may: nulls are filled by numpy here.


def _whole(column: pa.ChunkedArray) -> NDArray[np.int64]:
    values = column.to_numpy(zero_copy_only=False)
    return np.nan_to_num(values, nan=0).astype(np.int64) if column.null_count else values.astype(np.int64)


def _real(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return column.to_numpy(zero_copy_only=False).astype(np.float64)


def _flags(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return column.to_numpy(zero_copy_only=False).astype(np.bool_)
