"""Who stopped first and who left something out, from literal time lines."""

import pandas as pd

from ml.log_diffs.progress import behind_findings, late_findings, left_out_findings, step_times
from ml.log_diffs.topology import Job, Place

JOB = Job("j", "FAILED", nodes=("n0", "n1"), places=tuple(Place(r, f"n{r // 2}", r % 2) for r in range(4)))
ORDER = ("data", "forward", "backward", "allreduce", "optimizer")


def line(n_steps, stop=None, without=()):
    """Operations of four ranks, a tenth of a second each; `stop` maps a rank to its last (step, operation), `without` drops some."""
    rows = []
    for rank in range(4):
        for step in range(n_steps):
            for place, name in enumerate(ORDER):
                if (rank, step, name) in without:
                    continue
                at = step + 0.1 * place + 0.001 * rank
                rows.append((rank, step, name, 1, at, at + 0.1))
                if stop and stop.get(rank) == (step, name):
                    break
            if stop and rank in stop and stop[rank][0] == step:
                break
    return pd.DataFrame(rows, columns=["rank", "step", "name", "n_calls", "started_at", "ended_at"])


def test_the_rank_that_never_began_the_step_in_which_the_others_wait_stopped_first():
    found = behind_findings(JOB, line(20, {0: (10, "backward"), 1: (9, "optimizer"), 2: (10, "backward"), 3: (10, "backward")}))
    assert [(f.ranks, f.nodes, f.iteration) for f in found] == [((1,), ("n0",), 9)]
    assert found[0].score > 0.8


def test_ranks_that_stop_at_the_same_place_accuse_nobody():
    assert behind_findings(JOB, line(20, dict.fromkeys(range(4), (10, "backward")))) == []


def test_a_majority_behind_are_victims():
    assert (
        behind_findings(JOB, line(20, {0: (10, "backward"), 1: (9, "optimizer"), 2: (9, "optimizer"), 3: (9, "optimizer")})) == []
    )


def test_a_rank_without_any_operation_stopped_before_all_others():
    rows = line(1)
    assert [f.ranks for f in behind_findings(JOB, rows[rows["rank"] != 2])] == [(2,)]


def test_a_collective_left_out_in_one_step_is_found_and_its_step_named():
    found = left_out_findings(JOB, line(20, without={(1, 14, "allreduce")}))
    assert [(f.ranks, f.iteration, f.subject) for f in found] == [((1,), 14, "allreduce")]


def test_the_last_step_of_a_rank_is_no_evidence_of_leaving_out():
    assert left_out_findings(JOB, line(20, {1: (19, "backward")})) == []


def test_an_operation_that_all_leave_out_is_not_left_out():
    assert left_out_findings(JOB, line(20, without={(r, 14, "optimizer") for r in range(4)})) == []


def test_an_operation_that_a_rank_seldom_has_is_not_left_out():
    # rank 0 alone writes checkpoints, in every fifth step
    rows = line(20)
    saves = pd.DataFrame([(0, s, "checkpoint", 1, s + 0.6, s + 0.7) for s in range(0, 20, 5)], columns=rows.columns)
    assert left_out_findings(JOB, pd.concat([rows, saves])) == []


def test_step_times_run_from_start_to_start_and_leave_out_the_last():
    assert step_times(line(4))["step_time_s"].round(6).tolist() == [1.0, 1.0, 1.0]


def test_the_rank_for_which_all_others_wait_in_a_long_step_came_last():
    # in step 12 rank 1 computes for nine seconds; the others stand in the collective until it comes
    rows = line(20)
    is_long, is_one = rows["step"] == 12, rows["rank"] == 1
    rows.loc[is_long & is_one & (rows["name"] == "forward"), "ended_at"] += 9.0
    rows.loc[is_long & ~is_one & (rows["name"] == "allreduce"), "ended_at"] += 9.0
    assert [(f.ranks, f.nodes) for f in late_findings(JOB, rows, [12])] == [((1,), ("n0",))]


def test_a_step_that_is_long_for_all_accuses_nobody():
    rows = line(20)
    rows.loc[rows["step"] == 12, "ended_at"] += 9.0
    assert late_findings(JOB, rows, [12]) == []
