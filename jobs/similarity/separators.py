"""What changed: settings of groups of failures against those of successful jobs of the same models, as sets of rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ml.configs.classes import KeyClass, KeyClasses
from ml.configs.describe import describe
from ml.similarity.separators import MIN_GROUP, separate, statement

SLOW_RATIO = 1.2
_SETTING = pa.schema([("job_id", pa.string()), ("key", pa.string()), ("value", pa.string())])


def settings(config_index: DataFrame, classes: KeyClasses) -> DataFrame:
    """Rows `job_id, key, value`: every setting that counts, in its one spelling."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = []
            for job in batch.to_pylist():
                described = describe(
                    dict(job["config"] or {}), classes, world_size=job["n_ranks"], n_nodes=job["n_nodes"], n_gpus=job["n_gpus"]
                )
                found += [
                    {"job_id": job["job_id"], "key": item.key, "value": item.value[:200]}
                    for item in described.items.values()
                    if item.rule.key_class not in (KeyClass.FREE, KeyClass.MUST)
                ]
            yield from pa.Table.from_pylist(found, schema=_SETTING).to_batches()

    chosen = config_index.select("job_id", "config", "n_ranks", "n_nodes", "n_gpus")
    return chosen.mapInArrow(rows, "job_id string, key string, value string")


def groups(known: DataFrame, config_index: DataFrame) -> DataFrame:
    """Rows `group_kind, group_id, job_id`: families and symptoms of at least three jobs, all failures, slow successful jobs."""
    kinds = (("family", F.col("family_id")), ("symptom", F.col("symptom")), ("state", F.lit("failed")))
    failed = [known.select(F.lit(kind).alias("group_kind"), by.alias("group_id"), "job_id") for kind, by in kinds]
    listed = failed[0].unionByName(failed[1]).unionByName(failed[2]).unionByName(slow_jobs(config_index))
    large = listed.groupBy("group_kind", "group_id").count().where(F.col("count") >= MIN_GROUP)
    return listed.join(large.drop("count"), ["group_kind", "group_id"], "left_semi")


def slow_jobs(config_index: DataFrame) -> DataFrame:
    """Successful jobs whose step takes `SLOW_RATIO` times the median of jobs with the same speed-making settings."""
    timed = config_index.where("is_success AND step_time_s > 0")
    usual = timed.groupBy("speed_hash").agg(F.median("step_time_s").alias("usual_s"))
    slow = timed.join(usual, "speed_hash").where(F.col("step_time_s") >= SLOW_RATIO * F.col("usual_s"))
    return slow.select(F.lit("metric").alias("group_kind"), F.lit("step_time_s").alias("group_id"), "job_id")


def separators(known: DataFrame, config_index: DataFrame, schema: StructType, classes: KeyClasses) -> DataFrame:
    """Rows of `config_separators`.

    Each group meets the successful jobs of the models that occur in it; counts of successful jobs are made once a model
    and summed over a group's models, so that no successful job is copied for each group.
    """
    named = config_index.where("model_hash != 0")
    members = groups(known, config_index).join(named.select("job_id", "model_hash"), "job_id").persist()
    slow = members.where("group_kind = 'metric'").select("job_id").distinct()
    fit = named.where("is_success AND disqualified IS NULL")
    good = fit.join(known.select("job_id").unionByName(slow), "job_id", "left_anti")
    listed = settings(named.join(members.select("model_hash").distinct(), "model_hash", "left_semi"), classes).persist()
    group = ["group_kind", "group_id"]
    inside = members.join(listed, "job_id").groupBy(*group, "key", "value").agg(F.count(F.lit(1)).alias("n_group_with"))
    sizes = members.groupBy(*group).agg(F.countDistinct("job_id").alias("n_group"))
    models = members.select(*group, "model_hash").distinct()
    good_sizes = good.groupBy("model_hash").agg(F.count(F.lit(1)).alias("n"))
    n_others = models.join(good_sizes, "model_hash").groupBy(*group).agg(F.sum("n").alias("n_others"))
    good_settings = good.select("job_id", "model_hash").join(listed, "job_id")
    good_counts = good_settings.groupBy("model_hash", "key", "value").agg(F.count(F.lit(1)).alias("n"))
    outside = models.join(good_counts, "model_hash").groupBy(*group, "key", "value").agg(F.sum("n").alias("n_others_with"))
    counted = inside.join(outside, [*group, "key", "value"], "full").fillna(0, ["n_group_with", "n_others_with"])
    tables = counted.join(sizes, group).join(n_others, group)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def of_group(rows: pa.Table) -> pa.Table:
        return _of_group(rows, arrow)

    return tables.groupBy(*group).applyInArrow(of_group, schema)


def _of_group(rows: pa.Table, arrow: pa.Schema) -> pa.Table:
    """The separators of one group from its counts."""
    rows = rows.sort_by([("key", "ascending"), ("value", "ascending")])
    kind, name = rows["group_kind"][0].as_py(), rows["group_id"][0].as_py()
    found = separate(
        rows["key"].to_pylist(), rows["value"].to_pylist(), rows["n_group_with"].to_pylist(), rows["n_others_with"].to_pylist(),
        rows["n_group"][0].as_py(), rows["n_others"][0].as_py(),
    )  # fmt: skip
    words = {"metric": "slow", "family": "failed", "state": "failed"}.get(kind, f"failed ({name})")
    listed = [
        {**vars(each), "group_kind": kind, "group_id": name, "position": place, "statement": statement(each, words)}
        for place, each in enumerate(found, 1)
    ]
    return pa.Table.from_pylist(listed, schema=arrow)
