"""Log events of a file, completed by what other files of the job say: times, iterations, phases, nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.job_facts import JobFacts, bounds_us
from jobs.adapters.paths import stamp_in
from jobs.adapters.stamps import to_us
from schemas.contract import TIMESTAMP

FAILURE_GRAIN_S = 1.0
_NONE = np.iinfo(np.int64).min


class Completion:
    """Completes batches of `log_records`.

    An event without a stamp at the end of a file is dated by the failure of its rank where torchrun's agent gives one,
    else it keeps the last stamp and the uncertainty up to the file's last change or the job's end.
    """

    def __init__(self, facts: JobFacts, last_at: Mapping[str, datetime | None], modified_at: Mapping[str, datetime | None]) -> None:
        self._facts = facts
        self._last_us = {path: to_us(at) for path, at in last_at.items() if at is not None}
        self._start, self._end = bounds_us(facts)
        self._modified_us = {path: to_us(at) for path, at in modified_at.items() if at is not None}
        self._nodes = facts.node_of

    def completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with times, onsets, iterations, phases and nodes filled in as far as the job's files tell."""
        is_timed = not (batch["occurred_at"].null_count or batch["time_uncertainty_s"].null_count)
        has_waited = batch["waited_s"].null_count < len(batch)
        if is_timed and not has_waited and not batch["iteration"].null_count:
            return self.placed(batch)  # nothing is open: true of most of a log's lines
        at = pc.fill_null(batch["occurred_at"].cast(pa.int64()), _NONE).to_numpy(zero_copy_only=False).copy()
        spread = pc.fill_null(batch["time_uncertainty_s"], np.nan).to_numpy(zero_copy_only=False).copy()
        filled = {} if is_timed else self._dated(batch, at, spread)
        if has_waited:
            waited = pc.fill_null(batch["waited_s"], 0.0).to_numpy(zero_copy_only=False)
            onset = np.where(waited > 0, at - (waited * 1e6).astype(np.int64), 0)
            filled["onset_at"] = pa.array(onset, pa.int64(), mask=(at == _NONE) | (waited <= 0)).cast(TIMESTAMP)
        for name, column in (filled | self._progress(batch, at, spread)).items():
            index = batch.schema.get_field_index(name)
            batch = batch.set_column(index, batch.schema.field(index), column)
        return self.placed(batch)

    def _dated(self, batch: pa.RecordBatch, at: np.ndarray, spread: np.ndarray) -> dict[str, pa.Array]:
        """Times, where they come from and how far off they may be; `at` and `spread` are filled too."""
        sources = batch["time_source"].to_pylist()
        self._date_tails(batch, at, spread, sources)
        return {
            "occurred_at": pa.array(at, pa.int64(), mask=at == _NONE).cast(TIMESTAMP),
            "time_source": pa.array(sources, pa.string()),
            "time_uncertainty_s": pa.array(spread, pa.float64(), mask=np.isnan(spread)),
        }

    def placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Nodes of rows whose rank is known and whose node is not."""
        lacks = pc.and_(pc.is_null(batch["node"]), pc.is_valid(batch["rank"]))
        if not self._nodes or not pc.any(lacks).as_py():
            return batch
        nodes = [
            node if node is not None else self._nodes.get(rank)
            for node, rank in zip(batch["node"].to_pylist(), batch["rank"].to_pylist())
        ]
        index = batch.schema.get_field_index("node")
        return batch.set_column(index, batch.schema.field(index), pa.array(nodes, pa.string()))

    def _date_tails(self, batch: pa.RecordBatch, at: np.ndarray, spread: np.ndarray, sources: list[str | None]) -> None:
        """Date events after a file's last stamp, and those of files without any."""
        is_open = np.isnan(spread)
        if not is_open.any():
            return
        ranks, files = batch["rank"].to_pylist(), batch["file"].to_pylist()
        for i in np.flatnonzero(is_open).tolist():
            last = self._last_us.get(files[i])
            if at[i] != _NONE and at[i] != last:
                continue
            failed = self._facts.failed_at_us.get(ranks[i]) if ranks[i] is not None else None
            if failed is not None and (at[i] == _NONE or failed >= at[i]):
                at[i], spread[i], sources[i] = failed, FAILURE_GRAIN_S, "interpolated"
            else:
                self._bound(i, at, spread, sources, files[i])

    def _bound(self, i: int, at: np.ndarray, spread: np.ndarray, sources: list[str | None], file: str) -> None:
        """A time by the file's last change or its name; else how far off the last stamp may be."""
        changed = self._modified_us.get(file)
        is_within = (
            changed is not None
            and self._start is not None
            and self._end is not None
            and self._start <= changed <= self._end + 60_000_000
        )
        if at[i] == _NONE:
            named = stamp_in(file)
            if is_within and changed is not None and self._start is not None:
                at[i], sources[i], spread[i] = changed, "mtime", (changed - self._start) / 1e6
            elif named is not None:
                at[i], sources[i] = named, "filename"
                spread[i] = max(self._end - named, 0) / 1e6 if self._end else np.nan
            elif self._start is not None and self._end is not None:
                at[i], sources[i], spread[i] = self._start, "interpolated", max(self._end - self._start, 0) / 1e6
            return
        until = changed if is_within else self._end
        if until is not None:
            spread[i] = max(until - at[i], 0) / 1e6

    def _progress(self, batch: pa.RecordBatch, at: np.ndarray, spread: np.ndarray) -> dict[str, pa.Array]:
        """Iteration and phase by the job's time line, for writers that do not print iterations themselves."""
        times, steps = self._facts.timeline
        if not len(times):
            return {}
        own = batch["iteration"]
        lacks = pc.is_null(own).to_numpy(zero_copy_only=False) & (at != _NONE) & (np.nan_to_num(spread, nan=np.inf) <= 60.0)
        index = np.searchsorted(times, at, side="right") - 1
        fill = lacks & (index >= 0)
        if not fill.any():
            return {}
        values = np.where(fill, steps[np.maximum(index, 0)], pc.fill_null(own, 0).to_numpy(zero_copy_only=False))
        has_value = fill | pc.is_valid(own).to_numpy(zero_copy_only=False)
        early = pc.and_(pa.array(fill), pc.is_in(batch["phase"], pa.array(["init", "load"])))
        phases = pc.if_else(early, pa.scalar("train"), batch["phase"])
        return {"iteration": pa.array(values, pa.int64(), mask=~has_value), "phase": phases}
