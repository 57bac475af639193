"""Fingerprints of failures as sets of rows: words with their weights, families, look-alikes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructType

from ml.similarity.families import assign, common_words, family_id, ranked
from ml.similarity.fingerprint import KIND_WEIGHTS, exceptions, most_alike, pack, rarity, scores, shared_words

MIN_SCORE = 0.25
N_ALIKE = 10
N_SHARDS = 16
NORMAL_SHARE = 0.1
COMMON_SHARE = 0.5
NO_FAILURE = ("none",)
VERSION_KEYS = (
    "code_version", "git_commit", "framework.version", "packages.torch", "packages.nccl", "packages.cuda",
    "packages.transformer_engine", "packages.megatron_core", "packages.deepspeed", "driver_version", "container.image", "image",
)  # fmt: skip


def failures(training_jobs: DataFrame, diagnoses: DataFrame) -> DataFrame:
    """Jobs that failed, or completed with a symptom, with what their diagnosis says; without one, undetermined."""
    said = diagnoses.select("job_id", "symptom", "cause_class", "spatial_signal", "onset_phase", "candidate_nodes")
    versions = F.array(*(_version(key) for key in VERSION_KEYS))
    return (
        training_jobs.join(said, "job_id", "left")
        .where((F.col("state") != "COMPLETED") | ~F.coalesce("symptom", F.lit("none")).isin(*NO_FAILURE))
        .select(
            "job_id", "state", "name", "user", "ended_at", "ingest_batch", "spatial_signal", "onset_phase",
            F.coalesce("lineage_id", "job_id").alias("lineage"),
            F.coalesce("symptom", F.lit("undetermined")).alias("symptom"),
            F.coalesce("cause_class", F.lit("undetermined")).alias("cause_class"),
            F.array_sort(F.coalesce("candidate_nodes", F.array().cast("array<string>"))).alias("nodes"),
            F.array_sort(F.array_compact(versions)).alias("versions"),
        )
    )  # fmt: skip


def _version(key: str) -> Column:
    """`torch 2.15.0`, null where the configuration does not say."""
    name = key.rsplit(".", 1)[-1] if key.startswith("packages.") else key.replace(".version", "").replace("_version", "")
    value = F.get(F.map_values(F.map_filter("config", lambda k, _: F.lower(k) == key)), 0)
    return F.when(F.trim(value) != "", F.concat(F.lit(f"{name} "), F.substring(value, 1, 80)))


def diagnosis_words(failed: DataFrame) -> DataFrame:
    """Rows `job_id, word`: symptom, cause, phase, spatial signal, each where it is known."""
    columns = {"symptom": "symptom", "cause": "cause_class", "phase": "onset_phase", "spatial": "spatial_signal"}
    words = F.array(
        *(
            F.when(~F.col(column).isin("undetermined", "none", "not_applicable"), F.concat(F.lit(f"{kind}:"), F.col(column)))
            for kind, column in columns.items()
        )
    )
    return failed.select("job_id", F.explode(F.array_compact(words)).alias("word"))


def template_words(failed: DataFrame, job_templates: DataFrame, templates: DataFrame, normal_templates: DataFrame) -> DataFrame:
    """Rows `job_id, word, share`: templates, kinds of alert, names of exceptions and the roles that raise alerts.

    Templates of the normal library count a tenth of their weight.
    """
    named = F.udf(exceptions, ArrayType(StringType()))
    normal = normal_templates.where("is_normal").select("template_id", F.lit(NORMAL_SHARE).alias("share"))
    texts = templates.select("template_id", "template", "example")
    own = job_templates.join(failed.select("job_id"), "job_id", "left_semi")
    seen = own.select("job_id", "template_id", "alert", "role").distinct().join(normal, "template_id", "left")
    kind = F.when(F.col("alert").isNotNull(), F.lit("alert_template:")).otherwise(F.lit("template:"))
    plain = seen.select("job_id", F.concat(kind, "template_id").alias("word"), F.coalesce("share", F.lit(1.0)).alias("share"))
    raised = seen.where("alert IS NOT NULL")
    whole = F.lit(1.0).alias("share")
    alerts = raised.select("job_id", F.concat(F.lit("alert:"), "alert").alias("word"), whole)
    roles = raised.where("role IS NOT NULL").select("job_id", F.concat(F.lit("role:"), "role").alias("word"), whole)
    thrown = (
        raised.select("template_id").distinct().join(texts, "template_id")
        .select("template_id", F.explode(named(F.concat_ws("\n", "template", "example"))).alias("exception"))
    )  # fmt: skip
    names = raised.join(thrown, "template_id").select("job_id", F.concat(F.lit("exception:"), "exception").alias("word"), whole)
    return plain.unionByName(alerts).unionByName(roles).unionByName(names)


def event_words(failed: DataFrame, node_events: DataFrame, collective_findings: DataFrame) -> DataFrame:
    """Rows `job_id, word`: kinds of node events (with their code) and collectives that did not end, with their syndrome."""
    serious = node_events.where("severity != 'info' AND job_id IS NOT NULL")
    kind = F.concat_ws(" ", "kind", F.col("code").cast("string"))
    events = serious.select("job_id", F.concat(F.lit("event:"), kind).alias("word"))
    op = F.regexp_replace(F.lower("op"), "^.*:", "")
    collectives = collective_findings.select(
        "job_id",
        F.explode(
            F.array_compact(
                F.array(
                    F.when(op.isNotNull(), F.concat(F.lit("collective:"), op)),
                    F.when(F.col("syndrome") != "none", F.concat(F.lit("finding:"), "syndrome")),
                )
            )
        ).alias("word"),
    )
    wanted = failed.select("job_id")
    return events.unionByName(collectives).join(wanted, "job_id", "left_semi").distinct()


def weighted(words: DataFrame, n_failed: int) -> DataFrame:
    """Rows `job_id, word, weight`: the kind's weight, times the word's share, times how rare it is among failures."""
    once = words.groupBy("job_id", "word").agg(F.max("share").alias("share"))
    counts = once.groupBy("word").agg(F.count(F.lit(1)).alias("n_with"))
    rare = F.udf(lambda n: rarity(int(n), n_failed), "double")
    kind = F.create_map(*(F.lit(part) for pair in KIND_WEIGHTS.items() for part in pair))
    base = F.coalesce(kind[F.substring_index("word", ":", 1)], F.lit(1.0))
    rarities = counts.select("word", rare("n_with").alias("rarity"))
    return once.join(rarities, "word").select("job_id", "word", (base * F.col("share") * F.col("rarity")).alias("weight"))


def fingerprints(failed: DataFrame, words: DataFrame, schema: StructType) -> DataFrame:
    """Rows of `job_fingerprints`: each failure's words packed, and the family that it belongs to."""
    gathered = words.groupBy("job_id").agg(F.collect_list(F.struct("word", "weight")).alias("weighted"))
    packed_schema = "job_id string, tokens array<bigint>, words array<string>"

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                tokens, texts = pack((each["word"], each["weight"]) for each in row["weighted"] or ())
                rows.append({"job_id": row["job_id"], "tokens": tokens, "words": texts})
            yield from pa.Table.from_pylist(rows, schema=_PACKED).to_batches()

    joined = failed.join(gathered.mapInArrow(packed, packed_schema), "job_id", "left")
    filled = joined.select(
        *failed.columns,
        F.coalesce("tokens", F.array().cast("array<bigint>")).alias("tokens"),
        F.coalesce("words", F.array().cast("array<string>")).alias("words"),
    )
    by_symptom = filled.select("job_id", "symptom", "ended_at", "tokens").groupBy("symptom")
    families = by_symptom.applyInArrow(_families, "job_id string, family_id string")
    return filled.join(families, "job_id").select(*schema.names)


