"""Literal findings fused: who is named, how strongly, and who is not."""

import json
import random

import pytest

from ml.fusion.document import text
from ml.fusion.fuse import diagnose
from ml.fusion.node_events import NodeEvent, event_findings
from ml.fusion.types import Baseline, Case, Template
from ml.log_diffs.topology import Finding, Job, Place

NODES = ("n0", "n1", "n2", "n3")
PLACES = tuple(
    Place(
        r, f"n{r // 2}", r % 2, switch=f"leaf{r // 4}", groups={"tp": (r // 2 * 2, r // 2 * 2 + 1), "dp": tuple(range(r % 2, 8, 2))}
    )
    for r in range(8)
)
COVERAGE = {"logs": 1.0, "stacks": 1.0, "operations": 1.0, "metrics": 1.0}


def job(state="FAILED", **more):
    return Job("j", state, 1, {}, 0.0, 200.0, NODES, PLACES, 8, coverage=COVERAGE, **more)


def f(kind, score=0.9, nodes=(), ranks=(), source="logs", **more):
    return Finding(source, "spatial", kind, f"{kind} {nodes} {ranks}", score, tuple(nodes), tuple(ranks), **more)


PROGRESSED = f("progressed", 0.0, iteration=60)
ONSET = f("onset", 0.0, at=100.0, iteration=60, phase="train")
BASE = (Baseline("b", 0.9),)


def fused(*findings, state="FAILED", baselines=BASE, **more):
    return diagnose(Case(job(state), (PROGRESSED, ONSET, *findings), baselines=baselines, **more))


def named(diagnosis, at_least=0.5):
    return [(c.nodes, c.ranks) for c in diagnosis.candidates if c.score >= at_least]


KILLED = f("rank_exit_signal", 0.93, ["n1"], [2], at=100.0)
ECHOES = f("peer_lost", 0.5, NODES, range(8), is_echo=True)
STUCK = f("blocker", 0.9, ["n2"], [5], source="stacks", at=101.0)
BEHIND = f("stopped_first", 0.85, ["n2"], [5], source="operations")
LINK = f("machine_outlier", 0.97, ["n3"], [], source="metrics", at=101.0, subject="network_up")


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([KILLED, ECHOES], [(("n1",), (2,))]),
        ([STUCK, BEHIND, f("wait_timed_out", 0.5, NODES, range(8), is_echo=True)], [(("n2",), (5,))]),
        ([LINK, f("wait_timed_out", 0.5, is_echo=True)], [(("n3",), (6, 7))]),  # a machine: all its ranks
        ([f("no_complaint", 0.62, ["n2"], [5])], []),  # one weak witness is no accusation
        ([f("no_complaint", 0.62, ["n2"], [5]), BEHIND], [(("n2",), (5,))]),  # two of them are
        ([ECHOES], []),
        ([f("node_outlier", 0.9, ["n0"])], [(("n0",), (0, 1))]),
        ([f("slow_worker", 0.9, ["n0"], [0], source="operations"), ECHOES], []),  # a slow rank does not explain a crash
    ],
)
def test_evidence_names_a_place_or_nobody(findings, expected):
    assert named(fused(*findings)) == expected


def test_a_direct_witness_outweighs_effects_elsewhere():
    found = fused(
        KILLED,
        f("machine_outlier", 0.97, ["n3"], source="metrics", at=101.0),
        f("stopped_first", 0.85, ["n0"], [0], source="operations"),
    )
    assert named(found) == [(("n1",), (2,))]


def test_evidence_that_begins_after_the_failure_is_a_consequence():
    late = f("machine_outlier", 0.97, ["n3"], source="metrics", at=160.0)
    assert named(fused(late, ECHOES)) == []


def test_independent_witnesses_add_up_and_repeated_ones_do_not():
    once = fused(BEHIND).candidates[0].score
    twice = fused(BEHIND, f("stopped_first", 0.85, ["n2"], [5], source="operations", iteration=59)).candidates[0].score
    other = fused(BEHIND, STUCK).candidates[0].score
    assert twice == once < other < 1.0


