"""Kinds of victim, and the first to go among nodes."""

from __future__ import annotations

import pytest

from ml.echoes import VictimKind, first_failures, origin_of, victim_kind

MESSAGES = [
    ("RuntimeError: [pair.cc:561] Connection closed by peer [10.77.0.10]:56713. Check the remote worker", VictimKind.CONNECTION_CLOSED),
    ("RuntimeError: Read error [10.77.0.11]:38324: Connection reset by peer", VictimKind.CONNECTION_CLOSED),
    ("BrokenPipeError: [Errno 32] Broken pipe", VictimKind.CONNECTION_CLOSED),
    ("Sending process 20392 closing signal SIGTERM", VictimKind.TERMINATED_BY_AGENT),
    ("SignalException: Process 77 got signal: 15", VictimKind.TERMINATED_BY_AGENT),
    ("RuntimeError: [unbound_buffer.cc:78] Timed out waiting 25000ms for recv operation to complete", VictimKind.TIMED_OUT_WAITING),
    ("DistStoreError: Timed out after 1801 seconds waiting for clients", VictimKind.TIMED_OUT_WAITING),
    ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST) ran for 600081 milliseconds",
     VictimKind.ABORTED_BY_WATCHDOG),
    ("IndexError: index out of range in self", None),
    ("torch.OutOfMemoryError: CUDA out of memory", None),
    ("iteration 20/120 | lm loss: 6.5", None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "kind"), MESSAGES, ids=[m[0][:40] for m in MESSAGES])
def test_messages_tell_what_kind_of_victim_printed_them(message: str, kind: VictimKind | None) -> None:
    assert victim_kind(message) is kind


def block(host: str, time: str, rank: int, code: str) -> list[str]:
    return [
        "train.py FAILED", "Failures:", "[1]:", "  time      : 2026-11-30_00:00:00", f"  rank      : {rank + 1} (local_rank: 1)",
        "Root Cause (first observed failure):", "[0]:", f"  time      : 2026-11-30_{time}", f"  host      : {host}",
        f"  rank      : {rank} (local_rank: 0)", f"  exitcode  : {code}", "  error_file: <N/A>",
    ]  # fmt: skip


def test_the_first_failure_of_all_nodes_is_the_origin_and_the_others_follow() -> None:
    logs = {
        "n0": block("n0", "03:24:29", 0, "1 (pid: 5)"),
        "n1": block("n1", "03:24:25", 2, "-9 (pid: 6)  (SIGKILL)"),
        "n2": block("n2", "03:24:36", 4, "1 (pid: 7)"),
    }
    origin = origin_of(first_failures(logs), {0: VictimKind.CONNECTION_CLOSED, 4: VictimKind.CONNECTION_CLOSED}, 3)
    assert origin is not None
    assert (origin.node, origin.rank, origin.exit_code, origin.lead_s, origin.followers) == ("n1", 2, -9, 4.0, ("n0", "n2"))
    assert origin.score >= 0.8


def test_victims_that_end_at_one_moment_have_no_origin_among_them() -> None:
    logs = {f"n{i}": block(f"n{i}", f"03:36:0{i}", i, "1 (pid: 5)") for i in range(3)}
    assert origin_of(first_failures(logs), dict.fromkeys(range(3), VictimKind.TIMED_OUT_WAITING)) is None


def test_two_nodes_that_fail_on_their_own_at_one_moment_accuse_neither() -> None:
    logs = {"n0": block("n0", "03:24:25", 0, "1 (pid: 5)"), "n1": block("n1", "03:24:26", 2, "1 (pid: 6)")}
    assert origin_of(first_failures(logs)) is None


def test_a_report_in_one_event_of_many_lines_is_read_too() -> None:
    found = first_failures({"n1": ["\n".join(block("n1", "03:24:25", 2, "-11 (pid: 6)"))]})
    assert [(f.node, f.rank, f.local_rank, f.exit_code) for f in found] == [("n1", 2, 0, -11)]


def test_long_hostile_lines_take_linear_time() -> None:
    import time

    began = time.monotonic()
    for text in ("a" * 100_000, "timed " * 50_000, "recv " * 50_000, "connection " * 50_000):
        victim_kind(text)
    first_failures({"n": ["Root Cause (first observed failure):", "  time : " + "9" * 100_000]})
    assert time.monotonic() - began < 1.0
