"""The symptom: what a user saw, from the state, exits, words, silence and progress."""

from __future__ import annotations

from ml.fusion.types import Case, Symptom

SLOW_KINDS = frozenset({"step_time_shift", "slow_stretch", "step_pauses", "single_pause"})
SLOW_PLACES = frozenset({"slow_worker", "intermittent_pause", "slow_link", "slow_transfer", "slower_than_baselines"})
VERY_SLOW = 0.6
"""Score from which a slow place alone, without a shift in the job's own course, is a slowdown that a user saw."""
STRONG = 0.5
GONE_STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
ENDED_FROM_OUTSIDE = frozenset({"CANCELLED", "PREEMPTED", "REVOKED", "REQUEUED"})
OUT_OF_TIME = frozenset({"TIMEOUT", "DEADLINE"})
DIRECT_KINDS = ("rank_exit_signal", "node_exit_signal", "rank_exception", "rank_exit_mute", "rank_exit_terminated")


def symptom_of(case: Case) -> Symptom:
    """The contract's word for the job.

    States that say it outright decide; else the first that happened: a loss that is not finite before the exception
    that it raises, a silence before the time-out that ends it, a slow stretch before the time limit.
    """
    state = case.job.state
    if state == "COMPLETED":
        return _completed(case)
    if state in GONE_STATES:
        return Symptom.NODE_FAILURE
    if state == "OUT_OF_MEMORY":
        return Symptom.OOM
    for test, symptom in ((_is_nonfinite, Symptom.LOSS_NONFINITE), (_is_oom, Symptom.OOM), (_is_node_gone, Symptom.NODE_FAILURE)):
        if test(case):
            return symptom
    if state in OUT_OF_TIME:
        return _out_of_time(case)
    if state in ENDED_FROM_OUTSIDE or _is_all_terminated(case):
        return Symptom.HANG if is_silent(case) and not _has_direct(case) else Symptom.CANCELLED
    return _failed(case)


def is_slow(case: Case) -> bool:
    """Whether the job became clearly slower, by its own course or by what its operations say."""
    return any(f.score >= STRONG for f in case.of(*SLOW_KINDS)) or any(
        f.score >= VERY_SLOW and not f.is_echo for f in case.of(*SLOW_PLACES)
    )


def is_silent(case: Case) -> bool:
    """Whether a long time without progress preceded the end."""
    return bool(case.of("no_progress"))


def has_progressed(case: Case) -> bool:
    """Whether any rank made a step."""
    return bool(case.of("progressed"))


def _completed(case: Case) -> Symptom:
    if _is_nonfinite(case):
        return Symptom.LOSS_NONFINITE
    return Symptom.SLOWDOWN if is_slow(case) else Symptom.NONE


def _out_of_time(case: Case) -> Symptom:
    if is_slow(case):
        return Symptom.SLOWDOWN
    return Symptom.HANG if is_silent(case) else Symptom.TIME_LIMIT


def _failed(case: Case) -> Symptom:
    is_waiting, is_lost = bool(case.of("wait_timed_out")), bool(case.of("peer_lost"))
    if not has_progressed(case) and (_has_direct(case) or is_waiting or is_lost or case.of("rank_error")):
        return Symptom.LAUNCH_FAILURE
    if _has_direct(case):
        return Symptom.HANG if is_silent(case) and (is_waiting or _is_slow_death(case)) else Symptom.CRASH
    if is_silent(case) and (is_waiting or is_lost or case.job.state != "UNKNOWN"):
        return Symptom.HANG
    if is_waiting:
        return Symptom.COMM_TIMEOUT
    if is_lost or case.of("rank_error", "node_exit_differs", "failed_exit", "node_without_ending"):
        return Symptom.CRASH
    return Symptom.UNDETERMINED


def _has_direct(case: Case) -> bool:
    return any(not f.is_echo for f in case.of(*DIRECT_KINDS))


def _is_slow_death(case: Case) -> bool:
    """An exception after a silence that no single slow step explains."""
    return any(f.score >= 0.9 for f in case.of("no_progress"))


def _is_nonfinite(case: Case) -> bool:
    return any(f.score >= STRONG for f in case.of("loss_nonfinite", "alert_non_finite"))


def _is_oom(case: Case) -> bool:
    if any(not f.is_echo and f.score >= STRONG for f in case.of("alert_oom")):
        return True
    if any(f.kind == "node_event" and f.subject == "oom_kill" for f in case.findings):
        return True
    killed = {n for f in case.of("rank_exit_signal") if not f.is_echo and "SIGKILL" in f.statement for n in f.nodes}
    grown = {
        n for f in case.findings if f.source == "metrics" and f.score >= STRONG and "memory" in (f.subject or "") for n in f.nodes
    }
    return bool(killed & grown)


def _is_node_gone(case: Case) -> bool:
    if any(f.accuses and f.score >= STRONG for f in case.of("node_lost")):
        return True
    gone = {n for f in case.of("node_without_ending") for n in f.nodes}
    odd = {n for f in case.of("node_exit_differs", "machine_silent") for n in f.nodes}
    down = {n for f in case.findings if f.kind == "node_event" and f.subject in ("reboot", "power", "lockup") for n in f.nodes}
    return bool(gone & (odd | down))


def _is_all_terminated(case: Case) -> bool:
    return (
        any(f.is_global for f in case.of("launcher_terminated"))
        and not _has_direct(case)
        and not case.of("wait_timed_out", "peer_lost")
    )
