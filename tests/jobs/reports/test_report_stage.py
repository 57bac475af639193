"""The reports stage over a small lake written row by row: every page, its twins, what is written again and what is not."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.core.lake import arrow_schema, table_path

pytestmark = pytest.mark.spark


def put(lake, name: str, rows: list[dict]) -> None:
    whole = [{f.name: row.get(f.name) for f in arrow_schema(name)} for row in rows]
    write_deltalake(table_path(lake.root, name), pa.Table.from_pylist(whole, schema=arrow_schema(name)), mode="overwrite")


@pytest.fixture
def filled(lake, hang_parts, hostile_parts):
    """Three jobs: a healthy one, the hang, and the hang again with hostile text for its id, names and lines."""
    job, document = hang_parts["job"][0], hang_parts["diagnosis"][0]
    bad = hostile_parts["job"][0]
    base = {
        **job,
        "flags": [],
        "notes": [],
        "job_hash": "h",
        "ingest_batch": 2,
        "coverage": [("logs", 1.0)],
        "config": list(job["config"].items()),
    }
    jobs = [
        {**base, "job_id": "job-0", "state": "COMPLETED", "exit_code": 0, "ingest_batch": 1},
        base,
        {**base, "job_id": bad["job_id"], "name": bad["name"], "user": bad["user"]},
    ]
    start = job["started_at"]
    put(lake, "training_jobs", jobs)
    documents = [(job["job_id"], document), (bad["job_id"], hostile_parts["diagnosis"][0])]
    put(lake, "diagnoses", [
        {"job_id": j, "state": "FAILED", "symptom": "hang", "cause_class": "OSError", "cause_confidence": 0.7, "spatial_signal": "localised",
         "top_ranks": [5], "n_candidates": 2, "candidate_nodes": ["n3"], "n_findings": 4, "n_baselines": 1, "is_verified": False, "document": json.dumps(d)}
        for j, d in documents
    ])  # fmt: skip
    put(
        lake,
        "ranks",
        [
            {
                "job_id": "job-1",
                "rank": r["rank"],
                "node": r["node"],
                "device": r["device"],
                "switch": r["switch"],
                "role": "trainer",
            }
            for r in hang_parts["rank"]
        ],
    )
    put(lake, "log_events", [
        {"job_id": "job-1", "file": f"logs/{r}", "line": k, "byte_offset": k * 100, "n_lines": 1, "occurred_at": start + timedelta(seconds=s), "node": f"n{r // 2 + 1}",
         "rank": r, "message": "iteration", "message_key": 1, "phase": "train" if s > 20 else "init", "iteration": s, "template_id": "t0"}
        for r in range(8) for k, s in enumerate((2, 30, 60, 90, 171)) if not (r == 5 and s > 100) and r != 7  # rank 7 never logs
    ])  # fmt: skip
    put(lake, "iterations", [
        {"job_id": "job-1", "rank": 0, "iteration": i, "occurred_at": start + timedelta(seconds=20 + i), "step_time_s": 1.3, "file": "a", "line": i} for i in range(1, 62)
    ])  # fmt: skip
    put(lake, "operations", [
        {"job_id": "job-1", "node": f"n{r // 2 + 1}", "rank": r, "step": s, "kind": kind, "layer": "python", "name": kind, "duration_us": us, "n_calls": 1,
         "parent": parent, "source": "timeline", "file": f"t{r}", "started_us": s * 10**6}
        for r in range(8) for s in range(10)
        for kind, us, parent in (("forward", 400e3, None), ("collective", 100e3, "forward"), ("collective", (10e3 if r == 5 else 200e3), None), ("step", 9e9, None))
    ])  # fmt: skip
    put(lake, "job_templates", [
        {"job_id": j, "template_id": "t1", "node": n, "role": "trainer", "n_events": k, "first_at": start + timedelta(seconds=170), "ranks": [], "rank_ranges": "",
         "n_ranks": 1, "phases": [], "levels": [], "streams": []}
        for j, n, k in (("job-1", "n1", 2), ("job-1", "n4", 3), ("job-0", "n1", 11))
    ])  # fmt: skip
    put(
        lake,
        "templates",
        [
            {
                "template_id": "t1",
                "template": "Watchdog <*>",
                "is_predefined": False,
                "n_events": 5,
                "n_jobs": 2,
                "library_version": "v",
            }
        ],
    )
    put(lake, "normal_templates", [
        {"template_id": "t1", "n_jobs": 3, "n_lineages": 3, "n_users": 1, "n_configs": 1, "n_nodes": 1, "n_events": 11, "first_seen_at": start, "phase_profile": [],
         "role_profile": [], "is_normal": True, "roles": []}
    ])  # fmt: skip
    put(lake, "machine_metrics", [
        {"job_id": "job-1", "node": f"n{n}", "device": None, "metric": "disk.read_bytes_rate", "unit": "B/s", "is_rate": True, "grid_start_at": start, "period_s": 0.5,
         "values": [1e7 if n != 3 or i < 190 else 0.0 for i in range(350)], "n_samples": 350, "n_gap_points": 0}
        for n in (1, 2, 3)
    ])  # fmt: skip
    put(lake, "machine_scores", [
        {"job_id": "job-1", "finding_id": "f", "source": "metrics", "axis": "spatial", "kind": "metric_outlier", "nodes": ["n3"], "ranks": [], "devices": [],
         "score": 0.9, "is_echo": False, "is_global": False, "statement": "s", "metric": "disk.read_bytes_rate", "refs": []}
    ])  # fmt: skip
    put(lake, "stack_tries", [
        {"job_id": "job-1", "snapshot": "T0", "process_type": "trainer", "path": path, "has_ranks": has, "missing_ranks": missing, "n": len(has), "is_leaf": leaf}
        for path, has, missing, leaf in (
            (["main (t.py:1)"], list(range(8)), [], False),
            (["main (t.py:1)", "all_reduce (d.py:4)"], [0, 1, 2, 3, 4, 6, 7], [5], True),
            (["main (t.py:1)", "read_block (s.py:88)"], [5], [0, 1, 2, 3, 4, 6, 7], True),
        )
    ])  # fmt: skip
    put(lake, "node_events", [{"job_id": "job-1", "node": "n3", "occurred_at": start + timedelta(seconds=95), "kind": "io_error", "severity": "critical",
                               "message": "nvme0n1: I/O error", "file": "events/k", "byte_offset": 0}])  # fmt: skip
    put(
        lake,
        "job_similarity",
        [
            {
                "job_id": "job-1",
                "position": 1,
                "similar_job_id": bad["job_id"],
                "score": 0.82,
                "shared": ["template:t2"],
                "symptom": "hang",
                "family_id": "f1",
            }
        ],
    )
    put(lake, "failure_families", [{"family_id": "f1", "label": "hang in read_block", "symptom": "hang", "n_jobs": 2, "n_lineages": 1, "n_new": 2, "is_new": True,
                                    "job_ids": sorted([bad["job_id"], "job-1"]), "shared": [], "n_nodes": 1, "nodes": ["n3"], "n_users": 1, "users": [], "n_versions": 1,
                                    "versions": []}])  # fmt: skip
    put(lake, "ingested_files", [{"job_id": "job-1", "path": "logs/a", "size_bytes": 12000, "adapter": "plain", "state": "read", "n_read": 40, "n_kept": 38,
                                  "n_quarantined": 2, "n_understood": 30, "flags": [], "ingest_batch": 2}])  # fmt: skip
    put(
        lake,
        "quarantine",
        [
            {
                "job_id": "job-1",
                "path": "logs/a",
                "reason": "undecodable",
                "offset": 5,
                "n_records": 2,
                "detail": "not UTF-8",
                "ingest_batch": 2,
            }
        ],
    )
    return lake


def run_reports(lake, folder: Path) -> None:
    from jobs.core.runner import StageContext
    from jobs.core.stages import stage
    from jobs.reports.job import run

    run(StageContext(stage("reports"), lake, None, 2, report=str(folder)))


def test_the_folder_holds_every_page_with_its_twins_and_only_changed_pages_are_written_again(filled, tmp_path):
    folder = tmp_path / "report"
    run_reports(filled, folder)
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    hostile_name = next(n for n in names if n.startswith("jobs/script") and n.endswith(".html")).removesuffix(".html")
    pages = ("index", "machines", "families", "reliability", "library", "quality", "jobs/job-0", "jobs/job-1", hostile_name)
    assert names == {f"{page}.{ending}" for page in pages for ending in ("html", "json", "md")} | {"state.json"}

    twin = json.loads((folder / "jobs" / "job-1.json").read_text())
    assert twin["diagnosis"]["candidates"][0]["nodes"] == ["n3"]
    assert twin["family"]["family_id"] == "f1"
    assert twin["similar"][0]["score"] == 0.82
    assert twin["table_versions"]["diagnoses"] >= 1
    text = (folder / "jobs" / "job-1.html").read_text()
    for said in (
        "n1 2",
        "n4 3",
        "job-0 11",
        "disk.read_bytes_rate",
        "read_block (s.py:88)",
        "nvme0n1: I/O error",
        "n4 r7",
        "hang in read_block",
        "Rank × step",
    ):
        assert said in text, said

    night = json.loads((folder / "index.json").read_text())["figures"]
    assert (night["n_jobs"], night["n_failed"], night["n_all_jobs"], night["n_new_families"], night["n_quarantined"]) == (
        2,
        2,
        3,
        1,
        2,
    )
    quality = json.loads((folder / "quality.json").read_text())
    assert quality["adds_up"]
    library = json.loads((folder / "library.json").read_text())["figures"]
    assert (library["n_normal"], library["n_templates"], library["n_jobs"]) == (1, 1, 1)

    stamps = {n: (folder / n).stat().st_ino for n in names if n.startswith("jobs/")}
    put(filled, "job_similarity", [])  # only job-1 had a look-alike
    run_reports(filled, folder)
    changed = {n for n in stamps if (folder / n).stat().st_ino != stamps[n]}
    assert changed == {"jobs/job-1.html", "jobs/job-1.json", "jobs/job-1.md"}


def test_own_time_takes_waiting_out_and_sees_inner_communication_once(filled):
    from jobs.reports.transform import own_time

    rows = {(r.rank, r.step): (r.work_us, r.wait_us) for r in own_time(filled.read("operations")).collect()}
    # forward 400 ms with 100 ms of communication inside it, then an all-reduce of 200 ms (10 ms on rank 5)
    assert rows[(0, 3)] == (300e3, 300e3)
    assert rows[(5, 3)] == (300e3, 110e3)
    assert len(rows) == 80


def test_an_empty_lake_makes_honest_pages(lake, tmp_path):
    run_reports(lake, tmp_path / "report")
    assert "No job has been read yet" in (tmp_path / "report" / "index.html").read_text()
    assert "not enough exposure" in (tmp_path / "report" / "reliability.html").read_text()
