"""The books of read, kept and quarantined records."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def imbalances(ledger: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Files whose books do not balance: read must be kept plus quarantined, and quarantine must hold what is missing.

    Columns job_id, path, n_read, n_kept, n_quarantined, n_in_quarantine; no row when nothing was lost.
    """
    held = quarantine.groupBy("job_id", "path").agg(F.sum("n_records").alias("n_in_quarantine"))
    books = ledger.select("job_id", "path", "n_read", "n_kept", "n_quarantined").join(held, ["job_id", "path"], "left")
    in_quarantine = F.coalesce(F.col("n_in_quarantine"), F.lit(0))
    return books.where((F.col("n_read") != F.col("n_kept") + F.col("n_quarantined")) | (F.col("n_quarantined") != in_quarantine))