def test_a_finding_on_several_nodes_is_worth_less_for_each():
    one = fused(f("rank_error", 0.9, ["n1"], [2])).candidates[0].score
    three = fused(f("rank_error", 0.9, ["n0", "n1", "n2"], [0, 2, 4])).candidates[0].score
    assert three < one


def test_nodes_under_one_switch_are_named_together_as_well():
    found = fused(
        f("machine_outlier", 0.95, ["n2"], source="metrics", at=101.0),
        f("machine_outlier", 0.95, ["n3"], source="metrics", at=101.0, subject="x"),
    )
    assert ("n2", "n3") in [c.nodes for c in found.candidates]
    assert any("switch leaf1" in e.statement for c in found.candidates for e in c.evidence)


def test_ranks_of_one_parallel_group_carry_its_name():
    found = fused(f("rank_exception", 0.9, ["n1"], [2, 3]))
    assert found.candidates[0].groups == (("tp", (2, 3)),)


def test_what_all_ranks_show_is_global_and_accuses_nobody():
    found = fused(
        f("rank_exception", 0.9, NODES, range(8), is_global=True), f("stopped_first", 0.3, ["n2"], [5], source="operations")
    )
    assert (found.spatial_signal, found.candidates) == ("global", ())


def test_in_a_global_failure_the_first_to_fail_is_a_hint_below_an_accusation():
    found = fused(f("rank_exception", 0.9, NODES, range(8), is_global=True), f("rank_exit_mute", 0.5, ["n2"], [5]))
    assert found.spatial_signal == "global"
    assert [(c.nodes, c.ranks) for c in found.candidates] == [(("n2",), (5,))]
    assert found.candidates[0].score < 0.5


@pytest.mark.parametrize("noise", [KILLED, STUCK, LINK, f("node_outlier", 0.9, ["n0"])])
def test_a_completed_job_accuses_nobody_whatever_its_noise(noise):
    found = fused(noise, state="COMPLETED")
    assert (found.symptom, found.candidates, found.onset, found.spatial_signal) == ("none", (), None, "none")


def test_a_slowdown_is_explained_by_speed_and_machines_not_by_words():
    slow = f("step_time_shift", 0.9, source="operations", iteration=40)
    found = fused(
        slow, f("slow_worker", 0.9, ["n1"], [2, 3], source="operations"), f("rank_exception", 0.9, ["n0"], [0]), state="COMPLETED"
    )
    assert found.symptom == "slowdown"
    assert named(found) == [(("n1",), (2, 3))]


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT"])
def test_a_job_that_was_ended_from_outside_accuses_nobody(state):
    assert named(fused(LINK, state=state)) == []


def test_without_baselines_and_library_scores_are_lower_and_the_diagnosis_says_so():
    full, alone = fused(BEHIND, STUCK), fused(BEHIND, STUCK, baselines=(), has_library=False)
    assert alone.candidates[0].score < full.candidates[0].score
    assert any("no comparable successful job" in note for note in alone.notes)
    assert full.notes == ()


def test_what_could_have_contradicted_and_was_absent_is_said():
    found = fused(KILLED, ECHOES)
    assert any(e.statement.startswith("nothing in the ") and "metrics" in e.statement for e in found.candidates[0].evidence)


def test_a_single_process_has_no_peers():
    alone = Job("j", "FAILED", nodes=("n0",), places=(Place(0, "n0", 0),), world_size=1)
    found = diagnose(Case(alone, (PROGRESSED, f("rank_exception", 0.9, ["n0"], [0]))))
    assert (found.symptom, found.spatial_signal, found.candidates) == ("crash", "not_applicable", ())


def test_a_rank_whose_node_nobody_knows_is_still_named():
    bare = Job("j", "FAILED", world_size=8)
    found = diagnose(Case(bare, (PROGRESSED, f("rank_exit_signal", 0.93, [], [3]))))
    assert [(c.nodes, c.ranks) for c in found.candidates] == [((), (3,))]


