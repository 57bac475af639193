"""The stage on literal rows: look-alikes, families, separators, verdicts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.cli import similar, verdict
from jobs.core import lake as reader
from jobs.core.errors import NotFoundError
from jobs.core.runner import Given, run_stage
from jobs.core.stages import stage
from jobs.core.tables import Lake

pytestmark = pytest.mark.spark
START = datetime(2026, 5, 1, tzinfo=UTC)
TEMPLATES = {
    "boot": ("starting training", None),
    "oom": ("torch.OutOfMemoryError: CUDA out of memory", "oom"),
    "key": ("KeyError: <*>", "exception"),
    "nccl": ("NCCL watchdog time-out in all_reduce", "timeout"),
    "torchrun": ("ChildFailedError: train.py FAILED", "exception"),
}


def job(number: int, state: str, batch: int, nccl: str = "2.29") -> dict[str, Any]:
    config = {
        "model.layers": "24",
        "framework.name": "torch",
        "packages.nccl": nccl,
        "env.A": str(number % 2),
        "hyperparameters.seed": str(number),
    }
    return {
        "job_id": f"job-{number:02d}", "user": f"user-{number % 3}", "state": state, "exit_code": int(state != "COMPLETED"),
        "started_at": START, "ended_at": START + timedelta(hours=number), "nodes": [], "config": list(config.items()), "flags": [],
        "notes": [], "job_hash": "x", "ingest_batch": batch,
    }  # fmt: skip


# What failed how: 1-4 out of memory (one of them tonight), 5-7 hang, 8 a user's error, 9 and 10 a new kind tonight; 20-39 went well.
OOM, HANG, USER, NEW = (1, 2, 3, 4), (5, 6, 7), (8,), (9, 10)
PRINTED = {**dict.fromkeys(OOM, ("boot", "oom", "torchrun")), **dict.fromkeys(HANG, ("boot", "nccl", "torchrun"))}
PRINTED |= {**dict.fromkeys(USER, ("boot", "key", "torchrun")), **dict.fromkeys(NEW, ("boot", "torchrun"))}
SYMPTOMS = {
    **dict.fromkeys(OOM, "oom"),
    **dict.fromkeys(HANG, "hang"),
    **dict.fromkeys(USER, "crash"),
    **dict.fromkeys(NEW, "node_failure"),
}


def jobs() -> list[dict[str, Any]]:
    failed = [job(n, "FAILED", 2 if n in (4, *NEW) else 1, "2.30" if n in (*OOM, *HANG) else "2.29") for n in SYMPTOMS]
    return failed + [job(n, "COMPLETED", 1) for n in range(20, 40)]


def diagnosis(number: int) -> dict[str, Any]:
    node = f"node-{number % 2}"
    return {
        "job_id": f"job-{number:02d}", "state": "FAILED", "symptom": SYMPTOMS[number], "cause_class": "undetermined",
        "cause_confidence": 0.0, "spatial_signal": "localised", "onset_phase": "train", "top_ranks": [], "n_candidates": 1,
        "candidate_nodes": [node], "n_findings": 1, "n_baselines": 0, "is_verified": False, "document": "{}",
    }  # fmt: skip


def printed(number: int, template: str) -> dict[str, Any]:
    return {
        "job_id": f"job-{number:02d}", "template_id": template, "role": "trainer", "node": "n", "n_events": 1, "ranks": [],
        "rank_ranges": "", "n_ranks": 1, "phases": [], "levels": [], "streams": [], "alert": TEMPLATES[template][1],
    }  # fmt: skip


def put(root: str, name: str, rows: list[dict[str, Any]]) -> None:
    write_deltalake(reader.table_path(root, name), pa.Table.from_pylist(rows, schema=reader.arrow_schema(name)), mode="append")


def fill(root: str) -> None:
    put(root, "training_jobs", jobs())
    put(root, "diagnoses", [diagnosis(n) for n in SYMPTOMS])
    put(root, "job_templates", [printed(n, t) for n, names in PRINTED.items() for t in names])
    put(
        root, "templates",
        [
            {"template_id": name, "template": text, "alert": alert, "is_predefined": False, "n_events": 1, "n_jobs": 1, "library_version": "1"}
            for name, (text, alert) in TEMPLATES.items()
        ],
    )  # fmt: skip
    put(
        root, "node_events",
        [{"job_id": f"job-{n:02d}", "node": "n", "kind": "xid", "code": 79, "severity": "critical", "message": "Xid", "byte_offset": n} for n in NEW],
    )  # fmt: skip


@pytest.fixture(scope="module")
def filled(module_lake: Lake) -> Lake:
    fill(module_lake.root)
    run_stage(stage("baselines"), module_lake, Given())
    run_stage(stage("similarity"), module_lake, Given())
    return module_lake


def asked(root: str, job_id: str) -> dict[str, Any]:
    done = CliRunner().invoke(similar.command, [job_id, "--lake", root, "--json"], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.output)
    return document


def test_look_alikes_families_separators_and_verdicts(filled: Lake) -> None:
    root = filled.root
    document = asked(root, "job-01")
    assert [each["job_id"] for each in document["similar"]][:3] == ["job-02", "job-03", "job-04"]
    first = document["similar"][0]
    assert first["shared"]["symptom"] == ["oom"]
    assert first["shared"]["exception"] == ["OutOfMemoryError"]
    assert "torch.OutOfMemoryError: CUDA out of memory" in first["shared"]["templates"]
    assert first["verdict"] is None
    assert document["seen"]["nodes"] == ["node-0", "node-1"]
    assert "nccl 2.30" in document["seen"]["versions"]
    assert document["seen"]["first_at"] == "2026-05-01T02:00:00.000Z"
    assert document["family"]["n_jobs"] == 4
    assert document["refused"] is None
    table = sorted(reader.rows(root, "job_similarity").to_pylist(), key=lambda row: (row["job_id"], row["position"]))
    assert [row["similar_job_id"] for row in table if row["job_id"] == "job-01"][:3] == ["job-02", "job-03", "job-04"]

    families = {tuple(row["job_ids"]): row for row in reader.rows(root, "failure_families").to_pylist()}
    assert sorted(families) == [tuple(f"job-{n:02d}" for n in kind) for kind in (OOM, HANG, USER, NEW)]
    oom = families["job-01", "job-02", "job-03", "job-04"]
    assert oom["label"].startswith("oom: OutOfMemoryError")
    assert (oom["n_new"], oom["is_new"], oom["growth"]) == (1, False, 0.3333)
    assert (oom["n_nodes"], oom["n_users"]) == (2, 3)
    new = families["job-09", "job-10"]
    assert (new["is_new"], new["growth"], new["label"].startswith("node failure: xid 79")) == (True, None, True)

    hints = [row for row in reader.rows(root, "config_separators").to_pylist() if row["group_kind"] == "state"]
    assert [
        (row["key"], row["value"], row["n_group_with"], row["n_group"], row["n_others_with"], row["n_others"]) for row in hints
    ] == [("packages.nccl", "2.30", 7, 10, 0, 20)]
    assert hints[0]["statement"].startswith("a hint, not a cause: packages.nccl = 2.30 in 7 of 10 failed jobs")

    runner = CliRunner()
    words = [
        "job-07",
        "--lake",
        root,
        "--cause",
        "switch port flapping",
        "--note",
        "leaf 3",
        "--author",
        "bo",
        "--at",
        "2026-05-02",
    ]
    runner.invoke(verdict.command, words, catch_exceptions=False)
    document = asked(root, "job-05")
    assert document["similar"][0]["job_id"] == "job-07"
    assert (document["similar"][0]["verdict"]["cause"], document["similar"][0]["verdict"]["is_verified"]) == (
        "switch port flapping",
        True,
    )
    text = runner.invoke(similar.command, ["job-05", "--lake", root], catch_exceptions=False).output
    assert "verified cause: switch port flapping (leaf 3)" in text
    assert asked(root, "job-20")["refused"] == "job-20 completed without a symptom: there is no failure to compare"
    for command, arguments in ((similar.command, ["nobody"]), (verdict.command, ["nobody", "--cause", "x"])):
        with pytest.raises(NotFoundError):
            runner.invoke(command, [*arguments, "--lake", root], catch_exceptions=False)


def test_a_stage_run_again_changes_nothing(filled: Lake) -> None:
    names = ("job_fingerprints", "job_similarity", "failure_families", "config_separators")
    before = {name: sorted(map(str, reader.rows(filled.root, name).to_pylist())) for name in names}
    run_stage(stage("similarity"), filled, Given(refresh=True))
    assert {name: sorted(map(str, reader.rows(filled.root, name).to_pylist())) for name in names} == before
