"""What operations say of a job: jobs written by hand, and the lab's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobs.adapters.base import FileContext, Placement, Rows
from jobs.adapters.operations_timeline import TimelineAdapter
from ml.operations.job import Expected, Place, analyse_job

N_STEPS = 60


def made(work, transfer=lambda rank, step: 0.02, n_ranks=8, seed=7, places=None):
    """Steps of forward, all-reduce and optimizer; `work(rank, step)` is the forward's length in seconds, with 5 % noise."""
    random = np.random.default_rng(seed)
    now, rows = np.zeros(n_ranks), []
    for step in range(N_STEPS):
        begin = now.copy()
        for rank in range(n_ranks):
            now[rank] += work(rank, step) * (1 + 0.05 * random.random())
            rows.append((rank, step, "forward", begin[rank], now[rank]))
        latest = now.max()
        for rank in range(n_ranks):
            end = latest + transfer(rank, step)
            rows.append((rank, step, "dp-allreduce", now[rank], end))
            now[rank] = end + 0.01
            rows.append((rank, step, "optimizer", end, now[rank]))
    kinds = {"forward": ("forward", "host"), "dp-allreduce": ("collective", "collective"), "optimizer": ("optimizer", "host")}
    frame = pd.DataFrame(rows, columns=["rank", "step", "name", "start", "end"])
    return frame.assign(
        kind=[kinds[n][0] for n in frame["name"]], layer=[kinds[n][1] for n in frame["name"]], parent=None,
        started_us=frame["start"] * 1e6, duration_us=(frame["end"] - frame["start"]) * 1e6,
        group=[n[:2] if n.startswith("dp") else None for n in frame["name"]],
    )  # fmt: skip


def place(n_ranks=8):
    everyone = list(range(n_ranks))
    return Place({r: f"n{r // 2}" for r in everyone}, dict.fromkeys(everyone, "trainer"), {r: {"dp": everyone} for r in everyone})


def accusing(found):
    return [f for f in found.findings if f.score >= 0.5 and f.nodes]


def test_equal_ranks_are_not_accused():
    assert accusing(analyse_job(made(lambda rank, step: 0.1), place())) == []


def test_a_slow_node_is_found_with_its_ranks_operation_and_onset():
    found = analyse_job(made(lambda rank, step: 0.16 if rank in (4, 5) and step >= 30 else 0.1), place())
    worst = accusing(found)[0]
    assert (worst.nodes, worst.ranks, worst.operation, worst.layer) == (("n2",), (4, 5), "forward", "host")
    assert worst.iteration == 30
    assert worst.share_last > 0.9
    assert worst.excess_s == pytest.approx(0.06, rel=0.2)
    assert found.step_times.onset == 30


def test_a_slow_rank_is_told_from_its_neighbour_on_the_node():
    worst = accusing(analyse_job(made(lambda rank, step: 0.2 if rank == 3 else 0.1), place()))[0]
    assert (worst.nodes, worst.ranks, worst.iteration) == (("n1",), (3,), None)  # slow from the start: no onset


def test_those_that_wait_longest_are_not_the_suspects():
    found = analyse_job(made(lambda rank, step: 0.05 if rank == 1 else 0.2 if rank == 6 else 0.1), place())
    assert [f.ranks for f in accusing(found)] == [(6,)]


def test_pauses_in_one_step_of_ten_are_found():
    found = analyse_job(made(lambda rank, step: 0.4 if rank == 2 and step % 10 == 5 else 0.1), place())
    (pause,) = accusing(found)
    assert (pause.kind, pause.ranks) == ("intermittent_pause", (2,))


def test_everybody_slower_accuses_nobody():
    found = analyse_job(made(lambda rank, step: 0.2 if step >= 30 else 0.1), place())
    assert accusing(found) == []
    kinds = {f.kind: f for f in found.findings}
    assert (kinds["operation_rise"].operation, kinds["operation_rise"].iteration) == ("forward", 30)
    assert kinds["step_time_rise"].is_global


def test_a_group_of_ranks_on_many_nodes_is_one_group():
    groups = {r: {"dp": list(range(8)), "mp": [r % 2, r % 2 + 2, r % 2 + 4, r % 2 + 6]} for r in range(8)}
    where = Place(place().nodes, place().roles, groups)
    found = analyse_job(made(lambda rank, step: 0.2 if rank % 2 else 0.1), where)
    (worst,) = [f for f in found.findings if f.score >= 0.5 and f.axis == "spatial"]
    assert (worst.group_kind, worst.ranks, worst.nodes) == ("mp", (1, 3, 5, 7), ())


