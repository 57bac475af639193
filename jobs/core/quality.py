"""Great Expectations over what a stage is about to write.

Rows are counted in Spark, once a table: one pass gives, for each rule of the contract, how many rows break it. Great
Expectations judges that summary, so that it never sees a value of the rows, and its cost does not grow with them.
Verdicts go to `dq_results`; a broken critical rule stops the stage.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import pandas as pd
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import CheckError
from jobs.core.lake import arrow_schema, table_path
from jobs.core.rules import Rule, rules_of
from schemas.contract import Severity, Table

ONE_AT_A_TIME = threading.RLock()
"""Great Expectations' context and the table of verdicts are shared by writers in several threads."""

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")


def validate(lake: str, table: Table, rows: DataFrame) -> int:
    """Judge rows by their contract, record the verdicts, and return how many rows there are.

    Raises CheckError that names every broken critical expectation of the table.
    """
    rules = rules_of(table)
    counts = count_broken(rows, rules, table.key)
    judged(lake, table.name, judge(table.name, rules, counts))
    return counts[0]


def judged(lake: str, name: str, verdicts: list[dict[str, Any]]) -> None:
    """Record the verdicts on rows that are about to be written; raises CheckError as `validate` does."""
    record(lake, name, verdicts)
    failed = [v for v in verdicts if not v["is_success"] and v["severity"] == Severity.CRITICAL]
    if failed:
        listed = "; ".join(f"{v['expectation']} ({v['n_unexpected']:,} of {v['n_rows']:,} rows)" for v in failed)
        raise CheckError(f"{name}: expectation failed: {listed}; nothing was written")


def count_broken(rows: DataFrame, rules: list[Rule], key: tuple[str, ...]) -> list[int]:
    """Rows in all, then the rows that break each rule, in one pass. A key's duplicates are counted by its hash."""
    counts: list[SparkColumn] = [F.count(F.lit(1)).alias("n_rows")]
    counts += [F.count(F.when(F.expr(rule.broken), 1)).alias(f"r{i}") for i, rule in enumerate(rules) if rule.broken]
    hashed = F.xxhash64(*[F.coalesce(F.col(column).cast("string"), F.lit("\0")) for column in key])
    counts.append((F.count(F.lit(1)) - F.count_distinct(hashed)).alias("duplicates"))
    return [int(value) for value in rows.agg(*counts).first() or ()]


@cache
def _context() -> Any:
    """Great Expectations without files, telemetry or progress bars."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("summaries").add_dataframe_asset("rule_counts")
    return asset.add_batch_definition_whole_dataframe("whole")


def judge(suite: str, rules: list[Rule], counts: list[int]) -> list[dict[str, Any]]:
    """Great Expectations' verdict on each rule: rows of `dq_results`."""
    import great_expectations as gx

    n_rows, broken = counts[0], counts[1:]
    summary = pd.DataFrame({rule.name: [n] for rule, n in zip(rules, broken, strict=True)})
    expectations = [
        gx.expectations.ExpectColumnMaxToBeBetween(column=rule.name, max_value=0, severity=rule.severity.value) for rule in rules
    ]
    with ONE_AT_A_TIME:
        batch = _context().get_batch(batch_parameters={"dataframe": summary})
        result = batch.validate(gx.ExpectationSuite(name=suite, expectations=expectations))
    success = {each.expectation_config.kwargs["column"]: bool(each.success) for each in result.results}
    return [
        {
            "suite": suite,
            "expectation": rule.name,
            "expectation_type": "expect_column_max_to_be_between",
            "severity": rule.severity.value,
            "is_success": success[rule.name],
            "n_rows": n_rows,
            "n_unexpected": n,
        }
        for rule, n in zip(rules, broken, strict=True)
    ]


def record(lake: str, suite: str, verdicts: list[dict[str, Any]]) -> None:
    """Replace the table's verdicts. One at a time: two replacements at once would be a conflict."""
    rows = pa.Table.from_pylist(verdicts, schema=arrow_schema("dq_results"))
    with ONE_AT_A_TIME:
        write_deltalake(table_path(lake, "dq_results"), rows, mode="overwrite", predicate=f"suite = '{suite}'")
