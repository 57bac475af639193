"""The five questions of docs/sql.md, asked over Delta in DuckDB and in Spark: the answers in the docs are the answers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.cli.sql import command, connect, text_table, views
from jobs.core.lake import arrow_schema, create_missing, table_path

T0 = datetime(2026, 11, 24, tzinfo=UTC)


def put(lake, name: str, rows: list[dict]) -> None:
    shape = arrow_schema(name)
    table = pa.Table.from_pylist([{f.name: row.get(f.name) for f in shape} for row in rows], schema=shape)
    write_deltalake(table_path(lake, name), table, mode="overwrite")


def job(job_id: str, state: str, hours: float, gpus: int, user: str, start: float = 0.0) -> dict:
    return {"job_id": job_id, "state": state, "user": user, "started_at": T0 + timedelta(hours=start), "ended_at": T0 + timedelta(hours=start + hours), "nodes": [],
            "n_nodes": gpus // 8, "n_gpus": gpus, "flags": [], "notes": [], "job_hash": "h", "ingest_batch": 1}  # fmt: skip


def diagnosis(job_id: str, symptom: str, cause: str, node: str | None, score: float | None) -> dict:
    return {"job_id": job_id, "state": "FAILED", "symptom": symptom, "cause_class": cause, "cause_confidence": 0.8, "spatial_signal": "localised" if node else "none",
            "top_node": node, "top_score": score, "top_ranks": [], "n_candidates": int(node is not None), "candidate_nodes": [], "n_findings": 1, "n_baselines": 1,
            "is_verified": False, "document": "{}"}  # fmt: skip


@pytest.fixture(scope="module")
def sql_lake(tmp_path_factory):
    """Six jobs, four of them failed; the tables that the views read."""
    lake = tmp_path_factory.mktemp("sql")
    create_missing(lake)
    put(lake, "training_jobs", [
        job("a", "FAILED", 8, 16, "ann"),
        job("b", "NODE_FAIL", 4, 16, "bob", 30.5),  # runs past midnight
        job("c", "FAILED", 0.5, 8, "ann"),
        job("d", "OUT_OF_MEMORY", 1 / 6, 8, "cat"),
        job("e", "COMPLETED", 20, 8, "ann"),
        job("f", "CANCELLED", 5, 8, "bob"),
    ])  # fmt: skip
    put(lake, "diagnoses", [
        diagnosis("a", "hang", "NetworkError", "n2", 0.9), diagnosis("b", "hang", "NetworkError", "n2", 0.8),
        diagnosis("c", "crash", "KeyError", "n3", 0.3),  # too weak to count as naming n3
        diagnosis("d", "oom", "OutOfMemory", "n3", 0.7), diagnosis("e", "none", "undetermined", None, None),
    ])  # fmt: skip
    template = {"is_predefined": False, "n_events": 1, "n_jobs": 1, "library_version": "v"}
    put(lake, "templates", [
        {"template_id": "t1", "template": "Watchdog caught a time-out: rank <*>", "alert": "timeout", **template},
        {"template_id": "t2", "template": "Out of memory: Killed process <*>", "alert": "oom", **template},
        {"template_id": "t3", "template": "NCCL WARN retry <*>", "alert": "nccl", **template},
        {"template_id": "t4", "template": "step <*>", "alert": None, **template},
    ])  # fmt: skip
    count = {
        "role": "trainer",
        "ranks": [],
        "rank_ranges": "",
        "n_ranks": 1,
        "phases": [],
        "levels": [],
        "streams": [],
        "first_at": T0,
    }
    put(lake, "job_templates", [
        {"job_id": j, "template_id": t, "node": n, "n_events": k, **count}
        for j, t, n, k in (("a", "t1", "n1", 4), ("a", "t1", "n2", 4), ("b", "t1", "n2", 6), ("d", "t2", "n3", 1), ("a", "t3", "n1", 2), ("e", "t1", "n1", 9), ("a", "t4", "n1", 99))
    ])  # fmt: skip
    put(lake, "normal_templates", [
        {"template_id": "t3", "n_jobs": 5, "n_lineages": 5, "n_users": 2, "n_configs": 2, "n_nodes": 2, "n_events": 9, "phase_profile": [], "role_profile": [], "is_normal": True, "roles": []}
    ])  # fmt: skip
    put(lake, "reliability_nodes", [
        {"node": n, "n_jobs": k, "exposure_days": d, "n_failures": f, "failures_per_day": f / d, "fired": [], "is_lemon": lemon, "n_intervals": 0, "down_days": 0.0, "source_rows": []}
        for n, k, d, f, lemon in (("n1", 6, 6.0, 0, False), ("n2", 5, 2.0, 2, True), ("n3", 4, 4.0, 1, False))
    ])  # fmt: skip
    put(lake, "reliability_figures", [
        {"figure": "failures_per_node_day_week", "scope_kind": "week", "scope": w, "basis": "measured", "value": n / 20, "low": low, "high": high, "unit": "per node-day", "n_events": n,
         "n_censored": 0, "exposure": 20.0, "is_small": True, "method": "m", "source_table": "training_jobs", "source_rows": [], "n_source_rows": n}
        for w, n, low, high in (("2026-11-16", 1, 0.0012659, 0.2785822), ("2026-11-23", 3, 0.0309336, 0.4383637))
    ])  # fmt: skip
    put(lake, "reliability_lineages", [
        {"lineage_id": i, "n_attempts": a, "n_failures": f, "is_censored": False, "n_nodes": 2.0, "wall_s": w, "queue_s": 0.0, "running_s": w, "lost_s": s,
         "ettr_measured": m, "ettr_expected": e, "ettr_difference": m - e, "method": "m", "source_rows": []}
        for i, a, f, w, s, m, e in (("sft-b", 1, 1, 3600.0, 1800.0, 0.5, 0.99), ("pretrain-a", 3, 2, 53460.0, 11700.0, 0.78114, 0.95), ("quiet", 1, 0, 3600.0, 60.0, 0.9, 0.99))
    ])  # fmt: skip
    return str(lake)


@pytest.fixture(scope="module")
def questions(root) -> list[tuple[str, str]]:
    """(query, answer) pairs of the docs, in order."""
    text = (root / "docs" / "sql.md").read_text("utf-8")
    found = re.findall(r"```sql\n(.*?)```\s+```text\n(.*?)```", text, re.DOTALL)
    assert len(found) == 5
    return found


def trimmed(answer: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in answer.strip().splitlines() if not line.startswith("---")]


def test_duckdb_answers_what_the_docs_say(sql_lake, questions):
    session = connect(sql_lake)
    for query, answer in questions:
        got = session.execute(query)
        text = text_table([c[0] for c in got.description], got.fetchall())
        assert trimmed(text) == trimmed(answer)


@pytest.mark.spark
def test_spark_answers_the_same(sql_lake, questions, spark):
    from schemas import tables

    for name in tables():
        spark.read.format("delta").load(table_path(sql_lake, name)).createOrReplaceTempView(name)
    for statement in views().values():
        spark.sql(statement)
    for query, answer in questions:
        got = spark.sql(query)
        assert trimmed(text_table(got.columns, [tuple(row) for row in got.collect()])) == trimmed(answer)


def test_the_command_answers_lists_and_says_what_is_wrong(sql_lake, tmp_path):
    answer = CliRunner().invoke(
        command, ["--lake", sql_lake, "--json", "SELECT job_id, state FROM v_jobs WHERE is_failed ORDER BY job_id LIMIT 1"]
    )
    assert answer.output == '{"job_id": "a", "state": "FAILED"}\n'
    listed = CliRunner().invoke(command, ["--lake", sql_lake]).output
    assert "v_jobs" in listed
    assert "log_events" in listed
    wrong = CliRunner().invoke(command, ["--lake", sql_lake, "SELEC 1"])
    assert "query: Parser Error" in str(wrong.exception)
    absent = CliRunner().invoke(command, ["--lake", str(tmp_path / "no"), "SELECT * FROM v_jobs"])
    assert "is" in str(absent.exception)
    assert "a lake?" in str(absent.exception)
