"""A cheap proof, while rows go by, that they keep the rules of their contract.

Smallest and largest values, words and keys are looked at column by column. Where that proves nothing (a rule is broken,
a key came twice, a rule speaks of several columns), the rows are counted again by `adoption.count_broken`.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.rules import rules_of
from jobs.ingest.adoption import Counted
from schemas.contract import Column, Table

MAX_ROWS = 8_000_000
"""Beyond, the hashes of keys would need much memory."""
MAX_WORDS = 4096
"""Distinct texts of a key's column in one batch; with more, hashing them one by one costs more than it saves."""
_NULL = 0x9E3779B97F4A7C15


class QuickProof:
    """Looks at one table's rows as they are staged."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._n_rules = len(rules_of(table))
        self._n_rows = 0
        self._jobs: set[str] = set()
        self._keys: list[np.ndarray] = []
        self._is_open = not table.checks and not any(column.pattern for column in table.columns)

    def see(self, rows: pa.Table) -> None:
        """Take in some of the rows."""
        self._n_rows += rows.num_rows
        self._is_open = self._is_open and self._n_rows <= MAX_ROWS
        if not self._is_open:
            return
        keys = _keys(rows, self._table.key)
        self._is_open = keys is not None and all(_keeps(column, rows[column.name]) for column in self._table.columns)
        if keys is not None and self._is_open:
            self._keys.append(keys)
            self._jobs.update(pc.unique(rows["job_id"]).to_pylist())

    def counts(self) -> Counted | None:
        """What `adoption.count_broken` would count: no rule is broken. None when that is not proved."""
        keys = np.concatenate(self._keys) if self._is_open and self._keys else np.empty(0, np.uint64)
        self._keys = []
        keys.sort()
        if not len(keys) or bool((keys[1:] == keys[:-1]).any()):
            return None
        return Counted(self._n_rows, (0,) * self._n_rules, (min(self._jobs), max(self._jobs)))


def _keeps(column: Column, values: pa.ChunkedArray) -> bool:
    if not column.nullable and values.null_count:
        return False
    if column.one_of and not set(pc.unique(values).to_pylist()) <= {None, *column.one_of}:
        return False
    if column.minimum is None and column.maximum is None:
        return True
    if column.maximum is not None and pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return False  # DuckDB and Spark take it for the greatest number, Arrow for none
    least, most = pc.min_max(values).values()
    low = column.minimum is None or least.as_py() is None or least.as_py() >= column.minimum
    return low and (column.maximum is None or most.as_py() is None or most.as_py() <= column.maximum)


def _keys(rows: pa.Table, names: tuple[str, ...]) -> np.ndarray | None:
    """A hash of each row's key; None when the key has columns that are not hashed here."""
    mixed = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        hashed = _hashed(rows[name].combine_chunks())
        if hashed is None:
            return None
        mixed = _mix((mixed << np.uint64(1)) ^ hashed)
    return mixed


def _hashed(values: pa.Array) -> np.ndarray | None:
    if pa.types.is_string(values.type):
        encoded = values.dictionary_encode()
        if len(encoded.dictionary) > MAX_WORDS:
            return None
        words = [int.from_bytes(hashlib.blake2b(w.encode(), digest_size=8).digest()) for w in encoded.dictionary.to_pylist()]
        codes = pc.fill_null(encoded.indices, len(words)).to_numpy(zero_copy_only=False)
        return np.array([*words, _NULL], np.uint64)[codes]
    if not pa.types.is_integer(values.type) and not pa.types.is_timestamp(values.type):
        return None
    whole = values.cast(pa.int64())
    numbers = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).view(np.uint64)
    mixed = _mix(numbers)
    return np.where(whole.is_null().to_numpy(zero_copy_only=False), np.uint64(_NULL), mixed) if whole.null_count else mixed


def _mix(values: np.ndarray) -> np.ndarray:
    """Every bit of a number to every bit of its hash (the last steps of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
