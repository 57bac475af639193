"""One flight-recorder dump as a file holds it: safely opened, its groups and its progress sorted out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

import orjson

from jobs.adapters.base import Problem
from jobs.adapters.flight_recorder_pickle import MAX_BYTES, CorruptPickleError, UnsafePickleError, plain_data
from jobs.adapters.stacks_samples import plain

_MAX_ENTRIES = 1 << 20
_MAX_RANKS = 1 << 20
_NAME = re.compile(
    r"^(?P<lead>.*?(?:nccl_trace|comm_lib_trace|fr_trace|flight[_-]?recorder|nccl_dump|_?dump|fr).*?)"
    r"(?P<rank>\d{1,7})(?:\.(?:pkl|pickle|json|bin|dump))?(?:\.(?:gz|zst|xz|bz2))?$",
    re.IGNORECASE,
)
_OWN_NAME = re.compile(r"(?:nccl_trace|comm_lib_trace)_rank_|_?dump_", re.IGNORECASE)
_TOLD_RANK = re.compile(r"rank[_\-.]?(\d{1,7})(?![0-9A-Za-z])", re.IGNORECASE)
_LEAD = re.compile(
    r"^.*?(?:nccl_trace|comm_lib_trace|fr_trace|flight[_-]?recorder|nccl_dump|_?dump|fr)[_\-.]?(?:rank)?[_\-.]?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Group:
    """A process group as one rank's dump describes it."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """Name and description, as people know it."""
        return f"{self.name} {self.description}".strip()


@dataclass(frozen=True)
class Dump:
    """The parts of one dump that are used, whatever version wrote it."""

    version: str
    groups: dict[str, Group]
    status: dict[str, Mapping[str, Any]]
    entries: Sequence[Mapping[str, Any]]


def document_in(stream: BinaryIO) -> Any | Problem:
    """The plain data in a pickled or JSON dump, or why there is none."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return Problem("too_long", MAX_BYTES, 1, f"a dump of more than {MAX_BYTES >> 20} MiB is not read")
    if not data.strip():
        return Problem("bad_value", 0, 1, "the dump is empty: its rank was stopped before it could write")
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            return Problem("broken_json", int(getattr(error, "pos", 0)), 1, "the dump is cut off or is not JSON", data[:64])
    try:
        return plain_data(data)
    except UnsafePickleError as error:
        return Problem("unsafe_pickle", error.offset, 1, f"blocked: {error}", data[:64])
    except CorruptPickleError as error:
        return Problem("corrupt_pickle", error.offset, 1, str(error), data[:64])


def dump_of(document: Any) -> Dump | Problem:
    """The dump in a document of any version: newer ones are objects, the first ones were a list of entries."""
    if isinstance(document, list):
        document = {"entries": document, "version": "1"}
    if not isinstance(document, dict) or not ({"entries", "pg_config", "pg_status"} & document.keys()):
        return Problem("bad_type", 0, 1, "not a flight-recorder dump: no entries and no group configuration")
    entries = document.get("entries")
    entries = [e for e in entries if isinstance(e, dict)][:_MAX_ENTRIES] if isinstance(entries, list) else []
    config = document.get("pg_config")
    groups = _groups(config if isinstance(config, dict) else {})
    status = document.get("pg_status")
    by_name = _status_by_name(groups, status if isinstance(status, dict) else {}, entries)
    return Dump(plain(document.get("version"), 32), groups, by_name, entries)


def _groups(config: Mapping[Any, Any]) -> dict[str, Group]:
    found = {}
    for key, value in config.items():
        if isinstance(value, dict):
            name = plain(value.get("name")) or plain(key)
            found[name] = Group(name, plain(value.get("desc")), ranks_of(value.get("ranks")))
    return found


def ranks_of(value: Any) -> tuple[int, ...]:
    """Ranks of a group from a list, or from the text of one; empty when it is neither.

    >>> ranks_of("[0, 2, 4]"), ranks_of("__import__('os')")
    ((0, 2, 4), ())
    """
    if isinstance(value, str):
        return _ranks_in(value)
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_RANKS:
        return ()
    return tuple(r for r in value if isinstance(r, int) and not isinstance(r, bool) and 0 <= r < 1 << 31)


@lru_cache(maxsize=256)
def _ranks_in(text: str) -> tuple[int, ...]:
    """Ranks in the text of a list or tuple. All dumps of a job say the same of the world, which is worked out once."""
    try:
        value = orjson.loads(f"[{text.strip().strip('[]()').rstrip(', ')}]")
    except orjson.JSONDecodeError:
        return ()
    return ranks_of(value)


def _status_by_name(
    groups: Mapping[str, Group], status: Mapping[Any, Any], entries: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Each group's progress by its name.

    The status is kept by a number that counts groups in order of their making; entries say which name has which
    number. A group without entries is found by its place in that order, when both sides have equally many groups
    and the entries do not contradict.
    """
    numbered = [entry.get("pg_id") for entry in entries]
    if not set(map(type, numbered)) <= {int, str}:
        numbered = [None if number is None else str(number) for number in numbered]
    first = dict(zip(reversed(numbered), reversed(entries)))
    known = {str(number): group_of(entry)[0] for number, entry in first.items() if number is not None}
    usable: dict[str, Mapping[str, Any]] = {str(key): value for key, value in status.items() if isinstance(value, dict)}
    by_name = {known[key]: value for key, value in usable.items() if key in known}
    numbers = sorted((key for key in usable if key.isdigit()), key=int)
    names = sorted((name for name in groups if name.isdigit()), key=int)
    if len(numbers) == len(names) == len(usable) == len(groups):
        paired = dict(zip(numbers, names))
        if all(paired.get(number, name) == name for number, name in known.items()):
            by_name |= {name: usable[number] for number, name in paired.items()}
    return by_name


def group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description of an entry's group; the oldest dumps know only its number."""
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return plain(group[0]), plain(group[1]) if len(group) > 1 else ""
    if isinstance(group, str):
        return plain(group), ""
    return plain(entry.get("pg_name")) or plain(entry.get("pg_id")) or "?", ""


def rank_and_host(name: str) -> tuple[int | None, str | None]:
    """Rank and host in a dump's file name: the last digits are the rank, what stands before them is the host.

    Names that are not PyTorch's own may count something else last: there a number after the word rank goes first.

    >>> rank_and_host("nccl_trace_rank_container-node02_5"), rank_and_host("_dump_14"), rank_and_host("x.json")
    ((5, 'container-node02'), (14, None), (None, None))
    >>> rank_and_host("recorder-rank3-step100.json")
    (3, None)
    """
    match = _NAME.match(name)
    if match and _OWN_NAME.search(name):
        host = _LEAD.sub("", match["lead"]).strip("_-. ")
        return int(match["rank"]), host or None
    told = _TOLD_RANK.search(name) or re.search(r"(\d{1,7})(?:\.(?:pkl|pickle|json|bin|dump))?$", name)
    return (int(told[1]) if told else None), None


def is_dump_name(name: str) -> bool:
    """Whether a file is named as PyTorch and its tools name dumps."""
    return _NAME.match(name) is not None


def is_own_name(name: str) -> bool:
    """Whether a file is named as PyTorch itself names dumps, so that it is one whatever its bytes are.

    >>> is_own_name("nccl_trace_rank_3"), is_own_name("_dump_3"), is_own_name("from_node_3.log")
    (True, True, False)
    """
    return _OWN_NAME.match(name) is not None and _NAME.match(name) is not None
