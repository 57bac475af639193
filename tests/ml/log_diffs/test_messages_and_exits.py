"""Whom a message speaks of, which exception it tells of, and which ends of processes it reports."""

import time

import pytest

from ml.log_diffs.exits import exits_in, normal_code, signal_name
from ml.log_diffs.messages import Voice, raised, voice

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 227, in <module>\n    dist.all_reduce(flat)\n'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        # one's own trouble
        (TRACEBACK + "IndexError: index out of range in self", Voice.ORIGIN),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", Voice.ORIGIN),
        ("OSError: [Errno 28] No space left on device", Voice.ORIGIN),
        ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Terminated.", Voice.ORIGIN),
        ("RuntimeError: DataLoader timed out after 60 seconds", Voice.ORIGIN),
        ("botocore.exceptions.ReadTimeoutError: Read timeout on https://s3.example", Voice.ORIGIN),
        # a peer went away
        (
            TRACEBACK + "RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.1]:80. The remote worker crashed.",
            Voice.CASCADE,
        ),
        ("RuntimeError: recv failed: Connection reset by peer", Voice.CASCADE),
        ("BrokenPipeError: [Errno 32] Broken pipe", Voice.CASCADE),
        ("torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3", Voice.CASCADE),
        (TRACEBACK + "HorovodInternalError: shut down. This was caused by an exception on one of the ranks", Voice.CASCADE),
        (TRACEBACK + "XlaRuntimeError: UNAVAILABLE: The tasks are unhealthy (stopped sending heartbeats)", Voice.CASCADE),
        # a peer did not come
        (TRACEBACK + "RuntimeError: Timed out waiting 25000ms for recv operation to complete", Voice.WAITING),
        (
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 ms before timing out.",
            Voice.WAITING,
        ),
        (
            TRACEBACK + "RuntimeError: stream synchronize failed, code 507048\nEI0002: The wait of the Notify register times out."
            " Reason: no record from remote rank.",
            Voice.WAITING,
        ),
        (
            TRACEBACK + "KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
            "ConnectionResetError: Connection reset by peer",
            Voice.ORIGIN,
        ),
        # the launcher ended it or sums up
        ("Sending process 12 closing signal SIGTERM", Voice.TEARDOWN),
        ("Received 15 death signal, shutting down workers", Voice.TEARDOWN),
        (TRACEBACK + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", Voice.TEARDOWN),
        # nothing is told
        ("iteration 5/ 120 | lm loss: 6.55 | grad norm: 0.39 |", Voice.PLAIN),
        ("saving checkpoint at iteration 20", Voice.PLAIN),
    ],
)
def test_a_message_speaks_of_its_writer_of_a_peer_or_of_the_launcher(message, expected):
    assert voice(message) == expected


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (TRACEBACK + "KeyError: 'targets'", "KeyError", "'targets'"),
        (TRACEBACK + "FileNotFoundError: no shard", "FileNotFoundError", "no shard"),
        (
            "[rank3]: " + TRACEBACK.replace("\n", "\n[rank3]: ") + "json.decoder.JSONDecodeError: Expecting value",
            "JSONDecodeError",
            "Expecting value",
        ),
        (
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            "gaierror",
            "[Errno -3] Temporary failure in name resolution",
        ),
        # in a chain the first one happened, the second followed
        (
            TRACEBACK
            + "ZeroDivisionError: division by zero\n\nDuring handling of the above exception, another exception occurred:\n\n"
            + TRACEBACK
            + "RuntimeError: worker died",
            "ZeroDivisionError",
            "division by zero",
        ),
        # DeepSpeed raises the bare class
        (TRACEBACK + "Exception: Current loss scale already at minimum", "Exception", "Current loss scale already at minimum"),
        (
            "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  sizes differ",
            "EnforceNotMet",
            "sizes differ",
        ),
    ],
)
def test_the_first_exception_of_a_message_is_told_by_class_and_text(message, kind, text):
    found = raised(message)
    assert found is not None
    assert (found.kind, found.text) == (kind, text)


def test_a_message_without_exception_raises_nothing():
    assert raised("iteration 5/ 120 | lm loss: 6.55") is None


TORCHRUN = """failed
Failures:
[1]:
  time      : 2026-11-30_03:24:25
  host      : n1
  rank      : 3 (local_rank: 1)
  exitcode  : -15 (pid: 20392)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_03:24:25
  host      : n1
  rank      : 2 (local_rank: 0)
  exitcode  : -9 (pid: 20390)  (SIGKILL)
"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        # rank, local rank, code, named first by the launcher
        (TORCHRUN, [(3, 1, -15, False), (2, 0, -9, True)]),
        ("failed (exitcode: -11) local_rank: 0 (pid: 7) of binary: /usr/bin/python", [(None, 0, -11, True)]),
        ("srun: error: n7: tasks 3-4,9: Killed", [(3, None, -9, False), (4, None, -9, False), (9, None, -9, False)]),
        ("srun: error: n7: task 5: Exited with exit code 137", [(5, None, -9, False)]),
        (
            "mpirun noticed that process rank 3 with PID 12 on node n2 exited on signal 11 (Segmentation fault).",
            [(3, None, -11, False)],
        ),
        # DeepSpeed prints the command of the process that failed, Lightning and spawn the process alone
        ("['python', '-u', 'a.py', '--local_rank=2', '--deepspeed'] exits with return code = -11", [(None, 2, -11, True)]),
        ("[rank: 3] Child process with PID 12 terminated with code -9. Forcefully terminating all others", [(3, None, -9, False)]),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGBUS", [(None, 1, -7, False)]),
        ("ERROR: composer.cli.launcher: Rank 5 crashed with exit code -9.", [(5, None, -9, False)]),
        ("CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.", [(None, None, -9, False)]),
        ("all is well", []),
    ],
)
def test_launchers_reports_of_ends_are_read(message, expected):
    assert [(e.rank, e.local_rank, e.code, e.is_first) for e in exits_in(message)] == expected


@pytest.mark.parametrize(
    ("message", "host", "code"),
    [
        ('container "trainer-3" terminated: reason OOMKilled', "trainer-3", -9),
        ("pod/llm-worker-4 exited: exitCode: 139", "llm-worker-4", -11),
        ("ray.exceptions.ActorDiedError: x\n\tip: 10.0.0.4\nThe actor is dead because its worker process has died.", "10.0.0.4", 1),
    ],
)
def test_ends_of_which_only_the_place_is_known_are_read(message, host, code):
    assert [(e.host, e.code, e.rank) for e in exits_in(message)] == [(host, code, None)]


def test_codes_of_shells_and_of_python_mean_the_same_signal():
    assert (normal_code(137), normal_code(-9), normal_code(1)) == (-9, -9, 1)
    assert (signal_name(-9), signal_name(1), signal_name(-99)) == ("SIGKILL", "exit code 1", "signal 99")


@pytest.mark.parametrize(
    "piece", ["a" * 200_000, "Error: " * 40_000, " : : :" * 40_000, "A." * 60_000 + "Error", "rank 1 " * 40_000, "[" * 100_000]
)
def test_hostile_lines_take_linear_time(piece):
    began = time.perf_counter()
    voice(piece), raised(piece), exits_in(piece)
    assert time.perf_counter() - began < 2.0
