"""`fleetdiff flight-recorder DIR` on bare folders."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.cli.flight_recorder import command
from jobs.core.errors import FleetdiffError, NotFoundError, UsageError


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


@pytest.mark.parametrize(
    ("make", "error"),
    [(lambda p: p / "absent", NotFoundError), (lambda p: p, NotFoundError), (lambda p: (p / "f").write_text("x") and p / "f", UsageError)],
    ids=["no such folder", "nothing in it", "a file"],
)  # fmt: skip
def test_a_users_mistake_is_one_line(tmp_path: Path, make: object, error: type[FleetdiffError]) -> None:
    with pytest.raises(error) as raised:
        run(make(tmp_path))
    assert "\n" not in str(raised.value)


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
