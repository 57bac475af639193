"""Container logs, kernel lines, error files and scheduler exports, each as its tool writes it."""

from __future__ import annotations

import json

import pytest

TRACE = ["Traceback (most recent call last):", '  File "/w/a.py", line 1, in f', "    g()", "ValueError: no"]


def by_offset(rows):
    return sorted(rows["log_records"], key=lambda r: (r["file"], r["byte_offset"]))


def test_cri_parts_are_joined_and_a_traceback_becomes_one_event(job, read):
    lines = [
        "2026-11-30T03:00:01.5Z stdout P first ",
        "2026-11-30T03:00:01.6Z stderr F aside",
        "2026-11-30T03:00:01.7Z stdout F half",
    ]
    lines += [f"2026-11-30T03:00:0{2 + i}Z stderr F {line}" for i, line in enumerate(TRACE)] + [
        "2026-11-30T03:00:09Z stderr F",
        "garbage",
    ]
    rows = read(job({"logs/ns_pod_1234-5678/main/0.log": "\n".join(lines) + "\n"}))
    found = {row["message"]: row for row in rows["log_records"]}
    assert set(found) == {"first half", "aside", "\n".join(TRACE)}
    assert found["first half"]["occurred_at"].isoformat() == "2026-11-30T03:00:01.500000+00:00"
    assert found["\n".join(TRACE)]["n_lines"] == 4
    assert [row["reason"] for row in rows["quarantine"]] == ["bad_value"]


def test_docker_lines_end_where_the_log_ends_them(job, read):
    records = [
        {"log": "long ", "stream": "stdout", "time": "2026-11-30T03:00:00Z"},
        {"log": "line\n", "stream": "stdout", "time": "2026-11-30T03:00:01Z"},
        {"log": "ERROR bad\n", "stream": "stderr", "time": "2026-11-30T03:00:02Z"},
    ]
    rows = by_offset(read(job({"logs/c-json.log": "".join(json.dumps(r) + "\n" for r in records)})))
    assert [(row["message"], row["level"], row["time_source"]) for row in rows] == [
        ("long line", None, "json"),
        ("bad", "ERROR", "json"),
    ]


def test_loki_prints_the_newest_first_and_is_turned_around(job, read):
    records = [
        {"labels": {"node": "n1", "rank": "3"}, "line": line, "timestamp": f"2026-11-30T03:00:0{i}Z"}
        for i, line in enumerate(TRACE)
    ]
    rows = read(job({"logs/loki.jsonl": "".join(json.dumps(r) + "\n" for r in reversed(records))}))["log_records"]
    assert [(row["message"], row["node"], row["rank"]) for row in rows] == [("\n".join(TRACE), "n1", 3)]
    assert rows[0]["occurred_at"].isoformat() == "2026-11-30T03:00:00+00:00"


def test_other_json_lines_are_read_by_their_usual_keys(job, read):
    text = '{"@timestamp":"2026-11-30T03:00:00Z","message":"INFO hello","kubernetes":{"host":"n0"}}\n{"date":1796007845.5,"log":"again"}\n'
    rows = by_offset(read(job({"logs/fluent.jsonl": text})))
    assert [(row["message"], row["node"]) for row in rows] == [("hello", "n0"), ("again", None)]


