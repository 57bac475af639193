"""Hand-made stack sets: the same four ranks in every format, with the paths and rank sets that must come out.

Ranks 0, 1 and 3 wait in all_reduce, rank 2 reads a batch. Every set says this in its own words.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from jobs.adapters.base import FileContext, Problem, Rows, Tally
from jobs.adapters.stacks import ADAPTERS
from jobs.stacks.folder import samples_of
from ml.collectives.ranks import notation
from ml.stacks.merged import main_trie
from ml.stacks.samples import Snapshot

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAIT = [("<module>", "/workspace/train.py", 227), ("all_reduce", C10D, 4181)]
READ = [("<module>", "/workspace/train.py", 191), ("read", "/workspace/data.py", 40)]
STACKS = {0: WAIT, 1: WAIT, 2: READ, 3: WAIT}

# path from the outside, ranks in it, ranks not in it
EXPECTED = [
    (("<module> (train.py:191)",), "@2|0-1/3"),
    (("<module> (train.py:191)", "read (data.py:40)"), "@2|0-1/3"),
    (("<module> (train.py:227)",), "@0-1/3|2"),
    (("<module> (train.py:227)", "all_reduce (torch/distributed/distributed_c10d.py:4181)"), "@0-1/3|2"),
]


def py_spy_frames(stack: list[tuple[str, str, int]]) -> list[dict[str, object]]:
    secret = [{"name": "token", "addr": 1, "arg": True, "repr": "'hf_secret'"}]
    return [
        {"name": f, "filename": p, "module": None, "short_filename": p.split("/")[-1], "line": n, "locals": secret}
        for f, p, n in reversed(stack)
    ]


def py_spy_thread(stack: list[tuple[str, str, int]]) -> dict[str, object]:
    return {
        "pid": 10, "thread_id": 1401, "thread_name": "MainThread", "os_thread_id": 10, "active": False,
        "owns_gil": False, "frames": py_spy_frames(stack), "process_info": None,
    }  # fmt: skip


def envelope(rank: int) -> str:
    return json.dumps(
        {
            "timestamp": "2026-11-30T03:19:59.934+00:00", "node": f"n{rank // 2}", "rank": rank, "process_type": "trainer",
            "pid": 10 + rank, "threads": [py_spy_thread(STACKS[rank])],
        }
    )  # fmt: skip


def py_spy(rank: int) -> str:
    return json.dumps([py_spy_thread(STACKS[rank])])


def py_spy_text(rank: int) -> str:
    frames = "\n".join(
        f"    {f} ({p}:{n})\n        Arguments:\n            token: 'hf_secret'" for f, p, n in reversed(STACKS[rank])
    )
    return f'Process 10: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread 10 (idle): "MainThread"\n{frames}\n'


def pystack(rank: int) -> str:
    frames = "\n".join(f'    (Python) File "{p}", line {n}, in {f}\n        code(here)' for f, p, n in STACKS[rank])
    return f"Traceback for thread 10 (python) [] (most recent call last):\n{frames}\n"


def deeptrace(rank: int) -> str:
    threads = [{"thread_id": 10, "thread_name": "MainThread",
                "stack_frames": [f'File "{p}", line {n}, in {f}\n    code(here)' for f, p, n in STACKS[rank]]}]  # fmt: skip
    return json.dumps([[{"pid": 10, "ppid": 1, "type": 1, "threads": threads, "rank": f"RANK{rank}", "local_rank": f"RANK{rank}"}]])


def probing(rank: int) -> str:
    return json.dumps(
        [{"PyFrame": {"file": p, "func": f, "lineno": n, "locals": {"token": "hf_secret"}}} for f, p, n in reversed(STACKS[rank])]
    )


def faulthandler(rank: int) -> str:
    frames = "\n".join(f'  File "{p}", line {n} in {f}' for f, p, n in reversed(STACKS[rank]))
    return f"Current thread 0x00007f0000000001 (most recent call first):\n{frames}\n"


def gdb(rank: int) -> str:
    frames = "\n".join(
        f"#{i}  0x00007f00deadbeef in {f} (secret=hf_secret) at {p}:{n}" for i, (f, p, n) in enumerate(reversed(STACKS[rank]))
    )
    return f'Thread 1 (Thread 0x7f0000000001 (LWP 10) "python"):\n{frames}\n'


def folded(rank: int) -> str:
    return ";".join(f"{f} ({p}:{n})" for f, p, n in STACKS[rank]) + " 1\n"


def speedscope(rank: int) -> str:
    frames = [{"name": f, "file": p, "line": n} for f, p, n in STACKS[rank]]
    profile = {"type": "sampled", "name": "MainThread", "samples": [[0, 1]], "weights": [1]}
    return json.dumps(
        {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": frames}, "profiles": [profile]}
    )


FORMATS = [
    ("stack_envelope", envelope, "stacks/rank{}_pid10_T0.json"),
    ("py_spy_json", py_spy, "stacks/rank{}_pid10_T0.json"),
    ("py_spy_text", py_spy_text, "stacks/rank{}_T0.txt"),
    ("pystack_text", pystack, "stacks/rank{}.txt"),
    ("deeptrace_processes", deeptrace, "stacks/processes{}.json"),
    ("probing_callstacks", probing, "stacks/rank-{}.json"),
    ("faulthandler_text", faulthandler, "stacks/rank{}.log"),
    ("gdb_text", gdb, "stacks/rank_{}.bt"),
    ("folded_stacks", folded, "stacks/rank{}.folded"),
    ("speedscope", speedscope, "stacks/rank{}.speedscope.json"),
]


def read(path: str, data: bytes) -> tuple[str, list[object]]:
    """The adapter that is surest, and all that it yields."""
    best = max(ADAPTERS, key=lambda adapter: adapter.sniff(path, data[:65536]))
    assert best.sniff(path, data[:65536]) >= 0.5
    return best.name, list(best.parse(io.BytesIO(data), FileContext("job", path)))


@pytest.mark.parametrize(("name", "write", "path"), FORMATS, ids=[f[0] for f in FORMATS])
def test_every_format_gives_the_same_paths_and_rank_sets(name: str, write: Callable[[int], str], path: str) -> None:
    samples = []
    for rank in STACKS:
        found, parsed = read(path.format(rank), write(rank).encode())
        assert found == name
        tally = parsed[-1]
        assert isinstance(tally, Tally)
        assert (tally.n_read, tally.n_understood) == (1, 1)
        samples += [s for rows in parsed if isinstance(rows, Rows) for s in samples_of(rows)]
    trie = main_trie(Snapshot("", tuple(samples)))
    assert [(node.path, node.notation) for node in trie.nodes] == EXPECTED
    assert "hf_secret" not in repr(samples)


def test_probing_holds_all_ranks_in_one_file_with_null_for_a_rank_that_gave_nothing() -> None:
    document = "[" + ",".join(probing(rank) if rank != 3 else "null" for rank in STACKS) + "]"
    _, parsed = read("stacks/all.json", document.encode())
    rows = next(p for p in parsed if isinstance(p, Rows))
    assert rows.columns["rank"] == [0, 1, 2, 3]
    assert rows.columns["frames"][3] == []


def test_flame_text_is_read_back_as_one_thread_a_rank() -> None:
    text = "a (f.py:1)@0-3|;b (f.py:2)@0-1/3|2 1\na (f.py:1)@0-3|;c (f.py:9)@2|0-1/3 1\n"
    _, parsed = read("stacks/merged.folded", text.encode())
    rows = next(p for p in parsed if isinstance(p, Rows))
    by_rank = dict(zip(rows.columns["rank"], rows.columns["frames"]))
    assert by_rank == {r: ["a (f.py:1)", "c (f.py:9)" if r == 2 else "b (f.py:2)"] for r in range(4)}
    assert notation([0, 1, 3], [2]) == "@0-1/3|2"


def test_processes_of_other_kinds_keep_their_kind() -> None:
    worker = json.loads(deeptrace(1))
    worker[0][0]["type"] = 2
    _, parsed = read("stacks/p.json", json.dumps(worker).encode())
    assert next(p for p in parsed if isinstance(p, Rows)).columns["process_type"] == ["dataloader"]
    text = pystack(0).replace("(python)", "(pt_data_worker)")
    _, parsed = read("stacks/rank0.txt", text.encode())
    assert next(p for p in parsed if isinstance(p, Rows)).columns["process_type"] == ["dataloader"]


BAD = [
    # what is wrong, file name, bytes, reason
    ("cut in the middle", "stacks/rank0_T0.json", envelope(0)[:300].encode(), "broken_json"),
    ("envelope of a process that could not be sampled", "stacks/rank0_T0.json",
     b'{"timestamp": "2026-11-30T03:19:59Z", "rank": 0, "process_type": "trainer", "error": "ptrace: permission denied"}', "bad_value"),
    ("no thread begins", "stacks/rank0.folded", b"not a stack at all;x\nq;r 1\n", "bad_value"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "path", "data", "reason"), BAD, ids=[b[0] for b in BAD])
def test_what_cannot_be_read_is_named(what: str, path: str, data: bytes, reason: str) -> None:
    adapters = [a for a in ADAPTERS if a.sniff(path, data) > 0] or [a for a in ADAPTERS if a.name == "folded_stacks"]
    best = max(adapters, key=lambda a: a.sniff(path, data))
    parsed = list(best.parse(io.BytesIO(data), FileContext("job", path)))
    assert [p.reason for p in parsed if isinstance(p, Problem)][:1] == [reason]
    assert isinstance(parsed[-1], Tally)


def test_a_process_that_could_not_be_sampled_is_a_row_without_frames() -> None:
    data = b'{"rank": 5, "pid": 7, "process_type": "trainer", "threads": []}'
    _, parsed = read("stacks/rank5_pid7_T0.json", data)
    rows = next(p for p in parsed if isinstance(p, Rows))
    assert (rows.columns["rank"], rows.columns["frames"], rows.columns["is_active"]) == ([5], [[]], [None])


@pytest.mark.parametrize("size", [10_000, 100_000])
def test_hostile_lines_take_linear_time(size: int) -> None:
    import time

    lines = [
        "Thread 1 (" + "a" * size,
        '    File "' + "x" * size,
        "    f (" + "(" * size + ":1)",
        "a;" * size + " 1",
        "#0 " + "x" * size,
    ]
    data = ("\n".join(lines) + "\n").encode()
    began = time.monotonic()
    for adapter in ADAPTERS:
        adapter.sniff("stacks/x.txt", data[:65536])
        list(adapter.parse(io.BytesIO(data), FileContext("job", "stacks/x.txt")))
    assert time.monotonic() - began < 2.0
