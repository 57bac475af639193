"""The symptom from states, silence, words and speed: one row a case."""

import pytest

from ml.fusion.symptoms import symptom_of
from ml.fusion.types import Case
from ml.log_diffs.topology import Finding, Job


def f(kind, score=0.9, **more):
    return Finding(more.pop("source", "logs"), "spatial", kind, more.pop("statement", kind), score, **more)


PROGRESSED = f("progressed", 0.0, iteration=60)
SILENT = f("no_progress", 0.8)
CRASHED = f("rank_exception", ranks=(1,), nodes=("n1",))
KILLED = f("rank_exit_signal", nodes=("n1",), ranks=(2,), statement="rank 2 on n1 was ended by SIGKILL")
WAITED = f("wait_timed_out", 0.5, is_echo=True)
LOST = f("peer_lost", 0.5, is_echo=True)
SLOW = f("step_time_shift", 0.9, source="operations")
GROWN = f("machine_outlier", 0.8, source="metrics", nodes=("n1",), subject="memory_rss_bytes")


@pytest.mark.parametrize(
    ("state", "findings", "symptom"),
    [
        # a job that went well is silent about its noise
        ("COMPLETED", [], "none"),
        ("COMPLETED", [PROGRESSED, CRASHED], "none"),
        ("COMPLETED", [PROGRESSED, SLOW], "slowdown"),
        ("COMPLETED", [f("slow_worker", 0.8, source="operations", nodes=("n1",))], "slowdown"),
        ("COMPLETED", [f("slow_worker", 0.4, source="operations", nodes=("n1",))], "none"),
        ("COMPLETED", [f("loss_nonfinite", 0.95)], "loss_nonfinite"),
        # states that say it outright
        ("NODE_FAIL", [PROGRESSED, WAITED], "node_failure"),
        ("OUT_OF_MEMORY", [PROGRESSED, KILLED], "oom"),
        # the first that happened
        ("FAILED", [PROGRESSED, CRASHED, LOST], "crash"),
        ("FAILED", [PROGRESSED, KILLED, LOST], "crash"),
        ("FAILED", [PROGRESSED, f("node_lost", 0.85, nodes=("n1",)), LOST], "node_failure"),
        (
            "FAILED",
            [PROGRESSED, f("node_without_ending", 0.8, nodes=("n1",)), f("machine_silent", 0.2, nodes=("n1",)), LOST],
            "node_failure",
        ),
        ("FAILED", [PROGRESSED, f("node_without_ending", 0.8, nodes=("n1",)), LOST], "crash"),
        ("FAILED", [PROGRESSED, f("node_exit_signal", 0.8, nodes=("n1",)), LOST], "crash"),
        ("FAILED", [PROGRESSED, KILLED, GROWN], "oom"),
        ("FAILED", [PROGRESSED, f("alert_oom", 0.85), CRASHED], "oom"),
        ("FAILED", [PROGRESSED, f("loss_nonfinite", 0.95), CRASHED], "loss_nonfinite"),
        ("FAILED", [PROGRESSED, SILENT, WAITED], "hang"),
        ("FAILED", [PROGRESSED, WAITED], "comm_timeout"),
        ("FAILED", [PROGRESSED, LOST], "crash"),
        ("FAILED", [CRASHED, LOST], "launch_failure"),
        ("FAILED", [f("rank_exception", is_global=True)], "launch_failure"),
        ("FAILED", [WAITED], "launch_failure"),
        (
            "FAILED",
            [PROGRESSED, f("node_without_ending", nodes=("n1",)), f("node_exit_differs", nodes=("n1",)), WAITED, SILENT],
            "node_failure",
        ),
        ("FAILED", [PROGRESSED, f("node_exit_differs", nodes=("n1",)), WAITED, SILENT], "hang"),
        ("FAILED", [PROGRESSED], "undetermined"),
        # ended from outside
        ("CANCELLED", [PROGRESSED], "cancelled"),
        ("PREEMPTED", [PROGRESSED], "cancelled"),
        ("CANCELLED", [PROGRESSED, SILENT], "hang"),
        ("FAILED", [PROGRESSED, f("launcher_terminated", is_global=True)], "cancelled"),
        ("TIMEOUT", [PROGRESSED], "time_limit"),
        ("TIMEOUT", [PROGRESSED, SLOW], "slowdown"),
        ("TIMEOUT", [PROGRESSED, SILENT], "hang"),
        ("UNKNOWN", [PROGRESSED, SILENT], "undetermined"),
    ],
)
def test_the_symptom_is_what_a_user_saw_first(state, findings, symptom):
    assert symptom_of(Case(Job("j", state), tuple(findings))) == symptom