@pytest.mark.parametrize(
    ("line", "kind", "code", "device", "severity"),
    [
        (
            "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "xid",
            79,
            "0000:05:00",
            "critical",
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6)",
            "xid",
            149,
            "0009:01:00",
            "critical",
        ),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=123", "xid", 31, "0000:01:00", "warning"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", "sxid", 12028, "0000:05:00.0", "warning"),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "sxid",
            20034,
            "0000:00:00.0",
            "critical",
        ),
        ("Out of memory: Killed process 123 (python)", "oom_kill", None, None, "critical"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=1", "oom_kill", None, None, "critical"),
        ("Buffer I/O error on dev nvme0n1p1, logical block 7", "io_error", None, "nvme0n1p1", "critical"),
        ("EXT4-fs (dm-0): Remounting filesystem read-only", "filesystem", None, "dm-0", "critical"),
        ("mlx5_core 0000:5c:00.0 eth2: Link down", "link_down", None, "eth2", "warning"),
        ("IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready", "link_up", None, "ib0", "info"),
        ("INFO: task python:12 blocked for more than 120 seconds.", "hung_task", None, None, "warning"),
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:22]", "lockup", None, None, "critical"),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "ecc", None, None, "warning"),
        ("python[77]: segfault at 0 ip 00 sp 00 error 4 in libnccl.so.2", "segfault", None, None, "warning"),
    ],
)
def test_kernel_lines_become_node_events(job, read, line, kind, code, device, severity):
    rows = read(
        job({"events/n1/dmesg.log": f"[Mon Nov 30 03:10:00 2026] {line}\n[Mon Nov 30 03:10:01 2026] usb 1-1: new device\n"})
    )
    (event,) = rows["node_events"]
    assert (event["kind"], event["code"], event["device"], event["severity"], event["node"]) == (kind, code, device, severity, "n1")
    assert event["occurred_at"].isoformat() == "2026-11-30T03:10:00+00:00"
    assert len(rows["log_records"]) == 2  # every line is kept as well


def test_the_host_and_time_of_syslog_and_journald_lines_are_taken(job, read):
    journal = {"__REALTIME_TIMESTAMP": "1796007845000000", "_HOSTNAME": "n0", "MESSAGE": [*b"NVRM: Xid (PCI:0000:05:00): 48, DBE"]}
    rows = read(
        job(
            {
                "events/messages": "Nov 30 03:04:05 n1 kernel: Out of memory: Killed process 1 (x)\n" * 2,
                "events/journal.json": json.dumps(journal) + "\n",
            }
        )
    )
    assert {(e["node"], e["kind"], e["occurred_at"].isoformat()) for e in rows["node_events"]} == {
        ("n1", "oom_kill", "2026-11-30T03:04:05+00:00"),
        ("n0", "xid", "2026-11-30T03:04:05+00:00"),
    }


def test_every_telling_line_of_a_real_collection_is_understood(shared_data, read):
    from jobs.adapters.kernel_words import told_by

    lines = [
        line for line in (shared_data / "kernel/kernel_lines.txt").read_text(errors="replace").split("\n") if "Xid (PCI" in line
    ]
    numbered = [line for line in lines if line.split("): ")[-1][:1].isdigit()]
    assert numbered
    for line in numbered:
        told = told_by(line)
        assert told is not None
        assert told.code == int("".join(c for c in line.split("): ", 1)[1].split(",")[0] if c.isdigit())), line


@pytest.mark.parametrize(
    "content",
    [
        {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "\n".join(TRACE), "timestamp": "1796007845"}}},
        {"message": "\n".join(TRACE), "timestamp": 1796007845},
    ],
)
def test_an_error_file_is_the_failure_of_its_rank(job, read, content):
    (row,) = read(job({"logs/n1/r_x/attempt_0/1/error.json": json.dumps(content)}))["log_records"]
    assert (row["message"], row["rank"], row["node"], row["level"]) == ("\n".join(TRACE), 3, "n1", "ERROR")
    assert row["occurred_at"].isoformat() == "2026-11-30T03:04:05+00:00"


SUMMARY = """============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_03:20:32
  host      : n1
  rank      : 2 (local_rank: 0)
  exitcode  : -9 (pid: 7)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 7
============================================================
"""


def test_an_agents_summary_is_one_event_and_dates_the_last_words_of_its_rank(job, read):
    agent = (
        "E1130 03:20:33.000000 1 api.py:9] failed (exitcode: -9)\n"
        + "\n".join(TRACE[:3])
        + "\ntorch.x.ChildFailedError: \n"
        + SUMMARY
    )
    last = "2026-11-30 03:00:00.000 [rank2] hello\n" + "\n".join(TRACE) + "\n"
    rows = read(job({"logs/n1/agent.log": agent, "logs/n1/r_x/attempt_0/0/stderr.log": last}))
    assert [row["n_lines"] for row in by_offset(rows)] == [1, 19, 1, 4]
    words = next(row for row in rows["log_records"] if row["message"] == "\n".join(TRACE))
    assert (words["occurred_at"].isoformat(), words["time_source"], words["time_uncertainty_s"]) == (
        "2026-11-30T03:20:32+00:00",
        "interpolated",
        1.0,
    )


