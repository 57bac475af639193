"""Who broke first: literal words of ranks and launchers, and whom they accuse."""

import pytest

from ml.log_diffs.origins import all_findings
from ml.log_diffs.topology import Job, Place
from ml.log_diffs.utterances import Utterance, words_of

NODES = ("n0", "n1", "n2", "n3")
PLACES = tuple(Place(r, f"n{r // 2}", r % 2, role="trainer") for r in range(8))
JOB = Job("j", "FAILED", 1, dict.fromkeys(NODES, 1), 0.0, 200.0, NODES, PLACES, 8)
LOST = "RuntimeError: Connection closed by peer [10.0.0.1]:9. This is typically caused by a remote worker crashing."
WAITED = "RuntimeError: Timed out waiting 25000ms for recv operation to complete"


def said(rank, text, at, node=None, **more):
    return Utterance(
        f"t-{text[:12]}-{rank}",
        text,
        node or f"n{rank // 2}",
        rank,
        "trainer",
        "stderr",
        alert="exception",
        first_at=at,
        uncertainty_s=1.0,
        **more,
    )


def reported(node, local, code, at):
    return Utterance(
        f"exit{code}",
        f"failed (exitcode: {code}) local_rank: {local} (pid: 7) of binary: python",
        node,
        None,
        "launcher",
        "agent",
        alert="signal",
        first_at=at,
    )


def accusations(utterances, job=JOB, last_at=None):
    found = all_findings(job, utterances, last_at or {})
    return {(f.kind, f.nodes, f.ranks) for f in found if f.accuses and f.score >= 0.3}


def test_a_killed_rank_is_accused_and_its_peers_complaints_are_echoes():
    words = [reported("n1", 0, -9, 100.2), *[said(r, LOST, 105.0 + r) for r in range(8) if r != 2]]
    found = all_findings(JOB, words, {})
    assert ("rank_exit_signal", ("n1",), (2,)) in accusations(words)
    assert all(f.is_echo for f in found if f.kind == "peer_lost")
    assert not any(f.accuses and f.nodes and f.nodes != ("n1",) for f in found)


def test_a_signal_long_after_others_failed_is_an_echo():
    words = [said(0, "IndexError: index out of range", 90.0), reported("n1", 0, -9, 120.0)]
    assert ("rank_exit_signal", ("n1",), (2,)) not in accusations(words)
    assert ("rank_exception", ("n0",), (0,)) in accusations(words)


def test_an_abort_by_a_rank_that_waited_for_its_peers_is_an_echo():
    words = [said(3, WAITED, 99.0), reported("n1", 1, -6, 100.0)]
    assert not any(kind == "rank_exit_signal" for kind, _, _ in accusations(words))


def test_the_first_exception_is_the_origin_and_lost_connections_are_not():
    words = [said(1, "IndexError: index out of range in self", 100.0), *[said(r, LOST, 104.0) for r in (2, 3, 4, 5, 6, 7)]]
    assert accusations(words) >= {("rank_exception", ("n0",), (1,))}


def test_an_exception_on_all_ranks_is_global_and_accuses_nobody():
    words = [said(r, "ModuleNotFoundError: No module named 'x'", 10.0) for r in range(8)]
    found = [f for f in all_findings(JOB, words, {}) if f.kind == "rank_exception"]
    assert [(f.is_global, f.accuses) for f in found] == [(True, False)]


def test_time_outs_on_all_but_one_rank_point_at_the_silent_one():
    words = [said(r, WAITED, 125.0) for r in range(8) if r != 5]
    assert accusations(words) == {("no_complaint", ("n2",), (5,))}


def test_time_outs_on_all_ranks_accuse_nobody():
    assert accusations([said(r, WAITED, 125.0) for r in range(8)]) == set()


def test_normal_errors_are_no_origin():
    words = [said(r, "ERROR: gpuGetDeviceCount failed with code 35", 5.0, is_normal=True) for r in range(8)]
    assert accusations(words) == set()


