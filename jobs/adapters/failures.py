"""Ranks that failed, as torchrun's agent and its error files say: who, when, with which exit code."""

from __future__ import annotations

import re
from typing import Any

from jobs.adapters.headers import HeaderReader

_FIELD = re.compile(r"^\s{1,8}(time|host|rank|exitcode|error_file|traceback)\s{0,12}: ?(.{0,2000})$")
_RANK = re.compile(r"(\d{1,6}) \(local_rank: (\d{1,6})\)")
_EXIT = re.compile(r"(-?\d{1,6}) \(pid: (\d{1,9})\)")
_ENTRY = re.compile(r"^\[(\d{1,6})\]:$")


def failures_in(text: str, headers: HeaderReader) -> list[dict[str, Any]]:
    """One entry a failed rank of a torchrun summary: rank, local_rank, node, exit_code, pid, at_us, is_first, error."""
    found: list[dict[str, Any]] = []
    is_root, entry = False, None
    for line in text.split("\n"):
        if line.startswith("Root Cause"):
            is_root = True
        elif _ENTRY.match(line.strip()):
            entry = dict.fromkeys(("rank", "local_rank", "node", "exit_code", "pid", "at_us", "error"), None) | {
                "is_first": is_root
            }
            found.append(entry)
        elif entry is not None and (field := _FIELD.match(line)):
            _take(entry, field.group(1), field.group(2).strip(), headers)
    return [entry for entry in found if entry["rank"] is not None]


def _take(entry: dict[str, Any], name: str, value: str, headers: HeaderReader) -> None:
    if name == "time":
        entry["at_us"] = headers.read(value).at_us
    elif name == "host":
        entry["node"] = value or None
    elif name == "rank" and (ranks := _RANK.match(value)):
        entry["rank"], entry["local_rank"] = int(ranks.group(1)), int(ranks.group(2))
    elif name == "exitcode" and (code := _EXIT.match(value)):
        entry["exit_code"], entry["pid"] = int(code.group(1)), int(code.group(2))
    elif name == "traceback":
        entry["error"] = value or None
