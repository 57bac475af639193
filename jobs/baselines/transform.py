"""Baselines as sets of rows: index the pending jobs, shortlist within each model, decide for each job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from jobs.baselines.index import HEAVY, LIGHT, bucket_of, candidates_of, described_row, index_row
from ml.configs.classes import KeyClasses
from ml.configs.match import Match, Tried, decide
from ml.configs.shortlist import condense, fitness, shortlist

N_KEPT_EACH = 8
ROWS_A_FILE = 8192
SHORTLISTED = pa.schema(
    [
        ("job_id", pa.string()), ("candidate_id", pa.string()), ("is_near", pa.bool_()), ("place", pa.int32()),
        ("n_matching", pa.int64()), ("n_successful", pa.int64()),
        ("out", pa.list_(pa.struct([("job_id", pa.string()), ("reason", pa.string())]))),
    ]
)  # fmt: skip


LAUNCHER = "launcher"


def alerts_by_job(job_templates: DataFrame) -> DataFrame:
    """Rows `job_id, alerts, launcher_alerts`: kinds of alert that each job's processes raise, and its launcher alone."""
    raised = job_templates.where(F.col("alert").isNotNull())
    is_launcher = F.coalesce(F.col("role") == LAUNCHER, F.lit(False))
    return raised.groupBy("job_id").agg(
        F.sort_array(F.collect_set(F.when(~is_launcher, F.col("alert")))).alias("alerts"),
        F.sort_array(F.collect_set(F.when(is_launcher, F.col("alert")))).alias("launcher_alerts"),
    )


def progress_by_job(iterations: DataFrame) -> DataFrame:
    """Rows `job_id, last_iteration, n_planned, step_time_s, log_every`: how far and how fast each job went.

    Where no line prints a step time, it is the time between lines over the iterations between them.
    """
    figures = iterations.groupBy("job_id").agg(
        F.max("iteration").alias("last_iteration"),
        F.min("iteration").alias("first_iteration"),
        F.max("n_planned").alias("n_planned"),
        F.median("step_time_s").alias("printed_s"),
        F.countDistinct("iteration").alias("n_printed"),
        ((F.unix_micros(F.max("occurred_at")) - F.unix_micros(F.min("occurred_at"))) / 1e6).alias("span_s"),
    )
    between = F.col("last_iteration") - F.col("first_iteration")
    return figures.select(
        "job_id",
        "last_iteration",
        F.when(F.col("n_planned") > 0, F.col("n_planned")).alias("n_planned"),
        F.coalesce("printed_s", F.when(between > 0, F.col("span_s") / between)).alias("step_time_s"),
        F.ceil(between / F.greatest(F.col("n_printed") - 1, F.lit(1))).alias("log_every"),
    )


def index_rows(
    training_jobs: DataFrame, alerts: DataFrame, progress: DataFrame, schema: StructType, classes: KeyClasses
) -> DataFrame:
    """Rows of `config_index` for these jobs, many rows a file and in order of their hashes."""
    jobs = training_jobs.select(
        "job_id", "name", "user", "state", "exit_code", "node_exit_codes", "ended_at", "world_size", "n_nodes", "n_gpus",
        "lineage_id", "config",
        ((F.unix_micros("ended_at") - F.unix_micros("started_at")) / 1e6).alias("duration_s"),
    )  # fmt: skip
    joined = jobs.join(alerts, "job_id", "left").join(progress, "job_id", "left")
    arrow = to_arrow_schema(schema, timezone="UTC")

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            listed = [index_row(job, classes) for job in batch.to_pylist()]
            yield from pa.Table.from_pylist(listed, schema=arrow).to_batches()

    return joined.mapInArrow(rows, schema)


