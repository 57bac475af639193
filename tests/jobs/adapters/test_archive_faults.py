"""Rows 6, 7, 10 to 12, 22 to 33, 35, 46 and 47 of the fault matrix: files, bundles, clocks, metrics, secrets."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import socket
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from jobs.adapters import archive, bundles, job_results, redaction, streams

LINE = "2026-11-30 03:00:00.000 [rank{r}] hello {i}\n"
WHERE = "logs/n{n}/r_x/attempt_0/{l}/stdout.log"


def log_of(rank, n_lines=3):
    return "".join(LINE.format(r=rank, i=i) for i in range(n_lines))


def ranks_logs(ranks):
    return {WHERE.format(n=r // 2, l=r % 2): log_of(r) for r in ranks}


def reasons(rows):
    return {row["reason"] for row in rows["quarantine"]}


def states(rows):
    return {row["path"]: row["state"] for row in rows["ingested_files"]}


def test_6_a_file_that_cannot_be_opened_is_in_quarantine_and_the_job_partial(job, read, monkeypatch):
    """Root may open anything, so the refusal is made where the file is opened; a vanished one is really gone."""
    root = job(ranks_logs(range(4)))
    denied = str(root / WHERE.format(n=1, l=1))
    real = open

    def refuse(place, *given, **named):
        if str(place) == denied:
            raise PermissionError(13, "Permission denied")
        return real(place, *given, **named)

    monkeypatch.setattr("builtins.open", refuse)
    rows = read(root)
    assert "unreadable" in reasons(rows)
    assert {"unreadable_files", "partial"} <= set(rows["training_jobs"][0]["flags"])
    assert {row["rank"] for row in rows["log_records"]} == {0, 1, 2}


def test_6_a_file_that_vanishes_between_listing_and_reading_is_noted(job):
    from jobs.adapters.archive import find_jobs
    from jobs.adapters.job_reader import read_files

    root = job(ranks_logs(range(4)))
    (listed,) = find_jobs(root)
    (root / WHERE.format(n=0, l=0)).unlink()
    with read_files(listed) as done:
        rows = {name: table.to_pylist() for name, table in done.tables().items()}
    assert reasons(rows) == {"vanished"}


def test_7_missing_ranks_lower_the_coverage_and_are_not_called_healthy(job, read):
    record = {
        "job_id": "j",
        "state": "FAILED",
        "nodes": [f"n{n}" for n in range(8)],
        "world_size": 16,
        "ranks": [{"rank": r, "node": f"n{r // 2}", "local_rank": r % 2} for r in range(16)],
    }
    (row,) = read(job(ranks_logs(r for r in range(16) if r not in (3, 8, 9)), record))["training_jobs"]
    assert dict(row["coverage"])["logs"] == 13 / 16
    assert {"missing_ranks", "missing_nodes"} <= set(row["flags"])
    assert any("13 of 16 ranks; missing is not healthy: ranks 3, 8, 9" in note for note in row["notes"])


def test_10_a_copy_is_an_alias_and_changes_no_count(job, read):
    once = read(job(ranks_logs(range(4))))
    root = job({"backup/" + WHERE.format(n=0, l=0): log_of(0)})
    twice = read(root)
    assert len(twice["log_records"]) == len(once["log_records"])
    alias = next(row for row in twice["ingested_files"] if row["state"] == "alias")
    assert {alias["path"], alias["alias_of"]} == {WHERE.format(n=0, l=0), "backup/" + WHERE.format(n=0, l=0)}


def test_10_ranks_that_fail_alike_are_no_copies_of_each_other(job, read):
    text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import x\nModuleNotFoundError: No module named 'x'\n"
    rows = read(job({f"logs/n{r // 2}/r_x/attempt_0/{r % 2}/stderr.log": text for r in range(4)}))
    assert sorted(row["rank"] for row in rows["log_records"]) == [0, 1, 2, 3]


def test_11_an_id_that_the_scheduler_used_twice_makes_two_jobs(tmp_path):
    from jobs.adapters.archive import find_jobs

    (tmp_path / "sacct.txt").write_text(
        "JobID|JobIDRaw|Cluster|State|Submit|Start|End\n"
        "7|7|a|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T00:01:00\n"
        "7|7|a|COMPLETED|2026-02-01T00:00:00|2026-02-01T00:00:01|2026-02-01T00:01:00\n"
        "7.batch|7.batch|a|COMPLETED|2026-02-01T00:00:00|2026-02-01T00:00:01|2026-02-01T00:01:00\n"
    )
    found = {job.job_id for job in find_jobs(tmp_path)}
    assert {"a/7@2026-01-01T00:00:00", "a/7@2026-02-01T00:00:00"} <= found


def test_11_two_folders_with_one_id_are_two_jobs_that_say_so(tmp_path):
    from jobs.adapters.archive import find_jobs

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "job.json").write_text('{"job_id": "same", "state": "FAILED"}')
    first, second = find_jobs(tmp_path)
    assert (first.job_id, second.job_id, second.flags) == ("same", "same~2", ("duplicate_job_id",))


def test_12_attempts_stay_apart(job, read):
    line = "2026-11-30 03:0{a}:00.000 [rank0] iteration {i}/ 100 | lm loss: 1.0 | elapsed time per iteration (ms): 5.0 |\n"
    rows = read(job({f"logs/n0/r_x/attempt_{a}/0/stdout.log": "".join(line.format(a=a, i=i) for i in (5, 10)) for a in (0, 1)}))
    assert {row["attempt"] for row in rows["log_records"]} == {0, 1}
    assert [row["iteration"] for row in sorted(rows["iterations"], key=lambda r: r["occurred_at"])] == [5, 10, 5, 10]
    assert "restarts" in rows["training_jobs"][0]["flags"]


def test_22_a_clock_that_is_seven_minutes_off_is_found_and_put_right(job, read):
    record = {"job_id": "j", "state": "FAILED", "start_time": "2026-11-30T03:00:00Z", "end_time": "2026-11-30T04:00:00Z", "nodes": ["n0", "n1", "n2"], "world_size": 3, "ranks": [{"rank": r, "node": f"n{r}", "local_rank": 0} for r in range(3)]}  # fmt: skip
    files = {
        f"logs/n{n}/r_x/attempt_0/0/stdout.log": "".join(
            f"2026-11-30 03:{m + (7 if n == 1 else 0):02d}:00.{n}00 [rank{n}] iteration {m}/ 100 | lm loss: 1.0 | grad norm: 1.0 |\n"
            for m in range(1, 20)
        )
        for n in range(3)
    }
    rows = read(job(files, record))
    offsets = {row["node"]: row["offset_s"] for row in rows["clock_offsets"]}
    assert offsets["n1"] == pytest.approx(420, abs=1)
    assert abs(offsets["n0"]) < 1
    assert "skew" in rows["training_jobs"][0]["flags"]
    step_7 = [row["occurred_at"] for row in rows["log_records"] if row["iteration"] == 7]
    assert (max(step_7) - min(step_7)).total_seconds() < 1


CSV = "timestamp,cpu_seconds_total,gpu_temperature_celsius\n"


def test_23_metric_samples_out_of_order_doubled_reset_and_with_a_gap(job, read):
    text = CSV + "".join(
        f"2026-11-30T03:00:{s:02d}Z,{c},50\n"
        for s, c in ((2, 2), (0, 0), (1, 1), (1, 1), (3, 0.5), (4, 1.5), (30, 27.5), (31, 28.5))
    )
    (values,) = [row["values"] for row in read(job({"metrics/n0.csv": text}))["machine_metrics"] if row["is_rate"]]
    present = [v for v in values if v is not None]
    assert min(present) >= 0
    assert None in values[5:29]


def test_24_sentinels_and_infinities_are_null(job, read):
    text = "timestamp,DCGM_FI_DEV_GPU_TEMP\n" + "".join(
        f"2026-11-30T03:00:{s:02d}Z,{v}\n" for s, v in enumerate(("50", "9223372036854775794", "NaN", "+Inf", "2147483632", "51"))
    )
    rows = read(job({"metrics/n0.csv": text}))
    numbers = [v for row in rows["machine_metrics"] for v in row["values"] if v is not None]
    assert numbers
    assert set(numbers) <= {50.0, 51.0}


def test_26_unknown_columns_missing_columns_and_wrong_types_do_no_harm(job, read):
    rows = read(job({
        "metrics/n0.csv": "timestamp,cpu_seconds_total,brand_new\n2026-11-30T03:00:00Z,1,7\n2026-11-30T03:00:01Z,2,8\n2026-11-30T03:00:02Z,oops,9\n",
        "metrics/n1.csv": "cpu_seconds_total\n1\n2\n",
    }))  # fmt: skip
    assert any("brand_new" in row["metric"] for row in rows["machine_metrics"])
    assert {row["node"] for row in rows["machine_metrics"]} == {"n0"}


def bundle(members):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
    return held.getvalue()


def member(name, data=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data


def test_28_of_a_hostile_tar_only_harmless_members_are_read(job, read, tmp_path):
    data = bundle([
        member("../evil.log", b"evil\n"), member("/abs.log", b"evil\n"), member("a/../../evil2.log", b"evil\n"),
        member("ln.log", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), member("hard.log", b"", type=tarfile.LNKTYPE, linkname="../x"),
        member("dev", b"", type=tarfile.CHRTYPE), member("fifo", b"", type=tarfile.FIFOTYPE), member("suid.log", b"2026-11-30 03:00:00 fine 1\n", mode=0o4777),
        member("d" * 300 + "/rank1.log", b"2026-11-30 03:00:00 fine 2\n"), member("logs/rank2.log", b"2026-11-30 03:00:00 fine 3\n"),
    ])  # fmt: skip
    root = job({"logs.tar": data})
    before = {str(p) for p in tmp_path.rglob("*")}
    rows = read(root)
    assert sorted(row["message"] for row in rows["log_records"]) == ["fine 1", "fine 2", "fine 3"]
    assert sum(row["reason"] == "unsafe_member" for row in rows["quarantine"]) == 7
    assert {row["rank"] for row in rows["log_records"]} == {None, 1, 2}
    assert states(rows)["logs.tar!logs/rank2.log"] == "read"
    assert {str(p) for p in tmp_path.rglob("*")} == before
    assert not Path("/abs.log").exists()


@pytest.mark.parametrize("pack", ["gz", "zst"])
def test_28_compressed_bundles_are_streamed_too(job, read, pack):
    data = bundle(
        [
            member("logs/rank2.log", log_of(2).encode()),
            member("metrics/n0.csv", b"timestamp,a\n2026-11-30T03:00:00Z,1\n2026-11-30T03:00:01Z,2\n"),
        ]
    )
    packed = gzip.compress(data) if pack == "gz" else zstandard.ZstdCompressor().compress(data)
    rows = read(job({f"bundle.tar.{pack}": packed}))
    assert len(rows["log_records"]) == 3
    assert {row["node"] for row in rows["machine_metrics"]} == {"n0"}


def test_28_a_truncated_tar_keeps_the_members_before_the_break(job, read):
    data = bundle([member("logs/rank0.log", log_of(0).encode()), member("logs/rank1.log", log_of(1, 5000).encode())])
    rows = read(job({"bundle.tar": data[: len(data) // 2]}))
    assert sum(row["rank"] == 0 for row in rows["log_records"]) == 3
    assert "corrupt_archive" in reasons(rows)


def test_29_bombs_are_stopped_at_bounded_memory(job, read):
    zeros = b"0" * (1 << 20)
    held = io.BytesIO()
    with gzip.GzipFile(fileobj=held, mode="wb") as out:
        for _ in range(400):
            out.write(zeros)
    boxed = io.BytesIO()
    with zipfile.ZipFile(boxed, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("a.log", b"\n" * (120 << 20))
        box.writestr("nested.zip", _zip_of(b"x"))
    files = {
        "logs/a.log.gz": held.getvalue(),
        "b.zip": boxed.getvalue(),
        "logs/c.log.zst": zstandard.ZstdCompressor().compress(b"0" * (400 << 20)),
    }
    root = job(files)
    tracemalloc.start()
    began = time.monotonic()
    rows = read(root)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(row["reason"] == "bomb" for row in rows["quarantine"]) >= 4
    assert peak < 300 << 20
    assert time.monotonic() - began < 120


@pytest.mark.parametrize("pack", ["gzip", "bz2", "lzma", "zstandard", "zip", "zip of many", "tar.gz"])
def test_29_whatever_packs_it_a_bomb_ends_at_its_limit_with_a_reason(job, read, monkeypatch, pack):
    monkeypatch.setattr(streams, "BOMB_BYTES", 100_000)
    monkeypatch.setattr(streams, "BOMB_RATIO", 10)
    text = b"2026-11-30 03:00:00 boom\n" * 20_000
    packers = {
        "gzip": gzip.compress, "bz2": bz2.compress, "lzma": lzma.compress, "zstandard": zstandard.ZstdCompressor().compress,
        "zip": _zip_of, "zip of many": lambda data: _zip_of(*[data[:90_000]] * 20),
        "tar.gz": lambda data: gzip.compress(bundle([member("inner.log", data)])),
    }  # fmt: skip
    rows = read(job({"logs/a.log": packers[pack](text), "logs/rank1.log": log_of(1)}))
    assert "bomb" in reasons(rows)
    assert sum(row["message"] == "boom" for row in rows["log_records"]) <= 5000  # of 20,000; of 72,000 in the zip of many
    assert sum(row["rank"] == 1 for row in rows["log_records"]) == 3


def _zip_of(*texts):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as box:
        for i, data in enumerate(texts):
            box.writestr(f"inner{i or ''}.log", data)
    return held.getvalue()


def test_30_a_tar_with_a_negative_size_ends_instead_of_turning_in_circles(job, read):
    info = tarfile.TarInfo("logs/rank0.log")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" + struct.pack(">q", -(1 << 20)).rjust(11, b"\xff")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    good = bundle([member("logs/rank1.log", log_of(1).encode())])
    began = time.monotonic()
    rows = read(job({"bundle.tar": good[:1024] + bytes(header) + good}))
    assert time.monotonic() - began < 10
    assert "corrupt_archive" in reasons(rows)
    assert sum(row["rank"] == 1 for row in rows["log_records"]) == 3


class Evil:
    """What a hostile pickle does when somebody loads it."""

    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return (os.system, (f"touch {self.flag}",))


@pytest.mark.parametrize("name", ["dumps/nccl_trace_rank_0", "state.pkl", "model.joblib", "logs/weights.pt"])
def test_31_and_32_hostile_pickles_are_never_run(job, read, tmp_path, name):
    flag = tmp_path / "ran"
    rows = read(job({name: pickle.dumps({"version": "2.9", "entries": [Evil(flag)]}, protocol=2)}))
    assert not flag.exists()
    assert states(rows)[name] == "quarantined"


def test_33_hostile_names_and_texts_arrive_as_they_are_and_steer_no_terminal(job, read):
    text = "<script>alert(1)</script> <!channel> =cmd|' /C calc'!A0 [x](javascript:alert(1))"
    rows = read(job({"logs/<img src=x>.log": f"2026-11-30 03:00:00 INFO {text}\n"}, name="=HYPERLINK(1)", nodes=["<b>n</b>"]))
    assert [row["message"] for row in rows["log_records"]] == [text]
    from jobs.cli.inspect import printable

    assert printable("a\x1b[2J\r\nb") == "a\ufffd[2J\ufffd\ufffdb"


SECRETS = {
    "huggingface": "hf_" + "A" * 34, "openai": "sk-" + "b1" * 20, "github": "ghp_" + "c2" * 18, "aws": "AKIA" + "D3" * 8, "slack": "xoxb-" + "4e" * 10,
    "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "keyed": "hunter2hunter2", "url": "bob:s3cr3t", "pem": "MIIEvQIBADANBg",
}  # fmt: skip


def secret_lines():
    return [
        f"login with {SECRETS['huggingface']} now", f"OPENAI {SECRETS['openai']}", f"git clone {SECRETS['github']}", f"key {SECRETS['aws']} id", f"slack {SECRETS['slack']}",
        f"header {SECRETS['jwt']}", f"WANDB_API_KEY={SECRETS['keyed']}", f"db password: {SECRETS['keyed']}", f"pull https://{SECRETS['url']}@host/x",
        f"-----BEGIN PRIVATE KEY-----\n{SECRETS['pem']}\n-----END PRIVATE KEY-----",
    ]  # fmt: skip


def test_35_no_secret_reaches_any_table(job, read):
    stamp = "2026-11-30 03:00:00 INFO "
    lines = "".join(f"{stamp}{line}\n" for line in secret_lines())
    stack = [{"pid": 1, "thread_id": 1, "thread_name": SECRETS["aws"], "os_thread_id": 1, "active": True, "owns_gil": False, "frames": [{"name": "f", "filename": f"/home/{SECRETS['github']}/x.py", "module": None, "short_filename": "x.py", "line": 1, "locals": [{"name": "t", "addr": 1, "arg": True, "repr": f"'{SECRETS['openai']}'"}]}], "process_info": None}]  # fmt: skip
    rows = read(job(
        {"logs/rank0.log": lines, "stacks/n0/rank0_pid1_T0.json": json.dumps(stack), "logs/bad.json": f'{{"log":"x\\n","time":"2026-11-30T03:00:00Z"}}\n{{"log": "{SECRETS["aws"]}\n{{"log":"y\\n","time":"2026-11-30T03:00:00Z"}}\n', "events/dmesg.log": f"[111.1] NVRM: Xid (PCI:0000:05:00): 79, name={SECRETS['aws']}\n[111.2] NVRM: loaded\n"},
        config={"env": {"HF_TOKEN": SECRETS["huggingface"], "WANDB_API_KEY": "0123456789abcdef0123"}, "url": f"https://{SECRETS['url']}@h"},
    ))  # fmt: skip
    whole = json.dumps(rows, default=str)
    for secret in (*SECRETS.values(), "0123456789abcdef0123"):
        assert secret not in whole, secret
    assert whole.count("redacted:") >= 12
    log = next(row for row in rows["ingested_files"] if row["path"] == "logs/rank0.log")
    assert {name for name, n in log["redactions"] if n} == set(SECRETS)
    keyed = [row["message"].split("redacted:keyed:")[1][:8] for row in rows["log_records"] if "redacted:keyed" in row["message"]]
    assert len(keyed) == 2
    assert keyed[0] == keyed[1]  # equal secrets stay comparable


def test_28_pipes_sockets_and_devices_of_an_archive_are_named_and_never_opened(job, read):
    root = job({"logs/rank0.log": log_of(0)})
    os.mkfifo(root / "logs" / "rank1.log")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "metrics.sock"))
        (root / "zero.log").symlink_to("/dev/zero")
        rows = read(root)
    assert sum(row["reason"] == "not_a_regular_file" for row in rows["quarantine"]) == 3
    assert states(rows)["logs/rank1.log"] == "quarantined"
    assert len(rows["log_records"]) == 3


def test_28_a_pipe_that_takes_a_files_place_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        archive.open_file(str(tmp_path / "pipe"))
    assert archive.read_bytes(str(tmp_path / "pipe"), 10) == b""


def test_46_a_walk_does_not_follow_a_loop_of_links(job, read):
    root = job(ranks_logs(range(4)))
    os.symlink(root, root / "logs" / "again")
    os.symlink("/etc/passwd", root / "logs" / "passwd.log")
    rows = read(root)
    assert len(rows["log_records"]) == 12
    assert {row["path"] for row in rows["quarantine"]} == {"logs/again", "logs/passwd.log"}
    assert reasons(rows) == {"not_a_regular_file"}


@pytest.mark.parametrize(
    "name", ["a b", "[x]*?", "a:b#%'\"", "line\nfeed", "\u00fc\u4e2d" * 40, "u\u0308", b"\xff\xfe", "$(touch x)"]
)
def test_47_odd_names_are_read_and_shown(job, read, name):
    root = job({})
    folder = os.path.join(os.fsencode(root), b"logs")
    os.makedirs(folder)
    with open(os.path.join(folder, (name if isinstance(name, bytes) else name.encode()) + b".log"), "w") as file:
        file.write("2026-11-30 03:00:00 hello\n")
    rows = read(root)
    assert [row["message"] for row in rows["log_records"]] == ["hello"]
    shown = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    assert rows["log_records"][0]["file"] == f"logs/{shown}.log"


def test_a_job_without_a_readable_record_is_read_all_the_same(tmp_path, read):
    root = tmp_path / "job-x"
    for rank in range(2):
        path = root / f"logs/rank{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log_of(rank))
    (root / "job.json").write_text('{"job_id": "x", "state":')
    rows = read(root)
    assert (rows["training_jobs"][0]["job_id"], rows["training_jobs"][0]["state"]) == ("job-x", "UNKNOWN")
    assert reasons(rows) == {"broken_json"}
    assert {row["rank"] for row in rows["ranks"]} == {0, 1}


@pytest.mark.parametrize(
    ("start", "end", "expected"),  # the log speaks from 03:00:00
    [
        ("2026-11-30T05:00:00Z", "2026-11-30T04:00:00Z", ("03:00", "03:00")),  # the wrong way round: the files say
        ("2026-11-30T05:00:00Z", None, ("05:00", None)),  # the files contradict the start: the end is not known
        (None, "2026-11-30T02:00:00Z", (None, None)),  # before the first line: neither is believed
    ],
)
def test_a_job_never_ends_before_it_starts(job, read, start, end, expected):
    rows = read(job({WHERE.format(n=0, l=0): log_of(0)}, start_time=start, end_time=end))
    (told,) = rows["training_jobs"]
    times = tuple(at and f"{at:%H:%M}" for at in (told["started_at"], told["ended_at"]))
    assert times == expected if start else told["ended_at"] is None or told["ended_at"] >= told["started_at"]
    assert "bad_time" in told["flags"]


@pytest.mark.parametrize(
    "field",
    [
        '"loss": NaN', '"exit_code": Infinity', '"world_size": 1e999', f'"n_gpus": 1{"0" * 400}', f'"end_time": 1{"0" * 400}',
        '"ranks": [{"rank": 0, "local_rank": 1099511627776}]', '"ranks": [{"rank": 0, "groups": {"dp": [true, 1, -1, NaN]}}]',
        '"node_exit_codes": {"n0": 1180591620717411303424}', '"start_time": NaN', '"attempt": -Infinity',
    ],
)  # fmt: skip
def test_a_number_that_no_column_can_hold_costs_its_field_not_the_record(job, read, field):
    root = job({WHERE.format(n=0, l=0): log_of(0)})
    (root / "job.json").write_text(f'{{"job_id": "job-1", "state": "FAILED", "config": {{"lr": 1}}, {field}}}')
    (told,) = read(root)["training_jobs"]
    assert (told["job_id"], told["state"], dict(told["config"])["lr"]) == ("job-1", "FAILED", "1")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("traces/rank0.pt.trace.json", '{"traceEvents":', "}"),
        ("metrics/p.json", '{"status":"success","data":{"resultType":"matrix","result":', "}}"),
    ],
)
def test_14_deep_nesting_ends_a_file_at_once(job, read, name, before, after):
    began = time.process_time()
    rows = read(job({name: before + "[" * 100_000 + "]" * 100_000 + after}))
    assert time.process_time() - began < 10
    assert reasons(rows) == {"broken_json"}


@pytest.mark.parametrize("line", ["Authorization: Basic UGw0bnRlZEJhc2lj", "authorization='basic UGw0bnRlZEJhc2lj'"])
def test_35_basic_credentials_are_replaced(line):
    assert "UGw0" not in redaction.redact(line)
    assert "UGw0" not in redaction.redact_array(pa.array([line]), Counter())[0].as_py()
    assert redaction.redact("basic configuration") == "basic configuration"


def test_27_series_of_all_files_of_a_job_are_capped_and_the_job_says_so(job, read, monkeypatch):
    monkeypatch.setattr(job_results, "MAX_SERIES", 3)
    csv = "timestamp,m1,m2\n" + "".join(f"2026-11-30T03:00:{s:02d}Z,1,2\n" for s in range(20))
    rows = read(job({f"metrics/n{i}.csv": csv for i in range(3)}))
    assert {(row["node"], row["metric"]) for row in rows["machine_metrics"]} == {("n0", "m1"), ("n0", "m2"), ("n1", "m1")}
    (row,) = rows["training_jobs"]
    assert "series_dropped" in row["flags"]
    assert any("3 series of metrics beyond 3 were dropped, 60 samples" in note for note in row["notes"])


def test_a_csv_of_words_stays_as_lines(job, read):
    text = "Time,Level,Content\n" + "".join(f"2026-11-30 03:00:{s:02d},INFO,word {s}\n" for s in range(10))
    rows = read(job({"tables/events.csv": text}))
    (file,) = [f for f in rows["ingested_files"] if f["path"].endswith(".csv")]
    assert (file["adapter"], file["n_kept"], file["n_quarantined"]) == ("text_log", 11, 0)


FAULTS = [
    {"node_id": "n0", "event_time": 3.5, "event_type": "fault_start", "fault_type": {"Level": "Hardware Failure", "Class": "GPU", "Desc": "GPU xid Error"}},
    {"node_id": "n0", "event_time": 4.5, "event_type": "fault_end", "fault_type": {"Level": "Hardware Failure", "Class": "GPU", "Desc": "GPU xid Error"}},
    {"host": "n1", "time": "2026-11-30T03:00:00Z", "event": "failure started", "reason": "link down on port 3"},
    {"node_id": "n2"},
]  # fmt: skip


def test_a_history_of_faults_becomes_events_of_nodes(job, read):
    rows = read(job({"events/faults.json": json.dumps(FAULTS)}))
    found = [(row["node"], row["kind"], row["severity"], row["occurred_at"] is not None) for row in rows["node_events"]]
    assert found == [("n0", "xid", "critical", False), ("n0", "xid", "info", False), ("n1", "link_down", "critical", True)]
    assert rows["node_events"][0]["message"] == "fault_start at 3.5: Hardware Failure, GPU, GPU xid Error"
    assert [(q["reason"], q["offset"]) for q in rows["quarantine"]] == [("bad_value", 3)]


def test_versions_that_lines_name_are_configuration_where_the_record_does_not_say(job, read):
    log = (
        "2026-11-30 03:00:00 NCCL version 2.30.3+cuda13.0\n| NVIDIA-SMI 460.32.03  Driver Version: 460.32.03  CUDA Version: 11.2 |\n"
        "PyTorch version: 2.1.0\nDeepSpeed info: version=0.4.0+407ff0f, git-hash=407ff0f\n"
    )
    (row,) = read(job({"logs/a.log": log}, config={"packages": {"torch": "2.15.0"}}))["training_jobs"]
    told = {key: value for key, value in row["config"] if key.startswith("versions.")}
    assert told == {
        "versions.nccl": "2.30.3+cuda13.0", "versions.driver": "460.32.03", "versions.cuda": "11.2",
        "versions.deepspeed": "0.4.0+407ff0f",
    }  # fmt: skip


def test_35_each_lake_has_a_key_of_its_own_that_only_its_owner_reads(tmp_path, monkeypatch):
    monkeypatch.delenv(redaction.KEY_VARIABLE, raising=False)
    keys = [redaction.lake_key(str(tmp_path / lake)) for lake in ("a", "a", "b")]
    assert keys[0] == keys[1] != keys[2]
    file = tmp_path / "a" / redaction.KEY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in file.parent.iterdir()] == [redaction.KEY_FILE]
    monkeypatch.setenv(redaction.KEY_VARIABLE, "given")
    assert redaction.lake_key(str(tmp_path / "a")) == b"given"


def test_35_placeholders_are_made_with_the_key_in_use(monkeypatch):
    monkeypatch.setattr(redaction, "_in_use", {"key": b"one"})
    first = redaction.redact("token=abcdefgh")
    redaction.use_key(b"two")
    assert redaction.redact("token=abcdefgh") != first
    redaction.use_key(b"one")
    assert redaction.redact("token=abcdefgh") == first


def test_29_a_zip_inside_a_compressed_stream_is_read_member_by_member_within_its_cap(job, read, monkeypatch):
    files = {"box.zip.gz": gzip.compress(_zip_of(log_of(0).encode()))}
    rows = read(job(files))
    assert [row["message"] for row in rows["log_records"]] == ["hello 0", "hello 1", "hello 2"]
    assert {row["path"] for row in rows["ingested_files"]} >= {"box.zip.gz", "box.zip.gz!inner.log"}
    monkeypatch.setattr(bundles, "MAX_WRAPPED_ZIP", 10)
    assert "bomb" in reasons(read(job(files)))
