"""Cause classes from the rule file, and a site's own rules before it."""

import pytest

from ml.fusion.rules import cause_of, parse_rules
from ml.fusion.types import Baseline, Case, Symptom
from ml.log_diffs.topology import Finding, Job


def raised(text):
    return Finding("logs", "spatial", "rank_exception", f"rank 1 on n1 raised {text}", 0.9, ("n1",), (1,))


def ended(name):
    return Finding(
        "logs", "spatial", "rank_exit_signal", f"rank 1 on n1 was ended by {name}, its launcher reports", 0.9, ("n1",), (1,)
    )


def event(kind, text):
    return Finding("node_events", "spatial", "node_event", text, 0.9, ("n1",), subject=kind, table="node_events")


def case(*findings):
    return Case(Job("j", "FAILED"), findings, baselines=(Baseline("b", 0.9),))


@pytest.mark.parametrize(
    ("finding", "name"),
    [
        (raised("KeyError: 'targets'"), "KeyError"),
        (raised("ModuleNotFoundError: No module named 'x'"), "ImportError"),
        (raised("IndentationError: expected an indented block"), "SyntaxError"),
        (raised("FileNotFoundError: no shard"), "FileNotFound"),
        (raised("RuntimeError: [enforce fail at inline_container.cc:671] . unexpected pos 64 vs 0"), "OSError"),
        (raised("OSError: [Errno 28] No space left on device"), "OSError"),
        (raised("RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed."), "DataloaderKilled"),
        (raised("RuntimeError: CUDA error: an illegal memory access was encountered"), "CUDAError"),
        (raised("RuntimeError: size mismatch for layers.0.weight"), "ModelLoading"),
        (raised("gaierror: [Errno -3] Temporary failure in name resolution"), "NetworkError"),
        (raised("SomethingOddError: what"), "RuntimeError"),
        (event("xid", "n1 reported xid 79: GPU has fallen off the bus"), "CUDAError"),
        (event("xid", "n1 reported xid 94: contained ECC error"), "ECCError"),
        (event("xid", "n1 reported xid 74: NVLink error"), "NVLinkError"),
        (event("ecc", "n1 reported ecc"), "ECCError"),
        (raised("RuntimeError: can't start new thread"), "OSError"),
        (raised("RuntimeError: The NVIDIA driver on your system is too old"), "CUDAError"),
        (raised("HfHubHTTPError: 403 Client Error: Forbidden for url: https://x"), "PermissionError"),
        (raised("DistNetworkError: code: -98, name: EADDRINUSE"), "ConnectionError"),
        (ended("SIGSEGV"), "SegmentationFault"),
        (ended("SIGBUS"), "SegmentationFault"),
        (ended("SIGABRT"), "Aborted"),
        (ended("SIGKILL"), "ProcessKilled"),
        (event("link_down", "n1 reported link_down"), "NetworkError"),
    ],
)
def test_a_class_follows_from_words_and_events(finding, name):
    assert cause_of(case(finding), Symptom.CRASH).name == name


@pytest.mark.parametrize(
    ("symptom", "name"), [(Symptom.OOM, "OutOfMemory"), (Symptom.NODE_FAILURE, "NodeFailure"), (Symptom.HANG, "undetermined")]
)
def test_a_symptom_alone_may_say_the_class(symptom, name):
    assert cause_of(case(), symptom).name == name


def place(source, kind, subject, statement="", score=0.9):
    return Finding(source, "spatial", kind, statement or subject, score, ("n1",), (1,), subject=subject)


@pytest.mark.parametrize(
    ("symptom", "finding", "name"),
    [
        (Symptom.SLOWDOWN, place("metrics", "machine_differs", "cpu_throttled_seconds_rate"), "CPUContention"),
        (Symptom.SLOWDOWN, place("metrics", "machine_differs", "gpu_sm_clock_hz"), "ThermalThrottling"),
        (Symptom.SLOWDOWN, place("operations", "slow_worker", "data"), "DataStall"),
        (Symptom.SLOWDOWN, place("operations", "slow_worker", "(between operations)"), "HostStall"),
        (Symptom.SLOWDOWN, place("operations", "slow_link", "dp-allreduce"), "NetworkError"),
        (Symptom.SLOWDOWN, place("operations", "slow_link", "dp-allreduce", score=0.4), "undetermined"),
        (Symptom.HANG, place("stacks", "outside_collective", "x", "rank 1 stands in fsync (a.py:71) while 5 wait"), "StorageStall"),
        (Symptom.HANG, place("stacks", "outside_collective", "x", "rank 1 stands in acquire (threading.py:168)"), "Deadlock"),
        (Symptom.HANG, place("stacks", "outside_collective", "x", "rank 1 stands in forward (train.py:9)"), "undetermined"),
        (Symptom.CRASH, place("metrics", "machine_differs", "cpu_throttled_seconds_rate"), "undetermined"),
    ],
)
def test_what_slows_or_stops_a_place_has_a_class_where_evidence_says_so(symptom, finding, name):
    assert cause_of(case(finding), symptom).name == name


def test_echoes_have_no_say():
    lost = Finding("logs", "temporal", "peer_lost", "rank 1 raised ConnectionResetError: reset by peer", 0.5, is_echo=True)
    assert cause_of(case(lost), Symptom.CRASH).name == "undetermined"


def test_without_baselines_and_library_a_class_is_less_sure():
    alone = Case(Job("j", "FAILED"), (raised("KeyError: 'x'"),), has_library=False)
    assert cause_of(alone, Symptom.CRASH).confidence < cause_of(case(raised("KeyError: 'x'")), Symptom.CRASH).confidence


def test_a_sites_rule_comes_first():
    rules = parse_rules("rules: [{class: SensorFault, confidence: 0.8, text: 'flux capacitor'}]")
    assert cause_of(case(raised("KeyError: 'flux capacitor'")), Symptom.CRASH, rules).name == "SensorFault"


@pytest.mark.parametrize("text", ["rules: [{class: A, tekst: x}]", "rules: [{class: A, text: '('}]"])
def test_a_wrong_rule_is_refused_by_its_number(text):
    with pytest.raises(ValueError, match="cause rule 1"):
        parse_rules(text)


@pytest.mark.parametrize("symptom", [Symptom.NONE, Symptom.CANCELLED, Symptom.TIME_LIMIT])
def test_what_was_ended_on_purpose_or_went_well_has_no_cause(symptom):
    assert cause_of(case(raised("KeyError: 'x'")), symptom).name == "undetermined"
