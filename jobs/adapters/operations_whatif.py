"""Straggler traces: a parquet file of operations with its layout beside it as YAML, as StragglerAnalysis does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from jobs.core.errors import FleetdiffError, NotFoundError
from ml.stragglers.trace import REQUIRED, Layout
from ml.stragglers.words import CODE

COLUMNS = (*REQUIRED, "rank", "gmc")
"""Every column of the format. A file that lacks one is another format, or was cut."""

_SIZES = ("dp_size", "pp_size", "tp_size", "dsp_size", "vpp_size", "world_size")
_NEEDED_SIZES = ("dp_size", "pp_size", "world_size")
_META_LIMIT = 1 << 20


def read_layout(path: Path) -> Layout:
    """The layout of a meta file. Raises NotFoundError when it is absent, FleetdiffError when it cannot be used."""
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file; give the YAML file with dp_size, pp_size … of the trace")
    try:
        with path.open("rb") as stream:
            meta = yaml.safe_load(stream.read(_META_LIMIT))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise FleetdiffError(f"{path}: not YAML ({_one_line(error)})") from None
    if not isinstance(meta, Mapping):
        raise FleetdiffError(f"{path}: must hold keys and values (dp_size: 4 …)")
    sizes: dict[str, int] = {}
    for name in _SIZES:
        value = meta.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise FleetdiffError(f"{path}: {name} must be a whole number, not {str(value)[:50]!r}")
        sizes[name] = value
    missing = [name for name in _NEEDED_SIZES if name not in sizes]
    if missing:
        raise FleetdiffError(f"{path}: {', '.join(missing)} missing; write the sizes of the parallel layout")
    return Layout(**sizes)


def read_columns(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a trace as arrays, `optype` as codes of the known types (-1 for others).

    Raises NotFoundError when the file is absent, FleetdiffError when it cannot be read or lacks a column.
    """
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file; give a parquet file of operations")
    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
            table = None if missing else file.read(columns=list(REQUIRED), use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FleetdiffError(f"{path}: not a readable parquet file ({_one_line(error)})") from None
    if table is None:
        raise FleetdiffError(f"{path}: columns are missing: {', '.join(missing)}; a trace needs {', '.join(COLUMNS)}")
    return {name: _array(path, name, table[name].combine_chunks()) for name in REQUIRED}


def _array(path: Path, name: str, column: pa.Array) -> np.ndarray[Any, Any]:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if column.null_count:
        raise FleetdiffError(f"{path}: column {name} has {column.null_count} missing values; fill or drop these rows")
    if name == "optype":
        return _codes(path, column)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise FleetdiffError(f"{path}: column {name} holds {column.type}, not numbers")
    return _numbers(column)


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """A column without nulls as an array, without the conversion that loads pandas (most of a second)."""
    return np.from_dlpack(column) if len(column) else np.array([], column.type.to_pandas_dtype())


def _codes(path: Path, column: pa.Array) -> np.ndarray[Any, Any]:
    if not pa.types.is_dictionary(column.type):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise FleetdiffError(f"{path}: column optype holds {column.type}, not names of operation types")
        column = column.dictionary_encode()
    words = [str(word) for word in column.dictionary.to_pylist()]
    known = np.array([CODE.get(word, -1) for word in words] or [-1], dtype=np.int64)  # type: ignore[call-overload]
    return np.asarray(known[_numbers(column.indices)])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