def laid_out(indexed: DataFrame, n_rows: int) -> DataFrame:
    """The index in files of a few thousand rows, sorted by what look-ups filter on."""
    n_files = max(1, -(-n_rows // ROWS_A_FILE))
    ordered = ["model_hash", "must_hash", "job_id"]
    return indexed.repartitionByRange(n_files, *ordered).sortWithinPartitions(*ordered)


@dataclass(frozen=True)
class _Row:
    """The hashes and settings of one row of a bucket."""

    must_hash: int
    full_must_hash: int
    block_hash: int
    has_block: bool
    pairs: list[int]


def shortlists(index: DataFrame, pending: DataFrame, classes: KeyClasses) -> DataFrame:
    """Rows of `SHORTLISTED`: for each pending job whose model is known, the jobs worth comparing key by key.

    One group is one model; settings that all its jobs share are dropped before anything is compared.
    """
    named = index.where("model_hash != 0").select(*LIGHT)
    flagged = named.join(F.broadcast(pending.withColumn("is_pending", F.lit(True))), "job_id", "left")
    models = flagged.where("is_pending").select("model_hash").distinct()
    groups = flagged.join(F.broadcast(models), "model_hash", "left_semi")
    return groups.groupBy("model_hash").applyInArrow(_shortlister(classes), from_arrow_schema(SHORTLISTED))


def _shortlister(classes: KeyClasses) -> Callable[[pa.Table], pa.Table]:
    def of_model(rows: pa.Table) -> pa.Table:
        rows = rows.sort_by("job_id")
        full = bucket_of(rows)
        fit = fitness(full, classes)
        bucket, _ = condense(full)
        found = []
        for row in pc.indices_nonzero(pc.fill_null(rows["is_pending"], False)).to_pylist():
            this = _Row(
                int(bucket.must_hash[row]), int(bucket.full_must_hash[row]), int(bucket.block_hash[row]),
                bool(bucket.has_block[row]), bucket.pairs[bucket.offsets[row] : bucket.offsets[row + 1]].tolist(),
            )  # fmt: skip
            chosen = shortlist(this, row, bucket, fit, classes, N_KEPT_EACH)
            tried = {
                "job_id": bucket.job_ids[row], "n_matching": chosen.n_matching, "n_successful": chosen.n_successful,
                "out": [{"job_id": job, "reason": reason} for job, reason in chosen.out],
            }  # fmt: skip
            near = () if chosen.kept or chosen.out or chosen.n_matching else chosen.near
            listed = [(each, False) for each in chosen.kept] + [(each, True) for each in near]
            found += [
                {**tried, "candidate_id": bucket.job_ids[each], "is_near": is_near, "place": place}
                for place, (each, is_near) in enumerate(listed)
            ] or [{**tried, "candidate_id": None, "is_near": False, "place": 0}]
        return pa.Table.from_pylist(found, schema=SHORTLISTED)

    return of_model


def decided(index: DataFrame, shortlisted: DataFrame, pending: DataFrame, schema: StructType, classes: KeyClasses) -> DataFrame:
    """Rows of `baselines` for the pending jobs: each with its baselines in order, or with one row that says why none."""
    heavy = index.select(*HEAVY)
    own = heavy.join(F.broadcast(pending), "job_id", "left_semi")
    renamed = heavy.select(F.col("job_id").alias("candidate_id"), *(F.col(name).alias(f"c_{name}") for name in HEAVY[1:]))
    candidates = shortlisted.join(renamed, "candidate_id", "left")
    decider = _decider(classes, to_arrow_schema(schema, timezone="UTC"))
    return own.groupBy("job_id").cogroup(candidates.groupBy("job_id")).applyInArrow(decider, schema)


def _decider(classes: KeyClasses, arrow: pa.Schema) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def of_job(own: pa.Table, candidates: pa.Table) -> pa.Table:
        if not own.num_rows:
            return arrow.empty_table()
        row = own.to_pylist()[0]
        this = described_row(row, classes)
        tried = Tried()
        lists: tuple[list[str], list[str]] = ([], [])
        known = {}
        if candidates.num_rows:
            ordered = candidates.sort_by("place")
            first = ordered.select(["n_matching", "n_successful", "out"]).slice(0, 1).to_pylist()[0]
            tried = Tried(first["n_matching"], first["n_successful"], [(o["job_id"], o["reason"]) for o in first["out"]])
            real = ordered.filter(pc.is_valid(ordered["candidate_id"]))
            for job, is_near in zip(real["candidate_id"].to_pylist(), real["is_near"].to_pylist(), strict=True):
                lists[is_near].append(job)
            heavy = real.select(["candidate_id", *(f"c_{name}" for name in HEAVY[1:])]).rename_columns(list(HEAVY))
            known = candidates_of(heavy, classes)
        match = decide(this, [known[job] for job in lists[0]], [known[job] for job in lists[1]], tried, classes)
        return pa.Table.from_pylist(baseline_rows(row["job_id"], match), schema=arrow)

    return of_job


def baseline_rows(job_id: str, match: Match) -> list[dict[str, object]]:
    """Rows of `baselines` for one job."""
    empty: dict[str, object] = {"n_ranks": None, "ended_at": None, "score": None, "sentence": None, "baseline_job_id": None}
    if match.refused is not None:
        return [{**empty, "job_id": job_id, "position": 0, "differing": [], "refused": match.refused}]
    return [
        {
            "job_id": job_id,
            "position": position,
            "baseline_job_id": each.job_id,
            "score": each.score,
            "n_ranks": each.n_ranks,
            "ended_at": each.ended_us or None,
            "differing": [{"key": d.key, "this": d.this, "baseline": d.baseline} for d in each.differing],
            "sentence": each.sentence,
            "refused": None,
        }
        for position, each in enumerate(match.baselines, 1)
    ]
