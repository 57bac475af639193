"""Reports at size: a night of a thousand jobs, and pages of jobs of 4,096 ranks. Seconds, bytes, time to open.

    .venv/bin/python bench/reports_bench.py [--jobs 1000] [--ranks 4096] [--keep FOLDER] [--pages]

The lake is generated, written without Spark, and reported on by the stage as the night runs it. `--pages` makes the same pages
in one process without a lake: what the workers do.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from jobs.core.lake import arrow_schema, create_missing, table_path

START = datetime(2026, 11, 29, 20, tzinfo=UTC)
SYMPTOMS = ("crash", "hang", "oom", "comm_timeout", "slowdown", "launch_failure")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).isoformat().replace("+00:00", "Z")


def put(lake: Path, name: str, rows: list[dict]) -> None:
    shape = arrow_schema(name)
    table = pa.Table.from_pylist([{f.name: row.get(f.name) for f in shape} for row in rows], schema=shape)
    write_deltalake(table_path(lake, name), table, mode="append")


def job_row(job_id: str, n_ranks: int, state: str, seconds: float, offset: float) -> dict:
    n_nodes = max(n_ranks // 8, 1)
    return {
        "job_id": job_id, "name": f"task-{int(job_id[-1], 36) % 7}", "user": "team-a", "cluster": "c", "state": state, "exit_code": int(state == "FAILED"),
        "started_at": at(offset), "ended_at": at(offset + seconds), "nodes": [f"gpu{n:04}" for n in range(n_nodes)], "n_nodes": n_nodes, "world_size": n_ranks,
        "n_gpus": n_ranks, "lineage_id": f"lin-{job_id}", "attempt": 0, "config": [("parallel.tp", "8"), ("hyperparameters.lr", "0.001")],
        "coverage": [("logs", 1.0), ("stacks", 0.9)], "flags": [], "notes": [], "job_hash": job_id, "ingest_batch": 1,
    }  # fmt: skip


def document(job_id: str, n_ranks: int, offset: float, seconds: float, rng: random.Random) -> dict:
    """A diagnosis of the contract with two candidates and some templates."""
    rank = rng.randrange(n_ranks)
    node = f"gpu{rank // 8:04}"
    return {
        "job_id": job_id, "state": "FAILED", "verified": False, "symptom": rng.choice(SYMPTOMS), "cause_class": "CUDAError", "cause_confidence": 0.7,
        "onset": {"window_start_at": stamp(offset + seconds * 0.8), "window_end_at": stamp(offset + seconds * 0.83), "iteration": 800, "phase": "train"},
        "spatial_signal": "localised",
        "candidates": [
            {"score": 0.9, "nodes": [node], "ranks": [rank], "devices": [], "groups": [{"kind": "dp", "ranks": list(range(rank % 8, n_ranks, 8))}],
             "evidence": [{"source": s, "axis": "spatial", "statement": f"rank {rank} differs from its peers in {s}", "at": stamp(offset + seconds * 0.8), "table": "t",
                           "refs": [{"file": f"logs/{node}/stderr.log", "line": 10}]} for s in ("logs", "stacks", "metrics")]},
        ],
        "templates": [
            {"template_id": f"t{k}", "template": f"Watchdog caught collective operation time-out {k}: <*>", "alert": "timeout", "score": 0.9 - k / 20,
             "n_events": n_ranks, "first_at": stamp(offset + seconds * 0.9), "iteration": 800, "nodes": [], "ranks": list(range(n_ranks)), "in_baselines": False,
             "in_library": False, "example": "x" * 300} for k in range(8)
        ],
        "missing": [{"node": node, "rank": rank, "what": "no log after 02:58:39"}],
        "baselines": [{"job_id": "job-0000", "score": 0.97, "differing": [{"key": "hyperparameters.lr", "this": "0.001", "baseline": "0.0008"}]}],
        "coverage": {"logs": 1.0, "stacks": 0.9, "operations": 1.0, "metrics": 1.0, "notes": []}, "versions": {"library": "v", "models": "v", "code": "v"},
    }  # fmt: skip


def diagnosis_row(d: dict) -> dict:
    return {
        "job_id": d["job_id"], "state": "FAILED", "symptom": d["symptom"], "cause_class": d["cause_class"], "cause_confidence": 0.7, "spatial_signal": "localised",
        "top_node": d["candidates"][0]["nodes"][0], "top_ranks": d["candidates"][0]["ranks"], "top_score": 0.9, "n_candidates": 1,
        "candidate_nodes": d["candidates"][0]["nodes"], "n_findings": 3, "n_baselines": 1, "is_verified": False, "document": json.dumps(d),
    }  # fmt: skip


def small_jobs(lake: Path, n_jobs: int) -> None:
    """A night of 16-rank jobs, a quarter of them failed."""
    rng = random.Random(7)
    jobs, diagnoses, ranks, events, steps = [], [], [], [], []
    for i in range(n_jobs):
        job_id, offset, seconds, failed = f"job-{i:04}", i * 20.0, 600.0 + i % 50, i % 4 == 1
        jobs.append(job_row(job_id, 16, "FAILED" if failed else "COMPLETED", seconds, offset))
        if failed:
            diagnoses.append(diagnosis_row(document(job_id, 16, offset, seconds, rng)))
        ranks += [
            {"job_id": job_id, "rank": r, "node": f"gpu{r // 8:04}", "device": str(r % 8), "switch": "leaf0", "role": "trainer"}
            for r in range(16)
        ]
        events += log_rows(job_id, range(16), offset, seconds, 12)
        steps += [
            {
                "job_id": job_id,
                "rank": 0,
                "iteration": s,
                "occurred_at": at(offset + seconds * s / 60),
                "step_time_s": 10.0,
                "file": "f",
                "line": s,
            }
            for s in range(60)
        ]
    for name, rows in (
        ("training_jobs", jobs),
        ("diagnoses", diagnoses),
        ("ranks", ranks),
        ("log_events", events),
        ("iterations", steps),
    ):
        put(lake, name, rows)


def log_rows(job_id: str, ranks: range, offset: float, seconds: float, each: int) -> list[dict]:
    return [
        {"job_id": job_id, "file": f"l{r}", "line": k, "byte_offset": k, "n_lines": 1, "occurred_at": at(offset + seconds * (k + 0.5) / each), "node": f"gpu{r // 8:04}", "rank": r,
         "message": "m", "message_key": 1, "phase": "train", "template_id": "t0"}
        for r in ranks for k in range(each)
    ]  # fmt: skip


def large_job(lake: Path, job_id: str, n_ranks: int) -> None:
    """One failed job of many ranks with every kind of evidence."""
    rng = random.Random(11)
    seconds, nodes = 7200.0, [f"gpu{n:04}" for n in range(n_ranks // 8)]
    d = document(job_id, n_ranks, 0.0, seconds, rng)
    odd = d["candidates"][0]["ranks"][0]
    put(lake, "training_jobs", [job_row(job_id, n_ranks, "FAILED", seconds, 0.0)])
    put(lake, "diagnoses", [diagnosis_row(d)])
    put(
        lake,
        "ranks",
        [
            {
                "job_id": job_id,
                "rank": r,
                "node": nodes[r // 8],
                "device": str(r % 8),
                "switch": f"leaf{r // 256}",
                "role": "trainer",
            }
            for r in range(n_ranks)
        ],
    )
    put(lake, "log_events", log_rows(job_id, range(n_ranks), 0.0, seconds, 48))
    put(
        lake,
        "iterations",
        [
            {
                "job_id": job_id,
                "rank": 0,
                "iteration": s,
                "occurred_at": at(s * 7),
                "step_time_s": 7 + rng.random(),
                "file": "f",
                "line": s,
            }
            for s in range(1, 1000)
        ],
    )
    put(lake, "operations", [
        {"job_id": job_id, "node": nodes[r // 8], "rank": r, "step": s, "kind": kind, "layer": "python", "name": kind, "duration_us": us, "n_calls": 1, "source": "timeline", "file": "t"}
        for r in range(n_ranks) for s in range(48)
        for kind, us in (("forward", 4e6 + 1e5 * rng.random() + (2e6 if r == odd else 0)), ("collective", 1e5 if r == odd else 2e6))
    ])  # fmt: skip
    put(lake, "job_templates", [
        {"job_id": job_id, "template_id": f"t{k}", "node": n, "role": "trainer", "n_events": 8, "first_at": at(6500), "ranks": [], "rank_ranges": "", "n_ranks": 8, "phases": [],
         "levels": [], "streams": []} for k in range(8) for n in nodes
    ])  # fmt: skip
    put(lake, "machine_metrics", [
        {"job_id": job_id, "node": n, "metric": m, "unit": "W", "is_rate": False, "grid_start_at": at(0), "period_s": 5.0, "values": [300 + 20 * rng.random() for _ in range(1440)],
         "n_samples": 1440, "n_gap_points": 0} for n in nodes for m in ("gpu.power.w", "cpu.user_s_rate")
    ])  # fmt: skip
    put(lake, "machine_scores", [
        {"job_id": job_id, "finding_id": m, "source": "metrics", "axis": "spatial", "kind": "metric_outlier", "nodes": d["candidates"][0]["nodes"], "ranks": [], "devices": [],
         "score": 0.8, "is_echo": False, "is_global": False, "statement": "s", "metric": m, "refs": [], "remarks": []} for m in ("gpu.power.w", "cpu.user_s_rate")
    ])  # fmt: skip
    others = [r for r in range(n_ranks) if r != odd]
    put(lake, "stack_tries", [
        {"job_id": job_id, "snapshot": "T0", "process_type": "trainer", "path": path, "has_ranks": has, "missing_ranks": missing, "n": len(has), "is_leaf": True}
        for path, has, missing in (
            (["main (t.py:1)", "step (t.py:9)", "all_reduce (d.py:4)"], others[: n_ranks // 2], sorted({odd, *others[n_ranks // 2 :]})),
            (["main (t.py:1)", "step (t.py:9)", "all_gather (d.py:9)"], others[n_ranks // 2 :], sorted({odd, *others[: n_ranks // 2]})),
            (["main (t.py:1)", "next_batch (t.py:5)", "read (s.py:8)"], [odd], others),
        )
    ])  # fmt: skip


def parts_of(job_id: str, n_ranks: int, offset: float, seconds: float, rng: random.Random) -> dict[str, list[dict]]:
    """The parts of one job's page, as the stage hands them to a worker, with every kind of evidence."""
    d = document(job_id, n_ranks, offset, seconds, rng)
    job = job_row(job_id, n_ranks, "FAILED", seconds, offset)
    odd, nodes = d["candidates"][0]["ranks"][0], job["nodes"]
    others = [r for r in range(n_ranks) if r != odd]
    return {
        "job": [{**job, "config": dict(job["config"])}],
        "diagnosis": [d],
        "rank": [
            {"rank": r, "node": nodes[r // 8], "device": str(r % 8), "switch": f"leaf{r // 256}", "role": "trainer"}
            for r in range(n_ranks)
        ],
        "phase": [{"phase": "train", "first_at": at(offset + 30), "last_at": at(offset + seconds * 0.8)}],
        "iteration": [
            {"iteration": s, "at": at(offset + seconds * s / 1000), "step_time_s": 7 + rng.random()} for s in range(1, 800)
        ],
        "activity": [
            {"rank": r, "node": nodes[r // 8], "bins": [0 if r == odd and k > 70 else rng.randrange(5) for k in range(96)]}
            for r in range(n_ranks)
        ],
        "work": [
            {
                "rank": r,
                "node": nodes[r // 8],
                "work_us": 6e8 if r == odd else 4e8,
                "wait_us": 1e7 if r == odd else 2e8,
                "steps": [4000 + 100 * rng.random() + (2000 if r == odd and s > 60 else 0) for s in range(96)],
                "first_step": 1,
                "last_step": 960,
            }
            for r in range(n_ranks)
        ],
        "template_place": [
            {"template_id": f"t{k}", "node": n, "n_events": 8, "first_at": at(offset + seconds * 0.9)}
            for k in range(8)
            for n in nodes
        ],
        "metric": [
            {
                "node": n,
                "device": None,
                "metric": m,
                "unit": "W",
                "grid_start_at": at(offset),
                "step_s": seconds / 160,
                "position": 1,
                "values": [300 + 20 * rng.random() for _ in range(160)],
            }
            for n in nodes
            for m in ("gpu.power.w", "cpu.user_s_rate", "network.rx_bytes_rate", "gpu.sm_active")
        ],
        "trie": [
            {
                "title": "trainer, T0",
                "frames": ["main (t.py:1)", "step (t.py:9)", "all_reduce (d.py:4)"],
                "has": others,
                "missing": [odd],
            },
            {
                "title": "trainer, T0",
                "frames": ["main (t.py:1)", "next_batch (t.py:5)", "read (s.py:8)"],
                "has": [odd],
                "missing": others,
            },
        ],
    }


def pages_alone(folder: Path, given: argparse.Namespace) -> None:
    """Make the pages from parts without Spark, in one process: what a worker does."""
    from jobs.reports import folder as disk
    from jobs.reports.pages.job import job_page
    from jobs.reports.pages.night import Night, night_page
    from jobs.reports.pages.summary import summary

    rng = random.Random(7)
    small = [parts_of(f"job-{i:04}", 16, i * 20.0, 600.0, rng) for i in range(given.jobs)]
    large = parts_of("job-large", given.ranks, 0.0, 7200.0, rng)
    for name, each in ((f"{given.jobs:,} job pages of 16 ranks", small), (f"one page of {given.ranks:,} ranks", [large])):
        began, n_bytes = time.process_time(), 0
        for parts in each:
            n_bytes += disk.write_all(str(folder), job_page(parts, {}, "LAKE").files())
        print(f"{name}: {time.process_time() - began:.2f} s of one core, {n_bytes / 1e6:.2f} MB with their twins")
    began = time.process_time()
    night = night_page(Night([summary(p["job"][0], p["diagnosis"][0]) for p in (*small, large)]))
    disk.write_all(str(folder), night.files())
    print(f"the night of {len(small) + 1:,} jobs: {time.process_time() - began:.2f} s of one core")
    weigh(folder, given)


def weigh(report: Path, given: argparse.Namespace) -> None:
    """Size of three pages, and how long they take to open."""
    for path in (report / "index.html", report / "jobs" / "job-large.html", report / "jobs" / "job-0001.html"):
        load, paint = opened(path, given.chromium)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, opened in {load:.2f} s, first paint {paint:.2f} s")


def opened(path: Path, chromium: str) -> tuple[float, float]:
    """Median seconds from navigation to load, and to the first paint, of five openings."""
    from playwright.sync_api import sync_playwright

    loads, paints = [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        for _ in range(5):
            tab = browser.new_context().new_page()
            tab.goto(path.as_uri(), wait_until="load")
            tab.wait_for_timeout(300)
            timing = tab.evaluate(
                "[performance.getEntriesByType('navigation')[0].loadEventEnd, (performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime]"
            )
            loads.append(timing[0] / 1000)
            paints.append((timing[1] or 0) / 1000)
        browser.close()
    return sorted(loads)[2], sorted(paints)[2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--keep", type=Path, help="folder for lake and pages; a temporary one without it")
    parser.add_argument("--pages", action="store_true", help="make the pages alone, without a lake and without Spark")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        lake, report = folder / "lake", folder / "report"
        if given.pages:
            pages_alone(report, given)
            return
        create_missing(lake)
        began = time.monotonic()
        small_jobs(lake, given.jobs)
        large_job(lake, "job-large", given.ranks)
        print(f"generated in {time.monotonic() - began:.1f} s")
        measure(lake, report, given)


def measure(lake: Path, report: Path, given: argparse.Namespace) -> None:
    from jobs.core import session
    from jobs.core.runner import StageContext
    from jobs.core.stages import stage
    from jobs.core.tables import Lake
    from jobs.reports.job import run

    spark = session.start("reports-bench")
    for name in ("all pages", "nothing changed"):
        began = time.monotonic()
        run(StageContext(stage("reports"), Lake(spark, str(lake)), None, 1, report=str(report)))
        print(f"reports stage, {name}: {time.monotonic() - began:.1f} s")
    spark.stop()
    pages = list(report.rglob("*.html"))
    print(
        f"{len(pages):,} pages, {sum(p.stat().st_size for p in report.rglob('*') if p.is_file()) / 1e6:.1f} MB in all with their twins"
    )
    weigh(report, given)


if __name__ == "__main__":
    main()
