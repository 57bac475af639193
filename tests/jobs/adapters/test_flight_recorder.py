"""Flight-recorder dumps: every form that they come in, and what must not happen when one is hostile."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path

import pytest

from jobs.adapters.base import FileContext, Problem, Rows, Tally
from jobs.adapters.flight_recorder import ADAPTERS
from jobs.adapters.flight_recorder_dump import rank_and_host, ranks_of
from jobs.adapters.flight_recorder_pickle import CorruptPickleError, UnsafePickleError, plain_data

ADAPTER = ADAPTERS[0]


def entry(**changes: object) -> dict[str, object]:
    return {
        "record_id": 7, "pg_id": 1, "process_group": ("35", "TENSOR_MODEL_PARALLEL_GROUP"), "collective_seq_id": 12,
        "p2p_seq_id": 0, "op_id": 12, "profiling_name": "nccl:all_reduce", "time_created_ns": 1758610505592849034,
        "input_sizes": [[4, 8]], "input_dtypes": ["BFloat16"], "output_sizes": [[4, 8]], "output_dtypes": ["BFloat16"],
        "state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": False,
        "timeout_ms": 180000, "is_p2p": False,
        "frames": [{"name": "all_reduce", "filename": "/x/torch/distributed/c.py", "line": 9}, {"name": "step", "filename": "t.py", "line": 3}],
    } | changes  # fmt: skip


def dump(*entries: dict[str, object], **changes: object) -> dict[str, object]:
    return {
        "version": "2.9", "nccl_version": "2.27.3",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                      "35": {"name": "35", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 3, "last_started_collective": -1, "last_completed_collective": 3},
                      "1": {"last_enqueued_collective": 12, "last_started_collective": -1, "last_completed_collective": 11}},
        "entries": list(entries),
    } | changes  # fmt: skip


def read(data: bytes, name: str = "_dump_1") -> list[object]:
    return list(ADAPTER.parse(io.BytesIO(data), FileContext("job", f"traces/{name}")))


def rows_of(parsed: list[object]) -> list[dict[str, object]]:
    return [
        {name: values[i] for name, values in part.columns.items()}
        for part in parsed
        if isinstance(part, Rows)
        for i in range(len(part))
    ]


@pytest.mark.parametrize("write", [lambda d: pickle.dumps(d, 2), lambda d: pickle.dumps(d, 4), lambda d: json.dumps(d).encode()],
                         ids=["pickle 2", "pickle 4", "json"])  # fmt: skip
def test_pickle_and_json_give_the_same_rows(write: object) -> None:
    data = write(dump(entry()))
    assert ADAPTER.sniff("traces/_dump_1", data) >= 0.9
    first, *groups = rows_of(read(data))
    assert (first["rank"], first["record_id"], first["group"], first["sequence"], first["op"], first["state"]) == (
        1, 7, "35 TENSOR_MODEL_PARALLEL_GROUP", 12, "nccl:all_reduce", "scheduled",
    )  # fmt: skip
    assert (first["input_sizes"], first["input_dtypes"], first["last_enqueued"], first["last_completed"]) == (
        "[[4,8]]",
        '["BFloat16"]',
        12,
        11,
    )
    assert first["frames"] == ["step (t.py:3)", "all_reduce (/x/torch/distributed/c.py:9)"]
    assert first["created_at"].isoformat() == "2025-09-23T06:55:05.592849+00:00"
    assert [(g["record_id"], g["group"], g["group_ranks"], g["op"], g["last_enqueued"]) for g in groups] == [
        (-1, "0 default_pg", [0, 1, 2, 3], None, 3),
        (-2, "35 TENSOR_MODEL_PARALLEL_GROUP", [0, 1], None, 12),
    ]


def test_a_rank_with_an_empty_buffer_still_says_how_far_it_came_in_each_group() -> None:
    parsed = read(pickle.dumps(dump(), 2))
    assert [(r["group"], r["last_enqueued"]) for r in rows_of(parsed)] == [
        ("0 default_pg", 3),
        ("35 TENSOR_MODEL_PARALLEL_GROUP", 12),
    ]
    assert (parsed[-1].n_read, parsed[-1].n_understood) == (0, 0)


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("_dump_14", 14, None),
        ("nccl_trace_rank_7", 7, None),
        ("comm_lib_trace_rank_12", 12, None),
        ("nccl_trace_rank_container-node02_5", 5, "container-node02"),
        ("nccl_trace_rank_gpu003_5.pkl", 5, "gpu003"),
        ("comm_lib_trace_rank_3.json", 3, None),
    ],
)
def test_rank_and_host_are_read_from_the_name(name: str, rank: int, host: str | None) -> None:
    assert rank_and_host(name) == (rank, host)


OLDER = [
    ("a list of entries", [entry(process_group=None, pg_id=0, collective_seq_id=None, seq_id=4)], 4),
    ("no status and no configuration", {"version": "1.5", "entries": [entry(collective_seq_id=None, seq_id=4)]}, 4),
    ("an entry without half of its fields", {"version": "2.0", "entries": [{"collective_seq_id": 4, "state": "started"}]}, 4),
]


@pytest.mark.parametrize(("what", "document", "sequence"), OLDER, ids=[o[0] for o in OLDER])
def test_older_versions_are_read_for_what_they_have(what: str, document: object, sequence: int) -> None:
    assert [r["sequence"] for r in rows_of(read(pickle.dumps(document, 2)))] == [sequence]


@pytest.mark.parametrize("op", ["gloo:all_reduce", "xccl:broadcast", "ncclx:_all_gather_base", "mpi:barrier"])
def test_other_back_ends_are_read(op: str) -> None:
    assert rows_of(read(pickle.dumps(dump(entry(profiling_name=op)), 2)))[0]["op"] == op


class Exploit:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", ["alone", "inside a dump", "as a group's ranks"])
def test_a_hostile_pickle_is_blocked_without_side_effect(tmp_path: Path, protocol: int, place: str) -> None:
    target = tmp_path / "was-here"
    evil: object = Exploit(target)
    if place == "inside a dump":
        evil = dump(entry(frames=[evil]))
    elif place == "as a group's ranks":
        evil = dump(pg_config={"0": {"name": "0", "ranks": f"__import__('os').system('touch {target}')"}})
    parsed = read(pickle.dumps(evil, protocol))
    assert not target.exists()
    if place != "as a group's ranks":
        assert [p.reason for p in parsed if isinstance(p, Problem)] == ["unsafe_pickle"]
        assert not [p for p in parsed if isinstance(p, Rows)]
    assert isinstance(parsed[-1], Tally)


BOMBS = [
    ("a memo slot far away", b"\x80\x02]r\xff\xff\xff\x7f.", (UnsafePickleError, CorruptPickleError)),
    ("a number of a megabyte", b"\x80\x02\x8b\x00\x00\x10\x00" + b"\x01" * (1 << 20) + b".", UnsafePickleError),
    ("more text than there is", b"\x80\x02X\xff\xff\xff\x7fabc.", CorruptPickleError),
    ("an object from outside", b"\x80\x02K\x01Q.", UnsafePickleError),
    ("cut in the middle", pickle.dumps(dump(entry()), 2)[:200], CorruptPickleError),
    ("no pickle at all", b"\x00\x01\x02", CorruptPickleError),
]


@pytest.mark.parametrize(("what", "data", "error"), BOMBS, ids=[b[0] for b in BOMBS])
def test_pickles_that_ask_for_too_much_or_end_early_are_refused(what: str, data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        plain_data(data)


def test_tuples_nested_beyond_use_are_refused_before_they_are_hashed() -> None:
    nested: object = (1, 2)
    for _ in range(60):
        nested = (nested, nested)
    with pytest.raises(UnsafePickleError):
        plain_data(pickle.dumps({"x": nested}, 2))


def test_plain_data_of_every_kind_comes_through_whole() -> None:
    kept = {"a": [1, -2, 2.5, None, True, "ü", b"b", (1, "x"), {"n": 1 << 60}], "s": {1, 2}, "e": ((), [], {})}
    for protocol in range(4, 6):
        assert plain_data(pickle.dumps(kept, protocol)) == kept


EMPTY_AND_BROKEN = [
    ("an empty file", b"", "bad_value"),
    ("JSON cut in the middle", json.dumps(dump(entry())).encode()[:100], "broken_json"),
    ("JSON of another program", b'{"pg_status_of": "something else"}', "bad_type"),
    ("a pickle of something else", pickle.dumps(["x", 3], 2), None),
]


@pytest.mark.parametrize(("what", "data", "reason"), EMPTY_AND_BROKEN, ids=[e[0] for e in EMPTY_AND_BROKEN])
def test_empty_and_broken_dumps_are_named(what: str, data: bytes, reason: str | None) -> None:
    parsed = read(data)
    assert [p.reason for p in parsed if isinstance(p, Problem)] == ([reason] if reason else [])
    assert not [r for r in rows_of(parsed) if r["op"]]


def test_ranks_of_a_group_are_read_from_text_and_never_evaluated() -> None:
    assert ranks_of("[0, 2, 4]") == (0, 2, 4)
    assert ranks_of("(1,)") == (1,)
    for hostile in ("__import__('os')", "[x for x in ()]", "[" * 10_000, "9" * 30, None, 3):
        assert ranks_of(hostile) == ()


def test_dumps_of_the_shared_experiments_give_the_groups_of_all_ranks(shared_data: Path) -> None:
    from ml.collectives.groups import groups_from_pg_config

    folder = shared_data / "flight_recorder" / "lock_gil_2nd"
    labels = [
        (str(row["group"]), row["group_ranks"])
        for rank in range(16)
        for row in rows_of(read((folder / f"_dump_{rank}").read_bytes(), f"_dump_{rank}"))
        if row["group_ranks"]
    ]
    groups = groups_from_pg_config(labels)
    assert sorted(groups) == list(range(16))
    assert (groups[10]["tp"], groups[10]["pp"], groups[10]["dp"]) == ([10, 11], [2, 6, 10, 14], [8, 10])
