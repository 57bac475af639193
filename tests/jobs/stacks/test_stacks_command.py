"""`fleetdiff stacks DIR` on bare folders."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.cli.stacks import command
from jobs.core.errors import NotFoundError

C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAIT = [("<module>", "/workspace/train.py", 227), ("all_reduce", C10D, 4181)]
READ = [("<module>", "/workspace/train.py", 191)]


def run(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(command, [str(folder), *options], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


def write(folder: Path, rank: int, stack: list[tuple[str, str, int]], tag: str = "T0", second: int = 0) -> Path:
    frames = [{"name": f, "filename": p, "line": n, "locals": None} for f, p, n in reversed(stack)]
    thread = {"pid": 10 + rank, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 10 + rank, "active": False,
              "owns_gil": False, "frames": frames}  # fmt: skip
    document = {"timestamp": f"2026-11-30T03:20:{second:02d}+00:00", "node": f"n{rank // 2}", "rank": rank,
                "process_type": "trainer", "pid": 10 + rank, "threads": [thread]}  # fmt: skip
    path = folder / f"rank{rank}_pid{10 + rank}_{tag}.json"
    path.write_text(json.dumps(document))
    return path


def write_hang(folder: Path, n_ranks: int = 4, odd: int = 2) -> None:
    for number, second in enumerate((0, 3, 6)):
        for rank in range(n_ranks):
            write(folder, rank, READ if rank == odd else WAIT, f"T{second}", 10 + 3 * number)


def test_paths_come_with_their_ranks_and_the_blocking_rank_first(tmp_path: Path) -> None:
    write_hang(tmp_path)
    found = json.loads(run(tmp_path, "--json"))
    assert found["n_ranks"] == 4
    assert [s["tag"] for s in found["snapshots"]] == ["T0", "T3", "T6"]
    assert [(p["path"][-1], p["has_ranks"], p["missing_ranks"], p["n"]) for p in found["paths"]] == [
        ("<module> (train.py:191)", [2], [0, 1, 3], 1),
        ("<module> (train.py:227)", [0, 1, 3], [2], 3),
        ("all_reduce (torch/distributed/distributed_c10d.py:4181)", [0, 1, 3], [2], 3),
    ]
    assert (found["findings"][0]["ranks"], found["findings"][0]["kind"]) == ([2], "outside_collective")
    assert found["folded"].splitlines()[0] == "<module> (train.py:191)@2|0-1/3 1"
    assert found["problems"] == []


def test_the_page_has_flames_notation(tmp_path: Path) -> None:
    write_hang(tmp_path)
    page = run(tmp_path)
    assert "all_reduce (torch/distributed/distributed_c10d.py:4181) @0-1/3|2" in page
    assert "rank 2 (n1) stands in <module> (train.py:191) while 3 of 4 wait in all_reduce" in page


def test_the_picture_is_written(tmp_path: Path) -> None:
    write_hang(tmp_path)
    run(tmp_path, "--svg", str(tmp_path / "out.svg"), "--snapshot", "T3")
    tree = ET.parse(tmp_path / "out.svg").getroot()  # noqa: S314 - our own output
    assert "Merged stacks T3: 4 ranks" in [e.text for e in tree.iter() if e.tag.endswith("title")]


def test_what_is_cut_off_or_of_another_program_is_named_and_the_rest_is_used(tmp_path: Path) -> None:
    write_hang(tmp_path)
    whole = (tmp_path / "rank0_pid10_T0.json").read_bytes()
    (tmp_path / "rank9_pid19_T0.json").write_bytes(whole[:200])
    (tmp_path / "rank8_pid18_T0.json").write_bytes(b"")
    (tmp_path / "java.txt").write_text('"main" #1 prio=5 tid=0x1 runnable\n   at java.lang.Thread.run(Thread.java:1)\n')
    found = json.loads(run(tmp_path, "--json"))
    assert found["n_ranks"] == 4
    assert any(p.startswith("rank9_pid19_T0.json: broken_json") for p in found["problems"])
    assert "rank8_pid18_T0.json: empty" in found["problems"]


def test_files_that_do_not_say_their_rank_are_numbered_and_that_is_said(tmp_path: Path) -> None:
    for name, stack in (("a", WAIT), ("b", READ), ("c", WAIT)):
        text = "".join(f"    {f} ({p}:{n})\n" for f, p, n in reversed(stack))
        (tmp_path / f"{name}.txt").write_text(f'Process 1: python train.py\nPython v3.11\n\nThread 1 (idle): "MainThread"\n{text}')
    found = json.loads(run(tmp_path, "--json"))
    assert [p["has_ranks"] for p in found["paths"]] == [[1], [0, 2], [0, 2]]
    assert found["problems"] == ["no file says its rank: numbered in order, 0 is a.txt, 2 is c.txt"]


def test_a_snapshot_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    write_hang(tmp_path)
    with pytest.raises(NotFoundError, match="T0, T3, T6"):
        run(tmp_path, "--snapshot", "T9")


def test_64_ranks_take_a_second_or_two(tmp_path: Path) -> None:
    write_hang(tmp_path, 64, 17)
    began = time.process_time()
    found = json.loads(run(tmp_path, "--json"))
    assert time.process_time() - began < 2.0
    assert found["findings"][0]["ranks"] == [17]