def test_a_watchdogs_onset_is_its_stamp_minus_the_time_it_waited(job, read):
    line = "[rank0]:[E1130 03:20:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, Timeout(ms)=600000) ran for 600000 milliseconds before timing out.\n"
    (row,) = read(job({"logs/rank0.log": line}))["log_records"]
    assert (row["occurred_at"].isoformat(), row["onset_at"].isoformat()) == (
        "2026-11-30T03:20:00+00:00",
        "2026-11-30T03:10:00+00:00",
    )


def test_writers_without_progress_lines_take_iteration_and_phase_from_the_job(job, read):
    progress = "".join(
        f"2026-11-30 03:0{m}:00.000 [rank0] iteration {m * 10}/ 90 | lm loss: 1.0 | elapsed time per iteration (ms): 5.0 |\n"
        for m in range(1, 6)
    )
    rows = read(
        job(
            {
                "logs/n0/r_x/attempt_0/0/stdout.log": progress,
                "logs/n1/r_x/attempt_0/1/stdout.log": "2026-11-30 03:03:30.000 [rank3] hello\n",
            }
        )
    )
    hello = next(row for row in rows["log_records"] if row["message"] == "hello")
    assert (hello["rank"], hello["iteration"], hello["phase"]) == (3, 30, "train")
    assert rows["iterations"][0]["step_time_s"] == 0.005


@pytest.mark.parametrize(
    ("line", "iteration", "loss", "step_time_s"),
    [
        (
            " iteration      200/  500000 | consumed samples:       204800 | elapsed time per iteration (ms): 9123.4 | lm loss: 7.412345E+00 | loss scale: 1.0 | number of skipped iterations:   0 |",
            200,
            7.412345,
            9.1234,
        ),
        (
            "[2024-07-20 21:30:05,202] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[4.9e-05], mom=[(0.9, 0.95)]",
            10,
            None,
            None,
        ),
        ("step: 10  loss:  7.1234  grad_norm:  1.2345  memory: 45.12GiB(56.98%)  tps: 6,521  mfu: 12.48%", 10, 7.1234, None),
        ("eta: 2:09:04  iter: 450  time: 0.2031 (0.1958)  data: 0.0001 (0.0105)  loss: 1.1377 (1.4465)", 450, 1.1377, 0.2031),
        ("Training epoch 0, iteration 7/99 | lr: 0 | reduced_train_loss: 11.03 | train_step_timing in s: 12.9", 7, 11.03, 12.9),
    ],
)
def test_iteration_lines_of_any_framework_are_key_value_pairs(job, read, line, iteration, loss, step_time_s):
    (row,) = read(job({"logs/rank0.log": line + "\n"}))["iterations"]
    assert (row["iteration"], row["loss"], row["step_time_s"]) == (iteration, loss, step_time_s)


def test_an_argument_block_becomes_configuration(job, read):
    text = "------------------------ arguments ------------------------\n  hidden_size ..................................... 4096\n  lr .............................................. 0.0001\n-------------------- end of arguments ---------------------\n"
    config = dict(read(job({"logs/rank0.log": text}))["training_jobs"][0]["config"])
    assert (config["args.hidden_size"], config["args.lr"]) == ("4096", "0.0001")


@pytest.mark.parametrize("name", ["fake-line-break", "one-multiline", "multiple-multiline"])
def test_broken_sacct_records_are_joined_as_expected(shared_data, name):
    from jobs.adapters.sacct import SacctReader

    folder = shared_data / "slurm"
    with open(folder / f"sample-sacct-{name}.txt", "rb") as stream:
        reader = SacctReader(stream)
        found = [reader.delimiter.join(record.fields[n] for n in reader.names) for record in reader.records()]
    assert found == (folder / f"sample-sacct-{name}-expected.txt").read_text().rstrip("\n").split("\n")[1:]
    assert not reader.problems