def test_the_document_does_not_depend_on_the_order_of_findings():
    findings = [PROGRESSED, ONSET, KILLED, ECHOES, STUCK, BEHIND, LINK, f("node_outlier", 0.9, ["n0"])]
    templates = [Template(f"t{i}", "x", None, 0.5, 1) for i in range(4)]
    seen = set()
    for seed in range(6):
        random.Random(seed).shuffle(findings)
        random.Random(seed).shuffle(templates)
        seen.add(text(diagnose(Case(job(), tuple(findings), tuple(templates), BASE))))
    assert len(seen) == 1


def test_no_candidate_is_called_a_root_cause():
    assert "root cause" not in text(fused(KILLED, STUCK, LINK, ECHOES)).lower()


def test_the_document_has_the_words_of_the_contract():
    document = json.loads(text(fused(KILLED, ECHOES)))
    assert list(document) == [
        "job_id",
        "state",
        "verified",
        "symptom",
        "cause_class",
        "cause_confidence",
        "onset",
        "spatial_signal",
        "candidates",
        "templates",
        "missing",
        "baselines",
        "coverage",
        "versions",
    ]
    assert document["onset"] == {
        "window_start_at": "1970-01-01T00:01:40.000Z",
        "window_end_at": "1970-01-01T00:01:50.000Z",
        "iteration": 60,
        "phase": "train",
    }
    assert list(document["candidates"][0]) == ["score", "nodes", "ranks", "devices", "groups", "evidence"]
    assert list(document["candidates"][0]["evidence"][0]) == ["source", "axis", "statement", "at", "table", "refs"]
    assert document["verified"] is False


@pytest.mark.parametrize(
    ("event", "is_kept"),
    [
        (NodeEvent("n1", "GPU-1", 95.0, "xid", 79, "critical", "GPU has fallen off the bus"), True),
        (
            NodeEvent("n1", None, 199.0 + 300.0, "link_down", None, "critical", "eth0: link down"),
            True,
        ),  # five minutes after the end count
        (NodeEvent("n1", None, 200.0 + 301.0, "link_down", None, "critical", "eth0: link down"), False),
        (
            NodeEvent("n1", None, -401.0, "link_down", None, "critical", "eth0: link down"),
            False,
        ),  # more than ten minutes before the end
        (NodeEvent("elsewhere", None, 150.0, "xid", 79, "critical", "x"), False),
    ],
)
def test_events_count_within_the_attribution_window(event, is_kept):
    found = event_findings(job(), [event])
    assert bool(found) is is_kept
    if event.kind == "xid" and is_kept:
        assert named(fused(*found)) == [(("n1",), (2, 3))]


def test_an_event_on_all_nodes_accuses_nobody():
    events = [NodeEvent(n, None, 150.0, "thermal", None, "critical", "hot") for n in NODES]
    assert all(e.is_global for e in event_findings(job(), events))


@pytest.mark.parametrize(
    ("method", "score", "step", "expected"),
    [
        ("slow_stretch", 0.9, 38, 38),  # the thickest of a slowdown that comes and goes lies behind its beginning
        ("step_time_shift", 0.9, 38, 60),  # a lasting shift is where it is
        ("slow_stretch", 0.3, 38, 60),  # a faint place says nothing
        ("slow_stretch", 0.9, 80, 60),  # nor a later one
    ],
)
def test_a_slowdown_that_comes_and_goes_began_where_its_place_began_to_be_slow(method, score, step, expected):
    course = f("step_time_shift", 0.9, source="operations", subject="step_time")
    place = f("intermittent_pause", score, ["n1"], [2], source="operations", at=80.0, iteration=step)
    onset = f("onset", 0.0, at=100.0, iteration=60, phase="train", subject=method)
    found = diagnose(Case(job("COMPLETED"), (PROGRESSED, onset, course, place), baselines=BASE))
    assert (found.symptom.value, found.onset and found.onset.iteration) == ("slowdown", expected)
