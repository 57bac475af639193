"""The lake: every Delta table that Spark reads and writes, by its contract.

>>> lake = Lake(spark, "/data/lake")          # doctest: +SKIP
>>> lake.read("ranks").show()                 # doctest: +SKIP
>>> lake.write("ranks", rows, jobs=["job-1"]) # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from jobs.core.errors import ContractError
from jobs.core.lake import arrow_schema, create_missing, open_table, table_path, version, write_rows
from jobs.core.quality import validate
from schemas import tables
from schemas.contract import Table, discrepancies


def spark_schema(table: Table) -> StructType:
    """The contract as a Spark schema, nullable throughout."""
    return from_arrow_schema(arrow_schema(table.name))


__all__ = ["Lake", "create_missing", "in_list", "spark_schema", "table_path", "version"]


AT_A_TIME = 3
"""Tables that are written at the same time."""
FEW_FILES = 24
"""Up to here the files of a table are named to Spark at once: the query over its log by which Delta plans a scan costs more
than reading them (bench/README.md). Above it, Delta's statistics save more than that query costs."""
FEW_ROWS = 2000
"""Up to here rows go through the driver to the table: a transaction of Spark's costs seconds whatever it writes."""


@dataclass(frozen=True)
class Lake:
    """The tables of one lake, read and written through one Spark session."""

    spark: SparkSession
    root: str

    def read(self, name: str) -> DataFrame:
        """All rows of a table, at its newest version."""
        table, schema = open_table(self.root, name), spark_schema(tables()[name])
        files = table.file_uris()
        if not files:
            # Spark sees that nothing comes of it, and plans nothing.
            return self.spark.createDataFrame([], schema).limit(0)
        if len(files) <= FEW_FILES and is_plain(table):
            return self.spark.read.schema(schema).parquet(*files)
        return self.spark.read.format("delta").load(table_path(self.root, name))

    def write(self, name: str, rows: DataFrame, jobs: Sequence[str] | None = None) -> None:
        """Validate rows and put them into a table in one transaction.

        With `jobs`, exactly the rows of these jobs are replaced; without, the whole table is.
        Raises ContractError with every discrepancy at once, CheckError when a critical expectation fails.
        """
        table = tables()[name]
        wrong = discrepancies(table, to_arrow_schema(rows.schema, timezone="UTC"))
        if wrong:
            raise ContractError("; ".join(wrong))
        projected = rows.select(*table.names).persist()
        try:
            if validate(self.root, table, projected) <= FEW_ROWS:
                write_rows(self.root, name, projected.toArrow(), jobs)
                return
            writer = projected.write.format("delta").mode("overwrite")
            if jobs is not None and table.replaced_by:
                writer = writer.option("replaceWhere", in_list(table.replaced_by, jobs))
            writer.save(table_path(self.root, name))
        finally:
            projected.unpersist()

    def write_all(self, rows: Mapping[str, DataFrame], jobs: Sequence[str] | None = None) -> None:
        """Write several tables, some at a time: a small write is mostly waiting. The first error is raised after all ended."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            started = [pool.submit(self.write, name, table_rows, jobs) for name, table_rows in rows.items()]
        for each in started:
            each.result()


def is_plain(table: DeltaTable) -> bool:
    """Whether a table's rows are those of its files, no more and no less, and Spark takes the files' names as they are."""
    has_features = table.protocol().min_reader_version > 1 or table.metadata().partition_columns
    return not has_features and re.fullmatch(r"(file://)?[\w./=-]+", table.table_uri) is not None


def in_list(column: str, values: Sequence[str]) -> str:
    """A SQL condition that holds for these values, whatever characters they contain; false for none."""
    if not values:
        return "false"
    quoted = ", ".join("'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" for value in values)
    return f"{column} IN ({quoted})"