def test_a_node_whose_files_just_end_is_missed():
    words = [
        w for n in (0, 2, 3) for w in (reported(f"n{n}", 0, 1, 130.0), said(2 * n, WAITED, 125.0), said(2 * n + 1, WAITED, 125.0))
    ]
    found = accusations(words)
    assert ("node_without_ending", ("n1",), (2, 3)) in found
    assert ("no_complaint", ("n1",), (2, 3)) in found


@pytest.mark.parametrize(
    ("codes", "accused"),
    [
        ({"n0": 1, "n1": -9, "n2": 1, "n3": 1}, {"n1"}),
        ({"n0": 1, "n1": 1, "n2": 1, "n3": None}, {"n3"}),
        (dict.fromkeys(NODES), set()),  # none ended by itself: the scheduler ended all
        ({"n0": 1, "n1": -9, "n2": None, "n3": 1}, set()),  # half of them: no minority
    ],
)
def test_a_launcher_that_ended_unlike_the_others_is_told(codes, accused):
    job = Job("j", "FAILED", 1, codes, 0.0, 200.0, NODES, PLACES, 8)
    assert {f.nodes[0] for f in all_findings(job, [], {}) if f.kind == "node_exit_differs"} == accused


def test_a_rank_ended_by_sigterm_from_outside_is_an_origin():
    words = [reported("n1", 0, -15, 100.0), *[said(r, LOST, 106.0) for r in range(8) if r != 2]]
    assert ("rank_exit_terminated", ("n1",), (2,)) in accusations(words)


def told_to_end(node, at):
    return Utterance(
        "told", "Received 15 death signal, shutting down workers", node, None, "launcher", "agent", alert="signal", first_at=at
    )


def test_launchers_that_are_all_told_to_end_accuse_nobody():
    found = [f for f in all_findings(JOB, [told_to_end(n, 190.0) for n in NODES], {}) if f.kind == "launcher_terminated"]
    assert [(f.is_global, f.accuses) for f in found] == [(True, False)]


def test_one_launcher_that_is_told_to_end_is_an_origin_unless_the_job_had_failed():
    early = [told_to_end("n1", 100.0), *[said(r, LOST, 106.0) for r in (0, 1, 4, 5, 6, 7)]]
    late = [told_to_end("n1", 190.0), *[said(r, WAITED, 125.0) for r in (0, 1, 4, 5, 6, 7)]]
    assert ("launcher_terminated", ("n1",), (2, 3)) in accusations(early)
    assert not any(kind == "launcher_terminated" for kind, _, _ in accusations(late))


def test_exceptions_of_one_file_for_all_ranks_name_a_kind_and_the_launcher_the_first_rank():
    alone = Job("j", "FAILED", world_size=8)
    words = [
        Utterance(
            "a", "Traceback (most recent call last):\nValueError: too many values", stream="other", alert="exception", first_at=1.0
        ),
        Utterance(
            "b",
            "x\nRoot Cause (first observed failure):\n[0]:\n  time      : 2022-09-24_22:26:35\n  host      : node14\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 4)\n",
            stream="other",
            alert="exit_code",
            first_at=2.0,
        ),
    ]
    found = all_findings(alone, words, {})
    assert [(f.kind, f.nodes, f.ranks) for f in found] == [("rank_exit_mute", ("node14",), (2,)), ("rank_exception", (), ())]


def report(at, stamp, offset_s):
    text = (
        f"x\nRoot Cause (first observed failure):\n[0]:\n  time      : {stamp}\n  host      : n1\n  rank      : 2 (local_rank: 0)\n"
        "  exitcode  : -9 (pid: 4)\n"
    )
    return Utterance("b", text, "n1", None, stream="agent", alert="signal", first_at=at, offset_s=offset_s)


