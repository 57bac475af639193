"""The stage from log records to templates, events and counts, on real Spark and Delta."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from jobs.core.runner import StageContext
from jobs.core.stages import stage
from jobs.core.tables import spark_schema
from jobs.library import job as library_job
from jobs.templates import job as templates_job
from ml.templates.masking import message_keys
from schemas import tables

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=UTC)


def record(job, message, *, rank=0, node="n1", line=1, phase="train", role="trainer", iteration=None, at=0, file="logs/a.log"):
    return {
        "job_id": job, "file": file, "line": line, "byte_offset": line * 100, "n_lines": 1,
        "occurred_at": START + timedelta(seconds=at), "onset_at": None, "time_source": "line", "time_uncertainty_s": 1.0,
        "node": node, "rank": rank, "local_rank": 0, "role": role, "attempt": 0, "stream": "stdout", "level": "INFO",
        "message": message, "message_key": int(message_keys([message])[0]), "phase": phase, "iteration": iteration,
        "ingest_batch": 1,
    }  # fmt: skip


def training_job(job, state="COMPLETED", **given):
    row = dict.fromkeys(tables()["training_jobs"].names)
    row.update(
        job_id=job, state=state, user="ann", nodes=["n1"], world_size=2, config={"lr": "0.1"}, flags=[], notes=[], job_hash=job,
        started_at=START, ended_at=START + timedelta(hours=1), ingest_batch=1,
    )  # fmt: skip
    return {**row, **given}


def put(lake, name, rows, jobs=None):
    table = tables()[name]
    tuples = [tuple(row.get(column) for column in table.names) for row in rows]
    lake.write(name, lake.spark.createDataFrame(tuples, spark_schema(table)), jobs)


def rows(lake, name, *columns):
    return sorted(tuple(row) for row in lake.read(name).select(*columns).collect())


def night(lake, pending, name="templates", **settings):
    module = {"templates": templates_job, "library": library_job}[name]
    module.run(StageContext(stage(name), lake, pending, 1, settings=settings))


MESSAGES = [
    "rank 3: step 10 took 4.5 s", "built index for send", "built index for receive", "opening /data/x/1.bin",
    "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", " iteration 5/ 140 | lm loss: 5.1E+00 |", "user ann logged in",
]  # fmt: skip


def archive(job):
    return [record(job, message, line=n, rank=n % 2, at=n) for n, message in enumerate(MESSAGES, 1)]


def test_any_order_and_any_number_of_partitions_give_the_same_tables(spark, tmp_path):
    from jobs.core.tables import Lake, create_missing

    found = []
    records = archive("job-1") + archive("job-2")
    for number, partitions in enumerate((1, 7)):
        lake = Lake(spark, str(tmp_path / str(number)))
        create_missing(lake.root)
        shuffled = random.Random(number).sample(records, len(records))
        put(lake, "training_jobs", [training_job("job-1"), training_job("job-2")])
        put(lake, "log_records", shuffled)
        before = spark.conf.get("spark.sql.shuffle.partitions")
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        night(lake, None)
        spark.conf.set("spark.sql.shuffle.partitions", before)
        columns = [c for c in tables()["job_templates"].names if c != "phases"]
        found.append(
            [
                rows(lake, "templates", *tables()["templates"].names),
                rows(lake, "log_events", "job_id", "line", "template_id", "library_version"),
                sorted(map(str, rows(lake, "job_templates", *columns))),
                rows(lake, "message_templates", "message_key", "template_id", "masked"),
            ]
        )
    assert found[0] == found[1]
    texts = {row[1] for row in found[0][0]}
    assert {"built index for send", "built index for receive", "rank <*>: step <*> took <*> s"} <= texts


def test_counts_name_ranks_times_phases_and_the_first_place(lake):
    put(lake, "training_jobs", [training_job("job-1")])
    put(
        lake, "log_records",
        [record("job-1", f"loaded shard {n}", rank=r, line=n, at=n, phase=p, iteration=n) for n, (r, p) in
         enumerate([(0, "load"), (1, "load"), (2, "train"), (5, "train"), (1, "train")], 1)],
    )  # fmt: skip
    night(lake, None)
    (row,) = lake.read("job_templates").collect()
    assert (row.n_events, row.rank_ranges, row.ranks, row.n_ranks) == (5, "0-2,5", [0, 1, 2, 5], 4)
    assert (row.first_iteration, row.last_iteration, row.first_phase, row.phases) == (1, 5, "load", {"load": 2, "train": 3})
    assert (row.example_file, row.example_line, row.levels, row.streams) == ("logs/a.log", 1, ["INFO"], ["stdout"])
    (template,) = lake.read("templates").collect()
    assert (template.template, template.example, template.n_events, template.n_jobs) == ("loaded shard <*>", "loaded shard 1", 5, 1)


def test_an_id_that_a_template_outgrows_stays_reachable_and_old_counts_follow(lake):
    put(lake, "training_jobs", [training_job("job-1"), training_job("job-2")])
    put(lake, "log_records", [record("job-1", f"removing {word}", line=n) for n, word in enumerate(("echo", "time"), 1)], ["job-1"])
    night(lake, ("job-1",))
    old = {row[0] for row in rows(lake, "job_templates", "template_id")}
    assert len(old) == 2  # two words are two templates
    more = [record("job-2", f"removing {word}", line=n) for n, word in enumerate(("ftp", "telnet", "rsync", "printer"), 1)]
    put(lake, "log_records", more, ["job-2"])
    night(lake, ("job-2",))
    (template,) = rows(lake, "templates", "template_id", "template", "n_events", "n_jobs")
    assert template[1:] == ("removing <*>", 6, 2)  # six words are one variable
    now = dict(rows(lake, "template_aliases", "alias_id", "template_id"))
    assert {now[name] for name in old} == {template[0]}
    assert rows(lake, "job_templates", "job_id", "template_id", "n_events") == [
        ("job-1", template[0], 2),
        ("job-2", template[0], 4),
    ]


def test_a_night_that_runs_twice_changes_nothing(lake):
    put(lake, "training_jobs", [training_job("job-1")])
    put(lake, "log_records", archive("job-1"))
    night(lake, ("job-1",))
    names = ("templates", "template_aliases", "message_templates", "log_events")
    first = [rows(lake, name, *tables()[name].names) for name in names]
    night(lake, ("job-1",))
    assert [rows(lake, name, *tables()[name].names) for name in names] == first
    night(lake, None)
    assert [rows(lake, name, *tables()[name].names) for name in names] == first


def test_a_site_adds_its_own_templates(lake, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("predefined: [{id: site.banner, template: 'banner <*>', pattern: '^welcome to', provenance: platform}]")
    put(lake, "training_jobs", [training_job("job-1")])
    put(lake, "log_records", [record("job-1", "welcome to cluster 7"), record("job-1", "welcome to hell", line=2)])
    night(lake, None, template_rules=str(rules))
    assert rows(lake, "templates", "template_id", "template", "is_predefined", "n_events") == [
        ("site.banner", "banner <*>", True, 2)
    ]


def test_error_text_of_many_successful_jobs_never_becomes_normal(lake):
    names = [f"job-{n}" for n in range(8)]
    put(lake, "training_jobs", [training_job(name, user=f"user{n % 3}", config={"lr": str(n % 2)}) for n, name in enumerate(names)])
    put(
        lake, "log_records",
        [r for name in names for r in (
            record(name, "RuntimeError: CUDA error: an illegal memory access was encountered", rank=1),
            record(name, "NCCL WARN Call to connect failed", rank=0, line=2),
            record(name, "training is set up", rank=0, line=3), record(name, "training is set up", rank=1, line=4),
            record(name, "fetching 5% of weights", rank=0, line=5),
            record(name, "agent saw 2 workers", rank=None, role="launcher", line=6),
        )] + [record("job-0", "once only", line=7)],
    )  # fmt: skip
    put(lake, "ranks", [{"job_id": name, "rank": rank, "node": "n1"} for name in names for rank in (0, 1)])
    night(lake, None)
    night(lake, None, "library")
    library = {
        row.template: row
        for row in lake.read("normal_templates")
        .join(lake.read("templates").select("template_id", "template"), "template_id")
        .collect()
    }
    is_normal = {text: row.is_normal for text, row in library.items()}
    assert is_normal == {
        "RuntimeError: CUDA error: an illegal memory access was encountered": False, "NCCL WARN Call to connect failed": False,
        "training is set up": True, "fetching <*>% of weights": True, "agent saw <*> workers": True, "once only": False,
    }  # fmt: skip
    assert library["fetching <*>% of weights"].noise_role == "rank0"
    assert library["agent saw <*> workers"].noise_role == "control_plane"
    usual = library["training is set up"]
    assert (usual.noise_role, usual.n_jobs, usual.n_users, usual.n_configs, usual.n_nodes) == (None, 8, 3, 2, 1)
    assert (usual.rate_per_rank_hour, usual.rate_spread, usual.share_of_ranks) == (1.0, 0.0, 1.0)
    assert usual.phase_profile == {"train": 1.0}


def test_a_deleted_job_leaves_nothing_behind_counts_included(spark, tmp_path):
    from jobs.core.tables import Lake, create_missing
    from jobs.templates.deletion import forget, vacuum

    secret = [record("job-2", "my secret project banner", line=8), record("job-2", "RuntimeError: only mine", line=9)]
    first = [record("job-1", m, line=n, rank=n % 2, at=n + 50) for n, m in enumerate(MESSAGES, 1)]
    found = []
    for number, records in enumerate((first + archive("job-2") + secret, first)):
        lake = Lake(spark, str(tmp_path / str(number)))
        create_missing(lake.root)
        put(lake, "training_jobs", [training_job(name) for name in {r["job_id"]: 0 for r in records}])
        put(lake, "log_records", records)
        night(lake, None)
        found.append(lake)
    deleted = forget(found[0].root, "job-2")
    assert (deleted["training_jobs"], deleted["log_records"], deleted["log_events"], deleted["message_templates"]) == (1, 9, 9, 2)
    compared = {
        "templates": [c for c in tables()["templates"].names if c != "library_version"],
        "message_templates": ["message_key", "template_id", "masked"],
        "template_aliases": ["alias_id", "template_id"],
        "log_events": ["job_id", "line", "template_id"],
        "job_templates": ["job_id", "template_id", "n_events", "rank_ranges"],
    }
    for name, columns in compared.items():
        assert rows(found[0], name, *columns) == rows(found[1], name, *columns), name
    assert forget(found[0].root, "job-2") == {}
    vacuum(found[0].root)
    left = [path for path in (tmp_path / "0").rglob("*") if path.is_file() and b"secret project" in path.read_bytes()]
    assert left == []
