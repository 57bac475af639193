"""Real stacks: every hang has its blocking rank first, completed jobs give no hang and no accusation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.archive import read_job
from jobs.stacks.assemble import finding_rows, samples_of, trie_rows
from jobs.stacks.folder import read_folder


def analysed(folder: Path) -> list[dict[str, Any]]:
    """A job's findings, strongest first, with all that the stage knows of it."""
    tables = {name: table.to_pylist() for name, table in read_job(folder).items()}
    job = tables["training_jobs"][0]
    samples = samples_of(tables.get("stack_samples", []))
    moments = [s.at for s in samples if s.at is not None]
    own = [r for r in tables.get("log_records", []) if r["rank"] is not None and r.get("stream") != "agent" and r["occurred_at"]]
    inside = [
        int(r["occurred_at"].timestamp()) for r in own if moments and min(moments) <= r["occurred_at"].timestamp() <= max(moments)
    ]
    facts = {
        "state": job["state"], "ended_at": job["ended_at"], "world_size": job["world_size"], "ranks": tables["ranks"], "logs": inside,
        "iterations": [{"at": i["occurred_at"], "iteration": i["iteration"]} for i in tables.get("iterations", [])],
    }  # fmt: skip
    return sorted(finding_rows(job["job_id"], samples, facts), key=lambda row: -row["score"])


def accused(found: list[dict[str, Any]]) -> list[tuple[str, list[int], list[str]]]:
    return [(f["kind"], f["ranks"], f["nodes"]) for f in found if f["nodes"] and f["score"] >= 0.5]


HANGS = [
    # fault, how it shows
    ("hang_data", "outside_collective"),
    ("stop", "not_sampled"),
    ("skip_collective", "other_collective"),
]


def jobs_with(shared: Path, **wanted: object) -> list[tuple[Path, dict[str, Any]]]:
    truths = [json.loads(path.read_text()) for path in sorted((shared / "lab" / "truth").glob("*.json"))]
    chosen = [t for t in truths if all(t[key] == value for key, value in wanted.items())]
    assert chosen, wanted
    return [(shared / "lab" / "archive" / t["job_id"], t) for t in chosen]


@pytest.mark.parametrize(("fault", "kind"), HANGS)
def test_a_hang_has_its_blocking_rank_first(shared_data: Path, fault: str, kind: str) -> None:
    for folder, truth in jobs_with(shared_data, fault=fault):
        found = analysed(folder)
        assert accused(found) == [(kind, truth["faulty_ranks"], truth["faulty_nodes"])]
        assert "lack_of_progress" in [f["kind"] for f in found]


def test_when_a_link_is_down_every_rank_is_in_a_collective_and_none_is_accused(shared_data: Path) -> None:
    for folder, _ in jobs_with(shared_data, fault="link_down"):
        found = analysed(folder)
        assert accused(found) == []
        assert {f["kind"] for f in found} == {"lack_of_progress", "culprit_not_in_stacks"}


def stacks_alone(folder: Path) -> list[dict[str, Any]]:
    """A job's findings from its stacks and its end, its logs left out: what the stacks themselves would accuse."""
    job = json.loads((folder / "job.json").read_text())
    samples, _ = read_folder(folder / "stacks")
    return finding_rows(job["job_id"], samples, {"state": job["state"], "world_size": job["world_size"]})


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"])
def test_jobs_that_did_not_hang_give_no_hang_and_no_accusation(shared_data: Path, state: str) -> None:
    folders = [
        f for f in sorted((shared_data / "lab" / "archive").iterdir()) if json.loads((f / "job.json").read_text())["state"] == state
    ]
    assert folders
    for folder in folders:
        found = stacks_alone(folder)
        assert accused(found) == [], folder.name
        assert "lack_of_progress" not in [f["kind"] for f in found], folder.name


def test_completed_jobs_of_the_examples_give_no_finding(examples: Path) -> None:
    folders = [f for f in sorted((examples / "archive").iterdir()) if (f / "stacks").is_dir()]
    completed = [f for f in folders if json.loads((f / "job.json").read_text())["state"] == "COMPLETED"]
    assert completed
    for folder in completed:
        assert accused(stacks_alone(folder)) == [], folder.name


def test_tries_of_a_job_have_every_rank_in_or_out_of_every_path(examples: Path) -> None:
    folder = next(f for f in sorted((examples / "archive").iterdir()) if (f / "stacks").is_dir())
    rows = trie_rows("job", read_folder(folder / "stacks")[0])
    assert len({row["node_id"] for row in rows}) == len(rows)
    by_kind = {(row["snapshot"], row["process_type"]): {*row["has_ranks"], *row["missing_ranks"]} for row in rows}
    assert all(len({*r["has_ranks"], *r["missing_ranks"]}) == len(by_kind[r["snapshot"], r["process_type"]]) for r in rows)
    assert all(row["has_ranks"] and not set(row["has_ranks"]) & set(row["missing_ranks"]) for row in rows)
