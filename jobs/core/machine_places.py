"""What the stages on machine metrics share: each machine's place in its job, and its metrics as series."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ml.machines.series import Series


def places(ranks: DataFrame) -> DataFrame:
    """Rows job_id, node, node_role, is_first_host, node_ranks: roles on a node with their pipeline stages, sorted."""
    stage = F.expr("array_position(try_element_at(groups, 'pp'), rank)")
    role = F.concat_ws("/", F.coalesce("role", F.lit("")), stage.cast("string"))
    return (
        ranks.where("node IS NOT NULL")
        .groupBy("job_id", "node")
        .agg(
            F.concat_ws(",", F.array_sort(F.collect_set(role))).alias("node_role"),
            (F.min("rank") == 0).alias("is_first_host"),
            F.array_sort(F.collect_set("rank")).alias("node_ranks"),
        )
    )


def series_of(rows: pa.Table) -> tuple[list[Series], dict[str, str], str | None]:
    """The series of metric rows with their places, in the order of the rows; each node's role; the host of rank 0."""
    series: list[Series] = []
    roles: dict[str, str] = {}
    first = None
    for row in rows.drop_columns(["values"]).to_pylist():
        values = rows["values"][len(series)].values
        # Read where they lie: only values with nulls among them are copied.
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64) if values is not None else np.zeros(0)
        start_us = round(row["grid_start_at"].timestamp() * 1e6)
        series.append(Series(row["node"], row["device"], row["metric"], row["unit"], start_us, row["period_s"], numbers))
        roles[row["node"]] = row["node_role"] or ""
        first = row["node"] if row["is_first_host"] else first
    return series, roles, first