_PACKED = pa.schema([("job_id", pa.string()), ("tokens", pa.list_(pa.int64())), ("words", pa.list_(pa.string()))])


def _families(rows: pa.Table) -> pa.Table:
    """Families among the failures with one symptom."""
    tokens, offsets = flat(rows)
    ended = [micros or 0 for micros in rows["ended_at"].cast(pa.int64()).to_pylist()]
    jobs = rows["job_id"].to_pylist()
    founders = assign(jobs, ended, tokens, offsets)
    return pa.table({"job_id": jobs, "family_id": [family_id(founder) for founder in founders]})


def flat(rows: pa.Table) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Tokens of all rows one after the other, and where each row's begin and end."""
    lists = rows["tokens"].combine_chunks() if rows.num_rows else pa.array([], pa.list_(pa.int64()))
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64), offsets - offsets[0]


def look_alikes(known: DataFrame, pending: DataFrame, schema: StructType) -> DataFrame:
    """Rows of `job_similarity` for the pending failures: their look-alikes among all failures.

    The failures are dealt into shards; each shard meets all pending ones, and the best of all shards are kept.
    """
    shard = F.pmod(F.xxhash64("job_id"), F.lit(N_SHARDS)).cast("int")
    asked = known.join(F.broadcast(pending), "job_id", "left_semi")
    # New names for the columns: both sides come from the same rows, and Spark must tell them apart.
    wanted = asked.select(*(F.col(name).alias(name) for name in ("job_id", "tokens", "words")))
    dealt = wanted.withColumn("shard", F.explode(F.array(*(F.lit(n) for n in range(N_SHARDS)))))
    others = known.select("job_id", "tokens", "words", "symptom", "ended_at", "family_id", shard.alias("shard"))
    arrow = to_arrow_schema(schema, timezone="UTC")
    found = dealt.groupBy("shard").cogroup(others.groupBy("shard")).applyInArrow(_alike(arrow), schema)
    best = F.row_number().over(_order())
    return found.withColumn("position", best.cast("int")).where(F.col("position") <= N_ALIKE)


