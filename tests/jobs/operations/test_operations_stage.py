"""The `operations` stage on Spark: jobs of a few rows, baselines, and what it writes."""

import datetime as dt

import pytest
from pyspark.sql import Row

from jobs.core.tables import spark_schema
from jobs.operations import transform
from schemas import tables
from schemas.contract import discrepancies

pytestmark = pytest.mark.spark

N_STEPS = 30
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def frame(spark, name, rows):
    columns = [c.name for c in tables()[name].columns]
    return spark.createDataFrame([tuple(row.get(c) for c in columns) for row in rows], spark_schema(tables()[name]))


def operations(job, slow_rank=None, scale=1.0):
    """Four ranks on two nodes: forward, then an all-reduce of 20 ms that waits for the slowest."""
    rows, begin = [], 1_000_000
    for step in range(N_STEPS):
        ends = [begin + int(scale * (250_000 if rank == slow_rank else 100_000 + 500 * ((rank + step) % 3))) for rank in range(4)]
        last = max(ends) + int(20_000 * scale)
        for rank, end in enumerate(ends):
            common = {"job_id": job, "node": f"n{rank // 2}", "rank": rank, "step": step, "n_calls": 1, "sequence": 0,
                      "source": "timeline", "file": f"traces/timeline_rank{rank}.jsonl"}  # fmt: skip
            rows += [
                common | {"kind": "forward", "layer": "host", "name": "forward", "started_us": begin, "duration_us": float(end - begin)},
                common | {"kind": "collective", "layer": "collective", "name": "dp-allreduce", "group": "dp",
                          "started_us": end, "duration_us": float(last - end)},
            ]  # fmt: skip
        begin = last
    return rows


def job(job_id, **more):
    return {"job_id": job_id, "state": "COMPLETED", "nodes": ["n0", "n1"], "n_gpus": 4, "world_size": 4, "flags": [], "notes": [],
            "job_hash": job_id, "ingest_batch": 1, "started_at": START, "ended_at": START + dt.timedelta(hours=1),
            "config": {}} | more  # fmt: skip


def ranks(job_id):
    return [
        {
            "job_id": job_id,
            "rank": r,
            "node": f"n{r // 2}",
            "role": "trainer",
            "device": f"cpu:{r % 2}",
            "groups": {"dp": [0, 1, 2, 3]},
        }
        for r in range(4)
    ]


def analysed(spark, jobs, operation_rows, iteration_rows=(), baseline_rows=()):
    ids = [j["job_id"] for j in jobs]
    baselines = transform.chosen_baselines(frame(spark, "baselines", baseline_rows))
    ops, iterations = frame(spark, "operations", operation_rows), frame(spark, "iterations", iteration_rows)
    facts = transform.facts(
        frame(spark, "training_jobs", jobs),
        frame(spark, "ranks", [r for i in ids for r in ranks(i)]),
        transform.iteration_times(iterations),
        transform.expected(
            baselines,
            transform.operation_profiles(transform.of_baselines(ops, baselines)),
            transform.typical_iterations(transform.of_baselines(iterations, baselines)),
        ),
    )
    rows = transform.analysed(ops, facts).persist()
    return transform.findings(rows), transform.reports(rows)


def test_the_slow_rank_of_one_job_is_found_and_the_other_job_is_clean(spark):
    findings, reports = analysed(spark, [job("slow"), job("well")], operations("slow", slow_rank=2) + operations("well"))
    accusing = [r for r in findings.collect() if r.score >= 0.5 and r.nodes]
    assert [(r.job_id, r.kind, r.nodes, r.ranks, r.layer) for r in accusing] == [("slow", "slow_worker", ["n1"], [2], "host")]
    assert accusing[0].refs == [Row(file="traces/timeline_rank2.jsonl", line=None)]
    by_job = {r.job_id: r for r in reports.collect()}
    assert by_job["slow"].slowdown > 1.5 > 1.05 > by_job["well"].slowdown
    assert by_job["slow"].cause == "worker"
    assert by_job["slow"].workers[0].rank == 2
    assert by_job["slow"].gpu_hours == 4.0  # an hour on four devices
    assert by_job["slow"].gpu_hours_wasted == pytest.approx(4.0 * by_job["slow"].waste)
    assert by_job["slow"].rank_coverage == 1.0


def test_what_is_written_fits_the_contracts(spark):
    from pyspark.sql.pandas.types import to_arrow_schema

    findings, reports = analysed(spark, [job("slow")], operations("slow", slow_rank=2))
    assert discrepancies(tables()["operation_findings"], to_arrow_schema(findings.schema, timezone="UTC")) == []
    assert discrepancies(tables()["straggler_reports"], to_arrow_schema(reports.schema, timezone="UTC")) == []


def test_a_job_is_compared_with_its_baselines(spark):
    baseline = {"job_id": "now", "position": 1, "baseline_job_id": "before", "score": 0.9, "differing": []}
    findings, reports = analysed(
        spark, [job("now"), job("before")], operations("now", scale=1.5) + operations("before"), baseline_rows=[baseline]
    )
    (slower,) = [r for r in findings.collect() if r.kind == "slower_than_baselines"]
    assert (slower.job_id, slower.axis, slower.nodes) == ("now", "cross_job", [])
    report = {r.job_id: r for r in reports.collect()}["now"]
    assert report.baseline_slowdown == pytest.approx(1.5, rel=0.02)
    assert report.is_degraded


def test_printed_iterations_are_enough_for_step_times_but_not_for_a_what_if(spark):
    lines = [
        {"job_id": "logs", "iteration": i, "step_time_s": 2.0 if i < 40 else 3.0, "file": "logs/a.log", "line": i + 1, "values": {}}
        for i in range(80)
    ]
    findings, reports = analysed(spark, [job("logs"), job("silent")], [], lines)
    (report,) = reports.collect()  # a job that left neither has no report
    assert (report.job_id, report.slowdown, report.refused) == ("logs", None, "no operations were recorded")
    assert report.own_slowdown == pytest.approx(1.5)
    assert report.slow_from_iteration == 40
    (rise,) = findings.collect()
    assert (rise.kind, rise.iteration, rise.nodes, rise.is_global) == ("step_time_rise", 40, [], True)


def test_a_job_without_ranks_or_with_a_rank_missing_still_gets_its_report(spark):
    rows = [r for r in operations("partial") if r["rank"] != 3]
    _, reports = analysed(spark, [job("partial")], rows)
    (report,) = reports.collect()
    assert report.rank_coverage == 0.75
    assert report.notes[0] == "1 ranks left no operations, the first is rank 3"