def test_an_archive_without_records_gets_its_jobs_from_sacct_and_paths(tmp_path):
    from jobs.adapters.archive import find_jobs
    from jobs.adapters.job_reader import read_files

    (tmp_path / "sacct.txt").write_text(
        "JobIDRaw|JobName|Cluster|State|Submit|Start|End|NodeList|ExitCode\n123|gpt|c|CANCELLED by 7|2026-11-30T02:00:00|2026-11-30T03:00:00|2026-11-30T04:00:00|gpu[001-002]|0:15\n"
    )
    (tmp_path / "slurm-123.out").write_text("0: 2026-11-30 03:00:00 hello\n1: 2026-11-30 03:00:01 hello\n0: x\n1: y\n")
    (tmp_path / "other.log").write_text(
        'Traceback (most recent call last):\n  File "a", line 1, in f\nE: x\ntorch.ChildFailedError: \n'
    )
    found = {job.job_id: job for job in find_jobs(tmp_path)}
    assert set(found) == {"c/123@2026-11-30T02:00:00", "other", "scheduler/sacct"}
    with read_files(found["scheduler/sacct"]) as export:  # in the ledger, and no job
        books = export.tables()
    assert "training_jobs" not in books
    assert books["ingested_files"]["n_kept"].to_pylist() == [2]
    with read_files(found["c/123@2026-11-30T02:00:00"]) as done:
        tables = done.tables()
    (row,) = tables["training_jobs"].to_pylist()
    assert (row["name"], row["state"], row["nodes"]) == ("gpt", "CANCELLED", ["gpu001", "gpu002"])
    assert "assumed_zone" in row["flags"]
    assert "the scheduler's times name no zone: they were taken as UTC" in row["notes"]
    assert tables["log_records"]["rank"].to_pylist() == [0, 1, 0, 1]


def test_mixed_ranks_of_real_runs_are_taken_apart(shared_data):
    """GLM-130B's runs: eight ranks into one file, lines glued together; labels hold the outcome and the exception."""
    import csv

    from jobs.adapters.archive import find_jobs
    from jobs.adapters.job_reader import read_files

    with open(shared_data / "glm130b/labels.csv") as file:
        labels = {row["file"]: row for row in csv.DictReader(file)}
    n_failed = n_found = 0
    for each in find_jobs(shared_data / "glm130b/logs"):
        label = labels.get(each.job_id + ".log")
        if label and label["outcome_auto"] == "failed" and label["first_exception"]:
            with read_files(each) as done:
                texts = [
                    m
                    for batch in done.rows.batches("log_records")
                    for m in batch["message"].to_pylist()
                    if m.startswith("Traceback")
                ]
            n_failed += 1
            n_found += any(
                text.split("\n")[-1].startswith(label["first_exception"]) or f"\n{label['first_exception']}" in text
                for text in texts
            )
    assert n_failed > 20
    assert n_found / n_failed > 0.9


def test_a_job_that_has_a_record_and_a_row_of_accounting_is_one_job(tmp_path):
    from jobs.adapters.archive import find_jobs

    export = (
        "JobID|JobIDRaw|Cluster|State|Submit|Start|End\n"
        "7|7|a|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:05|2026-01-01T01:00:00\n"  # an earlier run under the same id
        "7|7|a|COMPLETED|2026-02-01T00:00:00|2026-02-01T00:00:05|2026-02-01T01:00:00\n"  # the run of the record
        "8|8|a|FAILED|2026-02-01T00:00:00|2026-02-01T00:00:05|2026-02-01T01:00:00\n"  # no folder at all
    )
    (tmp_path / "sacct.txt").write_text(export)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.json").write_text('{"job_id": "7", "state": "COMPLETED"}')
    jobs = [job.job_id for job in find_jobs(tmp_path) if not job.job_id.startswith("scheduler/")]
    assert jobs == ["7", "a/7@2026-01-01T00:00:00", "a/8@2026-02-01T00:00:00"]


def test_metrics_beside_a_tree_of_rank_logs_are_of_the_same_run(tmp_path):
    from jobs.adapters.archive import find_jobs

    paths = (
        "run7/logs/n1/r_x/attempt_0/0/stdout.log", "run7/metrics/n1.csv",  # one run
        "run8/metrics/n1.csv",  # a folder without a tree: nothing says that it is a run
        "2022.log",
    )  # fmt: skip
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x\n")
    found = {job.job_id: [file.path for file in job.files] for job in find_jobs(tmp_path)}
    assert found == {"2022": ["2022.log"], "run7": list(paths[:2]), "run8/metrics/n1": ["run8/metrics/n1.csv"]}
