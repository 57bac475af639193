"""Sentences, node events and drift rows."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from jobs.machine_scores.rows import SCORE_SCHEMA, drift_row, job_rows
from ml.machines.drift import Drift
from ml.machines.ranking import MachineScore
from ml.machines.score import score_job
from ml.machines.series import Series
from schemas import machine_drift, machine_scores
from schemas.contract import discrepancies

AT = 1_700_000_000_000_000
ODD = MachineScore(
    "n3", None, "gpu.power.w", "W", "level", 2.0, 0.75, AT, AT + 600_000_000, 600.0, 300.0, 490.0, 510.0, 7, "m1", "calibrated"
)
USUAL = replace(ODD, node="n1", ratio=0.2, score=0.02, continuity_s=0.0, value=500.0)


def event(node="n3", minutes=2.0, kind="xid", severity="critical", code=79):
    at = datetime.fromtimestamp(AT / 1e6 + minutes * 60, UTC)
    return {"job_id": "j", "node": node, "occurred_at": at, "kind": kind, "severity": severity, "code": code, "message": "…"}


def rows(found, events=(), remarks=()):
    payload = {"rows": [], "usual": {"n3": {"gpu.power.w": -4.0}}, "remarks": list(remarks), "priority": 1,
               "facts": {"n3": {"ranks": [6, 7], "file": "metrics/n3.csv", "seen_s": 3600.0}}}  # fmt: skip
    return job_rows("j", found, [payload], {}, list(events))


def test_a_row_says_machine_metric_window_and_peers():
    odd, usual = rows([ODD, USUAL])
    assert (odd["nodes"], odd["ranks"], odd["machine_rank"], odd["score"]) == (["n3"], [6, 7], 1, 0.75)
    assert odd["statement"] == (
        "n3: gpu.power.w 300 W from 22:13:20 UTC on, 600 s without a break, while 7 peers show 490 to 510 W: "
        "2.0 times the calibrated threshold; no node events are on record for this job."
    )
    assert (usual["score"] < 0.5, usual["at"]) == (True, None)
    assert "does not stand out" in usual["statement"]


def test_a_node_event_in_the_window_raises_and_is_named():
    (odd,) = rows([ODD], [event()])
    assert odd["score"] == pytest.approx(0.875)
    assert odd["n_events"] == 1
    assert "corroborated by its node event xid 79 at 22:15:20" in odd["statement"]


@pytest.mark.parametrize("kind", ["xid", "link_down", "oom_kill", "ecc", "thermal", "lockup"])
def test_events_of_every_kind_of_fault_corroborate(kind):
    (odd,) = rows([ODD], [event(kind=kind, code=None)])
    assert odd["score"] == pytest.approx(0.875)
    assert f"corroborated by its node event {kind} at 22:15:20" in odd["statement"]


def test_a_steep_rise_of_memory_is_named_and_its_oom_kill_raises_it():
    draw = np.random.default_rng(0)
    used = 40e9 + draw.normal(0, 2e8, (6, 3600))
    used[2, 2400:3300] += np.linspace(0, 80e9, 900)  # leaks for a quarter of an hour, then is killed and restarted
    found = score_job([Series(f"n{i}", None, "memory.used", "B", AT, 1.0, own) for i, own in enumerate(used)], {}, {}).rows
    kill = event(node="n2", minutes=55, kind="oom_kill", code=None)
    quiet, told = rows(found)[0], rows(found, [kill])[0]
    assert (quiet["nodes"], quiet["metric"], quiet["score"] >= 0.5) == (["n2"], "memory.used", True)
    assert told["score"] > quiet["score"]
    assert "oom_kill" in told["statement"]


@pytest.mark.parametrize(
    "other", [event(node="n9"), event(minutes=30), event(kind="drain"), event(severity="info")],
    ids=["another machine", "after the window", "no fault", "information"],
)  # fmt: skip
def test_other_events_do_not_raise_and_their_absence_is_said(other):
    (odd,) = rows([ODD], [other])
    assert (odd["score"], odd["n_events"]) == (0.75, 0)
    assert "no event of this node in the window" in odd["statement"]


def test_an_event_lifts_a_machine_that_nearly_stood_out_and_no_usual_one():
    near = replace(ODD, ratio=0.9, score=0.4)
    assert rows([near], [event()])[0]["score"] == pytest.approx(0.7)
    assert rows([replace(USUAL, node="n3")], [event()])[0]["score"] == pytest.approx(0.02)


def test_a_difference_that_others_share_accuses_none_even_with_an_event():
    (odd,) = rows([replace(ODD, is_shared=True, score=0.4)], [event()])
    assert odd["score"] == pytest.approx(0.4)
    assert "accuses none" in odd["statement"]


def test_what_was_not_compared_is_one_row_without_a_machine():
    (remark,) = rows([], remarks=["m: 2 machines of role unknown, too few to compare"])
    assert (remark["nodes"], remark["score"], remark["kind"]) == ([], 0.0, "machines_not_compared")
    assert "too few to compare" in remark["statement"]


def test_rows_fit_the_contract():
    assert discrepancies(machine_scores.TABLE, SCORE_SCHEMA) == []
    assert set(rows([ODD])[0]) == set(machine_scores.TABLE.names)


def test_a_drift_row_is_a_sentence():
    row = drift_row(Drift("n3", "clock", 0.8, -4.2, 1.0, 12, 36000.0), [datetime(2026, 1, 1, tzinfo=UTC)])
    assert row["statement"] == "n3 is constantly off: clock 4.2 spreads below its peers on average, 100% of 10.0 h in 12 jobs."
    assert set(row) == set(machine_drift.TABLE.names)