@pytest.mark.parametrize(
    ("first_at", "stamp", "offset_s", "at"),
    [
        (100.5, "1970-01-01_00:01:40", 0.0, 100.5),  # the stamp is finer than whole seconds
        (100.5, "1970-01-01_00:08:40", 420.0, 100.5),  # a clock that is seven minutes ahead, corrected
        (100.5, "1970-01-01_08:01:40", 0.0, 100.5),  # another time zone is not believed
        (160.5, "1970-01-01_00:01:40", 0.0, 100.0),  # reported a minute later
    ],
)
def test_ends_are_timed_by_the_corrected_clock(first_at, stamp, offset_s, at):
    assert words_of(JOB, [report(first_at, stamp, offset_s)]).ends[2].at == pytest.approx(at)


def test_a_node_without_an_exit_code_where_the_others_have_one_never_ended_by_itself():
    job = Job("j", "FAILED", 1, {n: 1 for n in NODES if n != "n2"}, 0.0, 200.0, NODES, PLACES, 8)
    assert ("node_exit_differs", ("n2",), (4, 5)) in accusations([], job)


def test_a_signal_of_which_no_report_says_the_rank_names_the_node():
    report = Utterance(
        "exit", "gn: [launch.py] exits with return code = -9", "n2", None, "launcher", alert="signal", first_at=100.0
    )
    words = [report, *[said(r, LOST, 105.0 + r) for r in range(4)]]
    assert ("node_exit_signal", ("n2",), (4, 5)) in accusations(words)


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: Node failure on n2",
        "scheduler: node n2 is not responding",
        "ORTE has lost communication with remote daemon on n2",
        "node controller: Node n2 NotReady",
    ],
)
def test_a_node_that_others_report_as_gone_is_named(text):
    report = Utterance("gone", text.replace("NotReady", "is NotReady"), "n0", None, "launcher", alert="connection", first_at=100.0)
    found = [f for f in all_findings(JOB, [report], {}) if f.kind == "node_lost"]
    assert [(f.nodes, f.ranks, f.accuses) for f in found] == [(("n2",), (4, 5), True)]


def test_in_a_pod_with_one_rank_its_words_are_that_ranks():
    pods = tuple(f"worker-{r}" for r in range(4))
    job = Job("j", "FAILED", 1, nodes=pods, places=tuple(Place(r, n, 0) for r, n in enumerate(pods)), world_size=4)
    words = [Utterance("k", "KeyError: 'x'", "worker-2", alert="exception", first_at=5.0)]
    words += [Utterance("l", LOST, f"worker-{r}", alert="connection", first_at=7.0) for r in (0, 1, 3)]
    assert ("rank_exception", ("worker-2",), (2,)) in accusations(words, job)
    assert {u.rank for u in words_of(job, words).utterances} == {0, 1, 2, 3}


def test_the_agent_of_a_node_with_one_rank_does_not_speak_for_it():
    job = Job("j", "FAILED", nodes=("n0", "n1"), places=(Place(0, "n0", 0), Place(1, "n1", 0)), world_size=2)
    words = [Utterance("a", "KeyError: 'x'", "n1", None, "launcher", "agent", alert="exception")]
    assert [u.rank for u in words_of(job, words).utterances] == [None]


def test_one_exception_of_unknown_ranks_on_all_nodes_is_global():
    words = [Utterance("k", "KeyError: 'x'", n, alert="exception", first_at=5.0, n_events=2) for n in NODES]
    found = [f for f in all_findings(JOB, words, {}) if f.kind == "rank_exception"]
    assert [(f.is_global, f.score >= 0.5) for f in found] == [(True, True)]


def test_complaints_of_unknown_ranks_are_echoes_as_well():
    words = [
        Utterance("l", LOST, "n1", alert="connection", first_at=7.0),
        Utterance("k", "KeyError: 'x'", "n2", alert="exception", first_at=5.0),
    ]
    found = all_findings(JOB, words, {})
    assert [(f.nodes, f.ranks, f.is_echo) for f in found if f.kind == "peer_lost"] == [(("n1",), (), True)]
    assert ("rank_exception", ("n2",), ()) in accusations(words)