# A rank of a ring receives over the slow link and ends last, the others by their distance from it. gloo hands blocks down
# to the next lower rank, NCCL up to the next higher one.
LINKS = [
    # library, receiver, sending node, receiving node
    ("gloo", 3, "n2", "n1"),
    ("nccl", 4, "n1", "n2"),
    ("gloo", 7, "n0", "n3"),  # around the end of the ring
    ("nccl", 0, "n3", "n0"),
]


@pytest.mark.parametrize(("backend", "receiver", "sends", "receives"), LINKS)
def test_a_slow_link_is_placed_by_the_rank_that_ends_last(backend, receiver, sends, receives):
    def transfer(rank, step):
        return 0.5 - 0.03 * min((rank - receiver) % 8, (receiver - rank) % 8) if step >= 25 else 0.02

    found = analyse_job(made(lambda rank, step: 0.1, transfer), replace(place(), backend=backend))
    links = [f for f in found.findings if f.kind == "slow_link"]
    assert [(f.nodes, f.score >= 0.5) for f in links] == [((sends,), True), ((receives,), False)]
    assert {f.iteration for f in links} == {25}
    assert {f.layer for f in links} == {"host"}


def test_transfer_that_is_slow_for_all_alike_accuses_nobody():
    found = analyse_job(made(lambda rank, step: 0.1, lambda rank, step: 0.3 if step >= 25 else 0.02), place())
    assert accusing(found) == []
    assert next(f for f in found.findings if f.kind == "slow_transfer").is_global


def test_a_job_slower_than_its_baselines_says_so_without_a_place():
    found = analyse_job(made(lambda rank, step: 0.2), place(), Expected((0.15, 0.16)))
    slower = next(f for f in found.findings if f.kind == "slower_than_baselines")
    assert (slower.axis, slower.nodes) == ("cross_job", ())
    assert "1.5" in slower.statement


def test_a_rank_without_a_trace_is_noted():
    rows = made(lambda rank, step: 0.1)
    found = analyse_job(rows[rows["rank"] != 7], place())
    assert found.notes == ("1 ranks left no operations, the first is rank 7",)


def test_the_what_if_of_a_time_line_names_the_slow_worker():
    found = analyse_job(made(lambda rank, step: 0.2 if rank == 3 else 0.1), place())
    assert found.ranks[found.what_if.worst_workers[0].dp_rank] == 3
    assert found.what_if.cause == "worker"
    assert found.what_if.is_faithful


def lab(shared_data: Path, job: str):
    folder = shared_data / "lab" / "archive" / job
    record = json.loads((folder / "job.json").read_text())["ranks"]
    placements = tuple(Placement(r["rank"], r["node"]) for r in record)
    parts = []
    for path in sorted((folder / "traces").glob("timeline_rank*.jsonl")):
        with path.open("rb") as stream:
            for rows in TimelineAdapter().parse(stream, FileContext(job, path.name, placements=placements)):
                parts += [pd.DataFrame(dict(rows.columns))] if isinstance(rows, Rows) else []
    where = Place(
        {r["rank"]: r["node"] for r in record}, {r["rank"]: r["role"] for r in record}, {r["rank"]: r["groups"] for r in record}
    )
    return analyse_job(pd.concat(parts, ignore_index=True), where)


def truths(shared_data: Path):
    return [json.loads(path.read_text()) for path in sorted((shared_data / "lab" / "truth").glob("*.json"))]


def test_the_lab_s_slow_nodes_come_first_with_layer_and_onset(shared_data):
    slow = [t for t in truths(shared_data) if t["symptom"] == "slowdown"]
    assert slow
    for truth in slow:
        worst = accusing(lab(shared_data, truth["job_id"]))[0]
        assert list(worst.nodes) == truth["faulty_nodes"], truth["fault"]
        assert list(worst.ranks) == truth["faulty_ranks"], truth["fault"]
        assert worst.layer == "host", truth["fault"]
        assert abs(worst.iteration - truth["onset_iteration"]) <= 5, truth["fault"]


def test_the_lab_s_healthy_repeats_accuse_nobody(shared_data):
    healthy = [t for t in truths(shared_data) if t["fault"] == "none"]
    assert len(healthy) >= 6
    for truth in healthy:
        assert accusing(lab(shared_data, truth["job_id"])) == [], truth["job_id"]
