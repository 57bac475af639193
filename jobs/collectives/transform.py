"""DataFrames of the `collectives` stage: jobs in shares, each share judged job by job."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.collectives.assemble import finding_rows
from jobs.collectives.query import Ask, jobs_with_entries, progress, telling
from jobs.core.tables import spark_schema
from schemas import collective_findings

SHARES = 4
AT_A_TIME = 8
"""Jobs whose entries are in memory together: a query costs as much for one as for a few."""


def facts(jobs: DataFrame, ranks: DataFrame) -> DataFrame:
    """A row a job: job_id, state, world_size, ranks (rank and node)."""
    placed = ranks.groupBy("job_id").agg(F.collect_list(F.struct("rank", "node")).alias("ranks"))
    return jobs.select("job_id", "state", "world_size").join(placed, "job_id", "left")


def findings(facts: DataFrame, ask: Ask) -> DataFrame:
    """Rows of `collective_findings` of the jobs of `facts`; workers ask for the entries that they need."""
    schema = spark_schema(collective_findings.TABLE)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def of_share(known: pa.Table) -> pa.Table:
        about = {row["job_id"]: row for row in known.to_pylist()}
        found = []
        asked = jobs_with_entries(ask, sorted(about))
        for jobs in (asked[at : at + AT_A_TIME] for at in range(0, len(asked), AT_A_TIME)):
            rows = pd.concat([telling(ask, jobs), progress(ask, jobs)], ignore_index=True).sort_values(
                ["rank", "record_id", "group"]
            )
            for job_id, listed in rows.groupby("job_id"):
                found += finding_rows(str(job_id), listed, about[str(job_id)])
        return pa.Table.from_pylist(found, schema=arrow)

    share = F.pmod(F.hash("job_id"), F.lit(SHARES))
    return facts.groupBy(share).applyInArrow(of_share, schema)
