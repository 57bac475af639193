"""`fleetdiff flight-recorder DIR` on bare folders."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.cli.flight_recorder import command


def run(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(command, [str(folder), *options], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


def write(folder: Path, ranks: dict[int, int], lost: tuple[int, ...] = (), world: int = 4) -> None:
    """Dumps of ranks whose newest collective is given; the newest of all is open, older ones are completed."""
    newest = max(ranks.values())
    for rank, last in ranks.items():
        if rank in lost:
            continue
        entries = [
            {"record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n, "p2p_seq_id": 0,
             "profiling_name": "nccl:all_reduce", "time_created_ns": 1758610505592849034 + n, "input_sizes": [[4]],
             "input_dtypes": ["Float"], "state": "scheduled" if n == newest else "completed", "is_p2p": False}
            for n in range(5, last + 1)
        ]  # fmt: skip
        document = {
            "version": "2.9", "entries": entries,
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
            "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": -1,
                                "last_completed_collective": min(last, newest - 1)}},
        }  # fmt: skip
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))


def test_the_answer_has_the_words_of_the_contract(tmp_path: Path) -> None:
    write(tmp_path, {0: 9, 1: 9, 2: 8, 3: 9})
    found = json.loads(run(tmp_path, "--json"))
    assert (found["n_ranks"], found["faulty_ranks"], found["syndrome"], found["problems"]) == (4, [2], "noncomm_hang", [])
    first = found["collectives"][0]
    assert (first["group"], first["sequence"], first["op"], first["missing_ranks"], first["mismatches"]) == (
        "0 default_pg", 9, "nccl:all_reduce", [2], [],
    )  # fmt: skip


def test_a_lost_an_empty_and_a_hostile_dump_are_named_and_the_rest_is_used(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(8), 9), lost=(5,), world=8)
    (tmp_path / "nccl_trace_rank_6").write_bytes(b"")
    marker = tmp_path / "was-here"
    (tmp_path / "nccl_trace_rank_7").write_bytes(f"cposix\nsystem\n(S'touch {marker}'\ntR.".encode())
    found = json.loads(run(tmp_path, "--json"))
    assert not marker.exists()
    assert found["n_ranks"] == 8
    assert sorted(found["faulty_ranks"]) == [5, 6, 7]
    said = " | ".join(found["problems"])
    for words in (
        "nccl_trace_rank_6: bad_value",
        "nccl_trace_rank_7: unsafe_pickle",
        "3 of 8 ranks left no readable dump: 5, 6, 7",
    ):
        assert words in said


def test_the_page_names_rank_group_and_collective(tmp_path: Path) -> None:
    write(tmp_path, {0: 9, 1: 9, 2: 8, 3: 9})
    page = run(tmp_path)
    assert re.search(r"rank 2 .* never came", page)
    assert "0 default_pg #9 nccl:all_reduce: missing 2, waiting 0-1/3" in page


def old_version(rank: int) -> bytes:
    """The first dumps were a bare list of entries, without groups and versions."""
    entry = {"record_id": 0, "pg_id": 0, "collective_seq_id": 8, "profiling_name": "nccl:all_reduce", "state": "completed",
             "time_created_ns": 1758610505592849034 + rank}  # fmt: skip
    return pickle.dumps([entry], 2)


BAD = [
    # what is wrong with rank 3's dump, its bytes from those of a whole one, what is said of it
    ("empty", lambda whole: b"", "bad_value"),
    ("a truncated pickle", lambda whole: whole[: len(whole) // 2], "corrupt_pickle"),
    ("truncated JSON", lambda whole: b'{"version": "2.9", "entries": [{"record_id"', "broken_json"),
    ("an older version", lambda whole: old_version(3), "version 1 without group configuration"),
    ("a pickle of another program", lambda whole: pickle.dumps({"weights": [1.0, 2.0]}, 2), "bad_type"),
    ("a pickle that calls", lambda whole: b"cposix\nsystem\n(S'true'\ntR.", "unsafe_pickle"),
    ("a pickle that asks for a great memo", lambda whole: b"\x80\x02K\x01r\xff\xff\xff\xff.", "corrupt_pickle"),
]


@pytest.mark.parametrize(("what", "spoil", "said"), BAD, ids=[b[0] for b in BAD])
def test_a_dump_that_cannot_be_used_is_named_and_the_others_are_judged(
    tmp_path: Path, what: str, spoil: Callable[[bytes], bytes], said: str
) -> None:
    write(tmp_path, dict.fromkeys(range(8), 9) | {5: 8}, world=8)
    path = tmp_path / "nccl_trace_rank_3"
    path.write_bytes(spoil(path.read_bytes()))
    found = json.loads(run(tmp_path, "--json"))
    assert any(problem.startswith("nccl_trace_rank_3") and said in problem for problem in found["problems"])
    assert set(found["faulty_ranks"]) <= {3, 5}
    assert found["faulty_ranks"][0] == 5 or said == "version 1 without group configuration"
    assert found["n_ranks"] == 8


@pytest.mark.parametrize("experiment", ["gpu_error_1st", "lock_gil_2nd"])
def test_the_injected_ranks_are_named_first(shared_data: Path, experiment: str) -> None:
    folder = shared_data / "flight_recorder" / experiment
    truth = re.search(r"Fault ranks: \[([\d, ]+)\]", (folder / "fault_injection.log").read_text())
    assert truth is not None
    injected = [int(rank) for rank in truth[1].split(",")]
    found = json.loads(run(folder, "--json"))
    assert sorted(found["faulty_ranks"][: len(injected)]) == injected
    assert found["n_ranks"] == 16
    assert found["syndrome"] == "noncomm_hang"
