"""The report folder: a local one, or any that Arrow can reach by its address (s3://, gs://, hdfs://)."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobs.core.errors import FleetdiffError

STATE = "state.json"
"""What the folder's pages were made from, so that only changed pages are written again."""


def resolved(folder: str) -> str:
    """The folder as workers know it: absolute unless it is an address."""
    return folder if "://" in folder else str(Path(folder).resolve())


def write(folder: str, name: str, text: str) -> int:
    """Write one file whole, or not at all; returns its size in bytes.

    Raises FleetdiffError when the folder cannot be written.
    """
    content = text.encode("utf-8", "replace")
    if "://" in folder:
        from pyarrow import fs

        system, root = fs.FileSystem.from_uri(folder)
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)
        return len(content)
    path = Path(folder, name)
    beside = path.with_name(f".{path.name[:60]}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise FleetdiffError(f"{path}: cannot be written ({error.strerror}); choose another --report folder") from error
    return len(content)


def write_all(folder: str, files: Mapping[str, str]) -> int:
    """Write several files; returns their bytes."""
    return sum(write(folder, name, text) for name, text in files.items())


def remove(folder: str, names: Iterable[str]) -> int:
    """Remove files, those that are there; returns how many. Raises FleetdiffError when one cannot be removed."""
    n_removed = 0
    for name in names:
        try:
            if "://" in folder:
                from pyarrow import fs

                system, root = fs.FileSystem.from_uri(folder)
                system.delete_file(f"{root}/{name}")
            else:
                Path(folder, name).unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FleetdiffError(f"{folder}/{name}: cannot be removed ({error}); remove it by hand") from error
        n_removed += 1
    return n_removed


def read_state(folder: str) -> dict[str, Any]:
    """The state that the last run left; empty when there is none or it cannot be understood."""
    state = _read_json(folder, STATE)
    return state if isinstance(state, dict) else {}


def read_list(folder: str, name: str) -> list[str]:
    """A list of texts in a JSON file; empty when there is none or it cannot be understood."""
    found = _read_json(folder, name)
    return [str(item) for item in found] if isinstance(found, list) else []


def _read_json(folder: str, name: str) -> Any:
    try:
        if "://" in folder:
            from pyarrow import fs

            system, root = fs.FileSystem.from_uri(folder)
            with system.open_input_stream(f"{root}/{name}") as stream:
                return json.loads(stream.read().decode())
        return json.loads(Path(folder, name).read_text("utf-8"))
    except (OSError, ValueError):
        return None
