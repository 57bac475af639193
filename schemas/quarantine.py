"""What could not be used, and why."""

import pyarrow as pa

from schemas.columns import INGEST_BATCH, JOB_ID
from schemas.contract import Column, Layer, Table

REASONS = (
    "truncated_gzip", "corrupt_compression", "trailing_garbage", "unreadable", "vanished", "not_a_regular_file",
    "broken_json", "broken_yaml", "too_deep", "too_long", "binary_content", "undecodable", "missing_column",
    "bad_value", "bad_type", "duplicate_job_id", "missing_job_id", "no_job", "unsafe_pickle", "corrupt_pickle",
    "corrupt_parquet", "unsafe_member", "bomb", "series_cap", "unknown_format", "adapter_failure", "not_settled",
    "implausible", "corrupt_archive", "broken_rule",
)  # fmt: skip

TABLE = Table(
    name="quarantine",
    layer=Layer.BRONZE,
    row="one rejected row or file",
    columns=(
        JOB_ID,
        Column("path", pa.string(), "path inside the job's folder", nullable=False),
        Column("reason", pa.string(), "why, from a closed list", nullable=False, one_of=REASONS),
        Column("offset", pa.int64(), "byte offset, or record number where bytes mean nothing", nullable=False, minimum=0),
        Column(
            "n_records",
            pa.int64(),
            "records that this row stands for; 0 for a remark on a file whose records were kept",
            nullable=False,
            minimum=0,
        ),
        Column("detail", pa.string(), "the reason in words, and the mend"),
        Column("sample", pa.string(), "first bytes, redacted and bounded"),
        INGEST_BATCH,
    ),
    key=("job_id", "path", "reason", "offset"),
    replaced_by="job_id",
)
