"""A hang of eight ranks on four nodes, written by hand as the contract says, and the same with hostile text."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta

import pytest

START = datetime(2026, 11, 30, 2, 56, 55, tzinfo=UTC)
HOSTILE = [
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=2">',
    "<svg onload=window.pwned=3><a xlink:href=javascript:alert(1)>x</a></svg>",
    "[click](javascript:alert(1)) ![x](http://evil.example/x.png) **bold** `code` | cell |",
    "=cmd|' /C calc'!A0 =HYPERLINK(\"http://evil.example\")",
    "{{ 7*7 }} {% raw %} ${7*7} <!-- --> ]]> &lt;b&gt;",
    "\u202emirror\u202c \x1b[31mred\x07 zero\u200bwidth",
    "</style></title></pre><h1>big</h1><base href='http://evil.example/'>",
]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).isoformat().replace("+00:00", "Z")


@pytest.fixture
def hang_document() -> dict:
    """Rank 5 on n3 reads data for ever from iteration 61; the other trainers wait in an all-reduce."""
    return {
        "job_id": "job-1", "state": "FAILED", "verified": False, "symptom": "hang", "cause_class": "storage", "cause_confidence": 0.71,
        "onset": {"window_start_at": stamp(96), "window_end_at": stamp(104), "iteration": 61, "phase": "train"},
        "spatial_signal": "localised",
        "candidates": [
            {
                "score": 0.93, "nodes": ["n3"], "ranks": [5], "devices": ["cuda:1"], "groups": [{"kind": "dp", "ranks": [1, 3, 5, 7]}],
                "evidence": [
                    {"source": "stacks", "axis": "spatial", "statement": "rank 5 is the only trainer outside all_reduce; it sits in read_block (shards.py:88)",
                     "at": stamp(104), "table": "stack_findings", "refs": [{"file": "stacks/n3/rank5_pid90_T0.json", "line": 12}]},
                    {"source": "logs", "axis": "spatial", "statement": "rank 5 wrote nothing for 71 s before the end; its peers did",
                     "at": stamp(104), "table": "node_findings", "refs": [{"file": "logs/n3/run_1/attempt_0/1/stderr.log", "line": 410}]},
                    {"source": "metrics", "axis": "spatial", "statement": "disk reads of n3 are 0.0 MB/s against 12.4 MB/s of its peers",
                     "at": stamp(100), "table": "machine_scores", "refs": []},
                ],
            },
            {"score": 0.31, "nodes": ["n2"], "ranks": [], "devices": [], "groups": [],
             "evidence": [{"source": "metrics", "axis": "spatial", "statement": "CPU use of n2 is 1.4 times its peers'", "at": None, "table": "machine_scores", "refs": []}]},
        ],
        "templates": [
            {"template_id": "t1", "template": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=<*>, OpType=ALLREDUCE) ran for <*> ms", "alert": "timeout",
             "score": 0.9, "n_events": 7, "first_at": stamp(170), "iteration": 61, "nodes": ["n1", "n2", "n4"], "ranks": [0, 1, 2, 3, 6, 7], "in_baselines": False,
             "in_library": False, "example": "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=981, OpType=ALLREDUCE) ran for 60004 ms"},
            {"template_id": "t2", "template": "slow read of shard <*>: <*> s", "alert": None, "score": 0.55, "n_events": 3, "first_at": stamp(97), "iteration": 61,
             "nodes": ["n3"], "ranks": [5], "in_baselines": True, "in_library": True, "example": "slow read of shard 17: 4.2 s"},
        ],
        "missing": [{"node": "n3", "rank": 5, "what": "no log after 02:58:39"}],
        "baselines": [{"job_id": "job-0", "score": 0.97, "differing": [{"key": "hyperparameters.lr", "this": "0.001", "baseline": "0.0008"}]}],
        "coverage": {"logs": 1.0, "stacks": 1.0, "operations": 1.0, "metrics": 0.75, "notes": ["n4 has no metrics"]},
        "versions": {"library": "9f2c1a", "models": "41bb07", "code": "0.1.0"},
    }  # fmt: skip


@pytest.fixture
def hang_parts(hang_document: dict) -> dict:
    """Every part of the page of that job."""
    place = [(rank, f"n{rank // 2 + 1}") for rank in range(8)]
    return {
        "job": [{
            "job_id": "job-1", "name": "gpt-64-pretrain", "user": "team-a", "cluster": "lab", "partition": "gpu", "state": "FAILED", "exit_code": 1,
            "submitted_at": at(-30), "started_at": at(0), "ended_at": at(176), "nodes": ["n1", "n2", "n3", "n4"], "n_nodes": 4, "world_size": 8, "n_gpus": 8,
            "lineage_id": "lin-1", "attempt": 0, "config": {"parallel.tp": "2", "parallel.dp": "4", "hyperparameters.lr": "0.001"}, "notes": [],
        }],
        "diagnosis": [hang_document],
        "rank": [{"rank": r, "node": n, "device": f"cuda:{r % 2}", "switch": "leaf0" if r < 4 else "leaf1", "role": "trainer"} for r, n in place],
        "phase": [
            {"phase": "init", "first_at": at(0), "last_at": at(14)}, {"phase": "load", "first_at": at(14), "last_at": at(21)},
            {"phase": "train", "first_at": at(21), "last_at": at(104)}, {"phase": "exit", "first_at": at(170), "last_at": at(176)},
        ],
        "iteration": [{"iteration": i, "at": at(21 + i * 1.36), "step_time_s": 1.3 + 0.07 * ((i * 7) % 5), "loss": 6.0 - i * 0.02} for i in range(1, 62)],
        "activity": [
            {"rank": r, "node": n, "bins": [0 if b < 4 or (b > 56 and (r == 5 or b < 92)) else (11 if b > 91 else 2 + (r + b) % 2) for b in range(96)]}
            for r, n in place
        ],
        "work": [
            {"rank": r, "node": n, "work_us": 7.9e7 if r == 5 else 5.1e7 + 4e5 * r, "wait_us": 3e6 if r == 5 else 3.1e7 - 4e5 * r,
             "steps": [820.0 + ((r * 13 + s * 7) % 40) + (900 if r == 5 and s > 55 else 0) for s in range(61)], "first_step": 1, "last_step": 61}
            for r, n in place
        ],
        "template_place": [
            *({"template_id": "t1", "node": n, "n_events": k, "first_at": at(170)} for n, k in (("n1", 2), ("n2", 2), ("n4", 3))),
            {"template_id": "t2", "node": "n3", "n_events": 3, "first_at": at(97)},
        ],
        "template_baseline": [{"template_id": "t2", "job_id": "job-0", "n_events": 1}],
        "metric": [
            {"node": f"n{k}", "device": None, "metric": "disk.read_bytes_rate", "unit": "B/s", "grid_start_at": at(0), "step_s": 2.0, "position": 0,
             "values": [(1.2e7 + 1e5 * ((i * 5 + k) % 9)) * (0.02 if k == 3 and i > 47 else 1) for i in range(88)]}
            for k in (1, 2, 3)
        ],
        "trie": [
            {"title": "trainer, T0", "frames": ["main (train.py:210)", "step (train.py:91)", "backward (train.py:120)", "all_reduce (ddp.py:44)"],
             "has": [0, 1, 2, 3, 4, 6, 7], "missing": [5]},
            {"title": "trainer, T0", "frames": ["main (train.py:210)", "step (train.py:91)", "next_batch (train.py:64)", "read_block (shards.py:88)"],
             "has": [5], "missing": [0, 1, 2, 3, 4, 6, 7]},
        ],
        "similar": [{"job_id": "job-77", "score": 0.82, "shared": ["template: slow read of shard <*>", "phase train"]}],
        "family": [{"family_id": "f1", "label": "hang while reading data", "n_jobs": 3}],
        "node_event": [{"node": "n3", "occurred_at": at(95), "kind": "io_error", "code": None, "severity": "critical", "message": "nvme0n1: I/O error, sector 1187722"}],
        "quarantine": [{"reason": "undecodable", "n": 2}],
        "straggler": [],
    }  # fmt: skip


@pytest.fixture
def hostile_parts(hang_parts: dict) -> dict:
    """The same job with hostile text in its id, names, nodes, templates, examples and statements."""
    parts = copy.deepcopy(hang_parts)
    text = " ".join(HOSTILE)
    job, document = parts["job"][0], parts["diagnosis"][0]
    job.update(
        job_id=HOSTILE[0], name=HOSTILE[1], user=HOSTILE[2], nodes=[HOSTILE[1], *job["nodes"]], config={HOSTILE[4]: HOSTILE[5]}
    )
    document["job_id"] = HOSTILE[0]
    document["candidates"][0].update(nodes=[HOSTILE[1]], devices=[HOSTILE[2]])
    document["candidates"][0]["evidence"][0].update(statement=text, refs=[{"file": HOSTILE[7], "line": 1}])
    document["templates"][0].update(template=text, example=text, alert=HOSTILE[0])
    document["missing"][0].update(node=HOSTILE[3], what=text)
    document["baselines"][0].update(job_id=HOSTILE[3], differing=[{"key": HOSTILE[4], "this": HOSTILE[5], "baseline": HOSTILE[7]}])
    document["coverage"]["notes"] = HOSTILE
    parts["rank"][5]["node"] = HOSTILE[1]
    parts["node_event"][0].update(node=HOSTILE[1], message=text)
    parts["trie"][1].update(title=HOSTILE[2], frames=[*HOSTILE])
    parts["metric"][2].update(node=HOSTILE[1], metric=HOSTILE[2], unit=HOSTILE[0])
    parts["similar"][0].update(job_id=HOSTILE[3], shared=HOSTILE)
    return parts


@pytest.fixture
def hostile() -> list[str]:
    return HOSTILE
