"""Operation time lines as parquet: straggler traces with their fixed columns, or any table that names its fields."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.adapters.base import FileContext, Parsed, Problem, Rows, Tally
from jobs.adapters.operation_words import meaning
from jobs.adapters.operations_timeline import row_of, rows_of
from jobs.adapters.operations_whatif import COLUMNS
from ml.stragglers.words import CODE

_BATCH = 16384
_IN_MEMORY = 1 << 26
_PATH_SAYS = re.compile(r"(^|/)traces?/|timeline|time_line|operations|whatif|straggler", re.IGNORECASE)
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,7})", re.IGNORECASE)


class OperationParquetAdapter:
    """Reads parquet files of operations into `operations`."""

    name = "operation_parquet"
    version = 1

    def sniff(self, path: str, head: bytes) -> float:
        """A parquet file says what it holds at its end: the path must do."""
        if not head.startswith(b"PAR1"):
            return 0.0
        return 0.8 if _PATH_SAYS.search(path) else 0.04

    def parse(self, stream: BinaryIO, context: FileContext) -> Iterator[Parsed]:
        """`operations` rows batch by batch. Parquet is read from its end: what cannot seek is spooled to disk first."""
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spooled:
            shutil.copyfileobj(stream, spooled)
            spooled.seek(0)
            try:
                with pq.ParquetFile(pa.PythonFile(spooled, mode="r")) as file:
                    yield from _parse(file, context)
            except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
                yield Problem("corrupt_parquet", 0, 1, " ".join(str(error).split())[:200])
                yield Tally(1, 0)


ADAPTERS = (OperationParquetAdapter(),)


def _parse(file: pq.ParquetFile, context: FileContext) -> Iterator[Parsed]:
    names = set(file.schema_arrow.names)
    is_straggler_trace = names >= set(COLUMNS)
    n_read = n_understood = 0
    reasons: dict[str, tuple[int, str]] = {}
    for batch in file.iter_batches(batch_size=_BATCH, columns=list(COLUMNS) if is_straggler_trace else None):
        n_read += len(batch)
        rows, refused = _straggler_rows(batch) if is_straggler_trace else _named_rows(batch, context)
        for reason, words in refused:
            reasons[reason] = (reasons.get(reason, (0, words))[0] + 1, words)
        if rows is not None:
            n_understood += len(rows)
            yield rows
    for reason, (n, words) in sorted(reasons.items()):
        yield Problem(reason, 0, n, words)
    yield Tally(n_read, n_understood)


def _straggler_rows(batch: pa.RecordBatch) -> tuple[Rows | None, list[tuple[str, str]]]:
    """Rows of a straggler trace. Its times are seconds from the start of the step; its rank stands for tp x dsp ranks."""
    kept: list[dict[str, Any]] = []
    refused: list[tuple[str, str]] = []
    for record in batch.to_pylist():
        if any(value is None for value in record.values()):
            refused.append(("bad_value", "a field is missing"))
        elif record["duration"] < 0 or record["start_ts"] < 0:
            refused.append(("bad_value", "the duration or the start is negative"))
        else:
            kept.append(record)
    if not kept:
        return None, refused
    found = [_meaning(str(record["optype"])) for record in kept]
    columns: dict[str, list[Any]] = {
        "rank": [int(r["rank"]) for r in kept],
        "step": [int(r["step"]) for r in kept],
        "kind": [kind for kind, _ in found],
        "layer": [layer for _, layer in found],
        "name": [str(r["optype"])[:300] for r in kept],
        "started_us": [round(r["start_ts"] * 1e6) for r in kept],
        "duration_us": [r["duration"] * 1e6 for r in kept],
        "n_calls": [1] * len(kept),
        "group": [f"chunk {int(r['mc'])}" for r in kept],
        "stage": [int(r["stage"]) for r in kept],
        "dp_rank": [int(r["dp_rank"]) for r in kept],
        "micro_batch": [int(r["mb_id"]) for r in kept],
        "sequence": [int(r["seq_id"]) for r in kept],
        "source": ["whatif"] * len(kept),
    }
    return Rows("operations", columns), refused


def _meaning(name: str) -> tuple[str, str]:
    """Kind and layer; computations of such traces run on accelerators."""
    found = meaning(name)
    return found.kind, "gpu" if name in CODE and found.layer == "host" else found.layer


def _named_rows(batch: pa.RecordBatch, context: FileContext) -> tuple[Rows | None, list[tuple[str, str]]]:
    named = _RANK_IN_NAME.search(context.path.rsplit("/", 1)[-1])
    rank_of_file = context.rank if context.rank is not None else int(named[1]) if named else None
    nodes = {p.rank: p.node for p in context.placements}
    kept, refused = [], []
    for record in batch.to_pylist():
        row, reason = row_of(record, rank_of_file)
        if row is None:
            refused.append(reason)
            continue
        row["node"] = row["node"] or nodes.get(row["rank"]) or context.node
        kept.append(row)
    return (rows_of(kept) if kept else None), refused