def _order() -> Any:
    from pyspark.sql import Window

    return Window.partitionBy("job_id").orderBy(F.desc("score"), "similar_job_id")


def _alike(arrow: pa.Schema) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def of_shard(wanted: pa.Table, others: pa.Table) -> pa.Table:
        if not wanted.num_rows or not others.num_rows:
            return arrow.empty_table()
        tokens, offsets = flat(others)
        names = others["job_id"].to_pylist()
        details = others.select(["words", "symptom", "family_id", "ended_at"]).to_pylist()
        rows = []
        for own in wanted.to_pylist():
            found = scores(np.array(own["tokens"], dtype=np.int64), tokens, offsets)
            if own["job_id"] in names:
                found[names.index(own["job_id"])] = -1.0
            for place, alike in enumerate(most_alike(found, names, N_ALIKE, MIN_SCORE), 1):
                other = details[alike.row]
                rows.append({
                    "job_id": own["job_id"], "position": place, "similar_job_id": names[alike.row], "score": alike.score,
                    "shared": shared_words(own["tokens"], own["words"], other["words"]), "symptom": other["symptom"],
                    "ended_at": other["ended_at"], "family_id": other["family_id"],
                })  # fmt: skip
        return pa.Table.from_pylist(rows, schema=arrow)

    return of_shard


def families(known: DataFrame, newest: int, schema: StructType) -> DataFrame:
    """Rows of `failure_families`: each family's size, growth and spread."""
    arrow = to_arrow_schema(schema, timezone="UTC")

    def of_family(rows: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([family_row(rows.to_pylist(), newest)], schema=arrow)

    return known.drop("tokens").groupBy("family_id").applyInArrow(of_family, schema)


def family_row(jobs: list[dict[str, Any]], newest: int) -> dict[str, Any]:
    """One row of `failure_families` from its fingerprints; `newest` is the number of the newest ingest."""
    jobs = sorted(jobs, key=lambda job: job["job_id"])
    nodes = [node for job in jobs for node in set(job["nodes"])]
    versions = [version for job in jobs for version in set(job["versions"])]
    ended = [job["ended_at"] for job in jobs if job["ended_at"] is not None]
    n_new = sum(job["ingest_batch"] == newest for job in jobs)
    shared = common_words([job["words"] for job in jobs])
    symptom = ranked([job["symptom"] for job in jobs], 1)[0]
    return {
        "family_id": jobs[0]["family_id"],
        "label": family_label(symptom, shared),
        "symptom": symptom,
        "n_jobs": len(jobs),
        "n_lineages": len({job["lineage"] for job in jobs}),
        "n_new": n_new,
        "is_new": n_new == len(jobs),
        "growth": None if n_new == len(jobs) else round(n_new / (len(jobs) - n_new), 4),
        "job_ids": [job["job_id"] for job in jobs],
        "shared": shared,
        "n_nodes": len(set(nodes)),
        "nodes": ranked(nodes),
        "n_users": len({job["user"] for job in jobs if job["user"]}),
        "users": ranked([job["user"] for job in jobs]),
        "n_versions": len(set(versions)),
        "versions": ranked(versions),
        "first_at": min(ended, default=None),
        "last_at": max(ended, default=None),
    }


def family_label(symptom: str, shared: list[str]) -> str:
    """A few words: the symptom, then the most telling of exception, event, collective, alert, phase."""
    telling = [
        word.split(":", 1)[1]
        for kind in ("exception", "event", "collective", "alert", "phase")
        for word in shared
        if word.startswith(f"{kind}:")
    ]
    name = symptom.replace("_", " ")
    return f"{name}: {', '.join(dict.fromkeys(telling[:3]))}" if telling else name
