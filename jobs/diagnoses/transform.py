"""All findings of a job side by side become one row of `diagnoses`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.tables import spark_schema
from jobs.diagnoses.assemble import case_of, diagnosis_row
from ml.fusion.rules import parse_rules
from schemas import diagnoses
from schemas.columns import FINDING_COLUMNS

TEMPLATE_COLUMNS = ("template_id", "template", "alert", "n_events", "first_at", "in_baselines", "in_library", "example")
MODEL = "model_id"
"""The model behind a machine score: the diagnosis names the models that it rests on."""


def all_findings(tables: Mapping[str, DataFrame]) -> DataFrame:
    """Rows of every findings table with their common columns, a column `table`, and what is known of a template."""
    log = tables["log_findings"]
    types = {field.name: field.dataType for field in log.schema}
    shared = [column.name for column in FINDING_COLUMNS]
    parts = []
    for name in sorted(tables):
        rows = tables[name]
        extra = [F.col(c) if name == "log_findings" else F.lit(None).cast(types[c]).alias(c) for c in TEMPLATE_COLUMNS]
        model = F.col(MODEL) if MODEL in rows.columns else F.lit(None).cast("string").alias(MODEL)
        parts.append(rows.select(*shared, F.lit(name).alias("table"), *extra, model))
    return reduce(DataFrame.unionByName, parts)


def bundles(
    jobs: DataFrame,
    ranks: DataFrame,
    findings: DataFrame,
    baselines: DataFrame,
    node_events: DataFrame,
    normal_templates: DataFrame,
) -> DataFrame:
    """One row a job with lists of its ranks, findings, baselines and node events; events of the fleet join by node and time."""
    window = (
        (F.col("occurred_at") >= F.col("started_at") - F.expr("INTERVAL 10 MINUTES"))
        & (F.col("occurred_at") <= F.col("ended_at") + F.expr("INTERVAL 5 MINUTES"))
    )  # fmt: skip
    spans = jobs.select("job_id", "started_at", "ended_at", F.explode("nodes").alias("node"))
    own = node_events.where("job_id IS NOT NULL").join(jobs.select("job_id"), "job_id", "left_semi")
    fleet = node_events.where("job_id IS NULL").drop("job_id").join(F.broadcast(spans), "node").where(window)
    events = own.unionByName(fleet.select(*own.columns))
    rows = jobs.select("job_id", F.struct(*jobs.columns).alias("job"))
    parts = {
        "ranks": ranks, "findings": findings, "node_events": events,
        "baselines": baselines.select("job_id", "baseline_job_id", "score", "differing"),
    }  # fmt: skip
    for name, part in parts.items():
        inner = [c for c in part.columns if c != "job_id"]
        rows = rows.join(part.groupBy("job_id").agg(F.collect_list(F.struct(*inner)).alias(name)), "job_id", "left")
    library = normal_templates.agg((F.count("*") > 0).alias("has_library"), F.max("library_version").alias("library"))
    return rows.crossJoin(F.broadcast(library))


def diagnosed(bundled: DataFrame, code_version: str, rules_text: str | None = None) -> DataFrame:
    """Rows of `diagnoses`; `rules_text` holds a site's own cause rules as YAML, they come before ours."""
    schema = pa.schema([pa.field(column.name, column.type) for column in diagnoses.TABLE.columns])
    return bundled.mapInArrow(_diagnose(schema, code_version, rules_text), spark_schema(diagnoses.TABLE))


def _diagnose(
    schema: pa.Schema, code_version: str, rules_text: str | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rules = parse_rules(rules_text) if rules_text else ()
        for batch in batches:
            for place in range(batch.num_rows):
                bundle = {name: batch.column(name)[place].as_py() for name in batch.schema.names}
                row = diagnosis_row(case_of({**bundle, "code": code_version}), rules)
                yield pa.RecordBatch.from_pylist([row], schema=schema)

    return run
