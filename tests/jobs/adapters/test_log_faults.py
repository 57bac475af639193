"""Rows 1 to 5, 13 to 21, 34 and 36 of the fault matrix: what files of text may do to us."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import time
import tracemalloc

import pytest
import zstandard

LINES = "".join(f"2026-11-30 03:{i // 60:02d}:{i % 60:02d}.000 [rank0] opening thing {i}\n" for i in range(3000))
WHERE = "logs/n0/r_x/attempt_0/0/stdout.log"


def messages(rows):
    return [row["message"] for row in sorted(rows["log_records"], key=lambda r: (r["file"], r["byte_offset"]))]


def reasons(rows):
    return {row["reason"] for row in rows["quarantine"]}


def the_file(rows, name=WHERE):
    return next(row for row in rows["ingested_files"] if row["path"].startswith(name))


@pytest.fixture(scope="module")
def noise():
    """Text that gzip cannot shrink to nothing, so that half a file holds about half its lines."""
    return "".join(
        f"2026-11-30 03:00:00.000 [rank0] opening {hashlib.sha256(str(i).encode()).hexdigest()}\n" for i in range(4000)
    ).encode()


def test_1_a_truncated_gzip_keeps_its_complete_lines_and_says_where_it_broke(job, read, noise):
    whole = gzip.compress(noise)
    rows = read(job({WHERE + ".gz": whole[: len(whole) // 2]}))
    assert 1500 < len(rows["log_records"]) < 2500
    assert messages(rows)[0] == f"opening {hashlib.sha256(b'0').hexdigest()}"
    broken = next(row for row in rows["quarantine"] if row["reason"] == "truncated_gzip")
    assert broken["offset"] > 100_000
    assert the_file(rows)["state"] == "partial"
    assert "truncated" in the_file(rows)["flags"]
    assert "truncated" in rows["training_jobs"][0]["flags"]


def test_2_a_flipped_bit_keeps_the_lines_before_it_and_other_files(job, read, noise):
    whole = bytearray(gzip.compress(noise))
    whole[len(whole) // 2] ^= 0xFF
    rows = read(job({WHERE + ".gz": bytes(whole), "logs/rank1.log": LINES}))
    assert reasons(rows) & {"corrupt_compression", "truncated_gzip"}
    assert sum(row["file"] == "logs/rank1.log" for row in rows["log_records"]) == 3000
    assert sum(row["file"].startswith(WHERE) for row in rows["log_records"]) > 500


def test_2_a_wrong_checksum_is_noted_though_every_line_is_there(job, read):
    whole = bytearray(gzip.compress(LINES.encode()))
    whole[-8] ^= 0xFF
    rows = read(job({WHERE + ".gz": bytes(whole)}))
    assert "corrupt_compression" in reasons(rows)


@pytest.mark.parametrize(("tail", "noted"), [(b"", set()), (b"\0" * 2048, set()), (b"garbage!", {"trailing_garbage"})])
def test_3_all_members_of_a_gzip_are_read_whatever_follows_them(job, read, tail, noted):
    half = len(LINES) // 2 // 59 * 59
    rows = read(job({WHERE + ".gz": gzip.compress(LINES[:half].encode()) + gzip.compress(LINES[half:].encode()) + tail}))
    assert len(rows["log_records"]) == 3000
    assert reasons(rows) == noted


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        (WHERE, gzip.compress), (WHERE + ".gz", bytes), (WHERE, zstandard.ZstdCompressor().compress), (WHERE, lzma.compress), (WHERE, bz2.compress),
        (WHERE + ".zst", zstandard.ZstdCompressor().compress),
    ],
)  # fmt: skip
def test_4_magic_bytes_decide_and_not_the_name(job, read, name, pack):
    rows = read(job({name: pack(LINES.encode())}))
    assert messages(rows) == [f"opening thing {i}" for i in range(3000)]
    assert rows["log_records"][0]["rank"] == 0
    assert not rows["quarantine"]


def test_5_empty_files_and_folders_are_no_failure(job, read):
    root = job({WHERE: "", "logs/rank1.log.gz": gzip.compress(b""), "logs/rank2.log": ""})
    (root / "logs" / "nothing").mkdir()
    rows = read(root)
    assert {row["state"] for row in rows["ingested_files"] if row["path"] != "job.json"} == {"empty"}
    assert "empty_file" in rows["training_jobs"][0]["flags"]
    assert rows["log_records"] == []


def test_13_broken_json_lines_go_and_good_ones_stay(job, read):
    good = '{"log":"2026-11-30 03:00:00 INFO hello %d\\n","stream":"stderr","time":"2026-11-30T03:00:00Z"}'
    text = (
        "\ufeff"
        + "\n".join(
            [
                good % 1,
                '{"log": "cut',
                good % 2,
                '{"log":"a\\n","stream":"x","time":NaN}',
                '{"log":"first\\n","log":"last\\n","time":"2026-11-30T03:00:01Z"}',
                good % 3,
            ]
        )
        + "\n"
    )
    rows = read(job({"logs/container.json": text}))
    assert messages(rows) == ["hello 1", "hello 2", "last", "hello 3"]  # of a double key the last one counts
    assert [row["offset"] for row in rows["quarantine"] if row["reason"] == "broken_json"] == [
        len((good % 1).encode()) + 4,
        3 + 2 * len(good % 1) + 15,
    ]


def test_14_deep_or_huge_json_is_refused_without_recursion_or_memory(job, read):
    deep = '{"log":' + "[" * 10_000 + "]" * 10_000 + ',"time":"2026-11-30T03:00:00Z"}\n'
    rows = read(job({"logs/deep.json": deep * 3, "config.json": "[" * 100_000}))
    assert rows["log_records"] == [] or all(len(m) <= 65536 for m in messages(rows))
    assert rows["training_jobs"][0]["state"] == "FAILED"


def test_14_a_deep_record_is_named_and_the_job_read_all_the_same(tmp_path, read):
    root = tmp_path / "job-deep"
    (root / "logs").mkdir(parents=True)
    (root / "job.json").write_text('{"job_id": "x", "state": "FAILED", "config": ' + "[" * 50_000 + "]" * 50_000 + "}")
    (root / "logs" / "rank0.log").write_text("2026-11-30 03:00:00 hello\n")
    rows = read(root)
    assert "broken_json" in reasons(rows)
    assert len(rows["log_records"]) == 1
    assert "broken_record" in rows["training_jobs"][0]["flags"]


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        ("训练开始\n".encode("gb18030"), "gb18030", "训练开始"),
        ("训练开始\n".encode("utf-16"), "utf-16", "训练开始"),
        ("\ufeff训练开始\n".encode(), "utf-8-sig", "训练开始"),
        (b"caf\xe9 is open\n", "utf-8", "caf\ufffd is open"),
    ],
)
def test_15_encodings_are_found_and_recorded(job, read, data, encoding, text):
    rows = read(job({"logs/rank0.log": data}))
    assert messages(rows) == [text]
    assert the_file(rows, "logs/rank0.log")["encoding"] == encoding
    assert ("decode_errors" in the_file(rows, "logs/rank0.log")["flags"]) == ("\ufffd" in text)


def test_16_binary_files_and_binary_lines_are_not_mined(job, read):
    blob = bytes(range(256)) * 200
    text = b"2026-11-30 03:00:00 he\0llo\n" + bytes(range(1, 9)) * 4 + b"\n2026-11-30 03:00:01 bye\n"
    rows = read(job({"logs/core.log": blob, "logs/rank0.log": text + b"plain\n" * 200}))
    assert messages(rows)[:3] == ["hello", "bye", "plain"]
    assert {row["path"] for row in rows["quarantine"] if row["reason"] == "binary_content"} == {"logs/core.log", "logs/rank0.log"}


def test_17_a_line_without_end_is_cut_at_constant_memory(tmp_path):
    """The matrix's 500 MB, made while they are read."""
    from jobs.adapters.base import FileContext, Problem, Rows
    from jobs.adapters.logs import ADAPTERS

    class Endless(io.RawIOBase):
        left = 500 << 20

        def readable(self):
            return True

        def readinto(self, buffer):
            n = min(len(buffer), self.left)
            self.left -= n
            buffer[:n] = b"x" * n
            return n

    tracemalloc.start()
    items = list(ADAPTERS[0].parse(io.BufferedReader(Endless()), FileContext("j", "a.log")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    (rows,) = [item for item in items if isinstance(item, Rows)]
    assert [len(m) for m in rows.columns["message"]] == [65536]
    (problem,) = [item for item in items if isinstance(item, Problem)]
    assert problem.reason == "too_long"
    assert str(500 << 20) in problem.detail
    whole = hashlib.sha256()
    for _ in range(500):
        whole.update(b"x" * (1 << 20))
    assert whole.hexdigest()[:16] in problem.detail


def test_18_of_a_progress_bar_the_last_state_stays_and_colours_go(job, read):
    bar = "\r".join(f"{i}%|{'#' * (i // 10):<10}| {i}/100 [00:01<00:02, 3.1it/s]" for i in range(1, 101))
    link = "\x1b]8;;http://x\x07here\x1b]8;;\x07"
    rows = read(job({WHERE: f"{bar}\n\x1b[32m2026-11-30 03:00:00.000\x1b[0m [rank0] \x1b[1;31mred\x1b[0m {link}\x1b[2K done\n"}))
    assert messages(rows) == ["100%|##########| 100/100 [00:01<00:02, 3.1it/s]", "red here done"]


def test_18_what_a_bar_wrote_over_is_kept_as_an_event_of_its_own(job, read):
    rows = read(job({WHERE: "1%|    | 1/9 [00:01, 3it/s]\rloss is high\r9%|#   | 9/9 [00:01, 3it/s]\n"}))
    assert messages(rows) == ["1%|    | 1/9 [00:01, 3it/s]", "loss is high", "9%|#   | 9/9 [00:01, 3it/s]"]


@pytest.mark.parametrize("text", ["a b\nc d\n", "a b\r\nc d\r\n", "a b\nc d"])
def test_19_line_ends_do_not_change_the_rows(job, read, text):
    assert messages(read(job({WHERE: text}))) == ["a b", "c d"]


def test_19_only_a_line_feed_ends_a_line(job, read):
    assert messages(read(job({WHERE: "a\u2028b\u0085c\n"}))) == ["a\u2028b\u0085c"]


TRACE = ["Traceback (most recent call last):", '  File "/w/train.py", line 3, in main', "    step()", "ValueError: rank %d says no"]


def test_20_interleaved_ranks_with_prefixes_give_whole_tracebacks(job, read):
    mixed = "".join(f"[rank{r}]: {line % r if '%' in line else line}\n" for line in TRACE for r in (2, 0, 1))
    rows = read(job({"logs/slurm-1.out": mixed}))
    assert {row["rank"]: row["message"] for row in rows["log_records"]} == {r: "\n".join(TRACE) % r for r in range(3)}


def test_20_interleaved_ranks_without_prefixes_are_flagged_and_every_exception_is_found(job, read):
    mixed = "".join(f"{line % r if '%' in line else line}\n" for line in TRACE for r in (2, 0, 1)) + "carry on\n"
    rows = read(job({"logs/all.log": mixed}))
    assert "interleaved" in the_file(rows, "logs/all.log")["flags"]
    assert sorted(m.split("\n")[-1] for m in messages(rows) if m.startswith("Traceback")) == [TRACE[-1] % r for r in range(3)]
    assert "carry on" in messages(rows)


@pytest.mark.parametrize(
    ("stamp", "at", "uncertainty_s"),
    [
        ("2026-11-30T03:04:05Z", "2026-11-30T03:04:05+00:00", 1.0),
        ("2026-11-30 03:04:05.250", "2026-11-30T03:04:05.250000+00:00", 0.001),
        ("2026-11-30 05:04:05,250+02:00", "2026-11-30T03:04:05.250000+00:00", 0.001),
        ("2026-11-30 03:04:05 PM", "2026-11-30T15:04:05+00:00", 1.0),
        ("[1796007845.5]", "2026-11-30T03:04:05.500000+00:00", 0.001),
        ("W1130 03:04:05.123456 77 a/b.cpp:7]", "2026-11-30T03:04:05.123456+00:00", 1e-6),
        ("Nov 30 03:04:05", "2026-11-30T03:04:05+00:00", 1.0),
        ("1970-01-01 00:00:07", None, None),
    ],
)
def test_21_stamps_of_many_forms_are_the_same_moment(job, read, stamp, at, uncertainty_s):
    (row,) = read(job({"logs/rank0.log": f"{stamp} hello there\n"}))["log_records"]
    assert row["message"] == "hello there"
    if at is None:
        assert row["time_source"] != "line"
    else:
        assert (row["occurred_at"].isoformat(), row["time_uncertainty_s"]) == (at, uncertainty_s)


def test_21_a_clusters_zone_counts_and_the_hour_that_comes_twice_is_uncertain(job, read):
    text = "2026-11-30 03:04:05 winter\n2026-10-25 02:30:00 twice\n"
    winter, twice = read(job({"logs/rank0.log": text}, zone="Europe/Berlin"))["log_records"]
    assert winter["occurred_at"].isoformat() == "2026-11-30T02:04:05+00:00"
    assert (winter["time_uncertainty_s"], twice["time_uncertainty_s"]) == (1.0, 3600.0)


def test_21_a_stamp_without_a_year_takes_the_year_that_brings_it_to_the_job(job, read):
    times = {"start_time": "2026-12-31T23:00:00Z", "end_time": "2027-01-01T01:00:00Z"}
    rows = read(job({"logs/rank0.log": "I1231 23:59:59.000000 7 a.cpp:1] old\nI0101 00:00:01.000000 7 a.cpp:1] new\n"}, **times))
    assert [row["occurred_at"].isoformat() for row in rows["log_records"]] == [
        "2026-12-31T23:59:59+00:00",
        "2027-01-01T00:00:01+00:00",
    ]


HOSTILE = [
    "a" * 60_000, " : : :" * 10_000, "[" * 60_000, "=" * 60_000, "1" * 60_000, "iteration " * 6_000, "step=1, " * 7_000, "x=1 " * 15_000, "\\" * 60_000,
    "Traceback (most recent call last):" * 1_500, '  File "' * 7_000, "a." * 30_000, "rank1 " * 10_000, "token=" * 10_000, "eyJ" * 20_000, "://a:" * 12_000,
    "hf_" * 20_000, "-----BEGIN A PRIVATE KEY-----" * 2_000, "2026-11-30 03:04:05 " * 3_000, "[rank1]: " * 6_000, "- " * 30_000, "secret secret " * 4_000,
    "(" * 60_000, "password " * 6_000, "'" * 60_000, "a b " * 15_000, "|" * 60_000, "nan," * 15_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_34_hostile_lines_cost_linear_time(text):
    """Twice the length may cost a few times as much, never a hundred times."""
    from jobs.adapters.base import FileContext
    from jobs.adapters.kernel_words import told_by
    from jobs.adapters.logs import ADAPTERS
    from jobs.adapters.redaction import redact

    def seconds(line):
        began = time.perf_counter()
        for prefix in ("", "2026-11-30 03:04:05 INFO "):
            list(ADAPTERS[0].parse(io.BytesIO((prefix + line + "\n").encode()), FileContext("j", "a.log")))
        redact(line)
        told_by(line)
        return time.perf_counter() - began

    assert seconds(text[:1000]) < 1.0
    assert seconds(text) < 2.0


def test_36_a_line_cannot_claim_another_rank_than_its_file_has(job, read):
    rows = read(job({WHERE: "[rank3]: ERROR it was me\n[rank99]: and me\nLOGS_DIR=/etc/passwd\nWriting logs to /etc\n"}))
    assert {row["rank"] for row in rows["log_records"]} == {0}
    assert {row["node"] for row in rows["log_records"]} == {"n0"}
    assert "foreign_rank_prefix" in rows["training_jobs"][0]["flags"]
    assert {row["path"] for row in rows["ingested_files"]} == {"job.json", WHERE}


def test_36_a_rank_that_the_job_does_not_have_is_no_rank(job, read):
    rows = read(job({"logs/all.log": "[rank77]: hello there\n[rank2]: hello here\n"}))
    assert {row["message"]: row["rank"] for row in rows["log_records"]} == {"hello there": None, "hello here": 2}


def test_the_time_of_the_process_is_never_a_fact(job, read):
    """Two readings of one archive are equal in every row, whenever they happen."""
    root = job({WHERE: LINES, "logs/n1/agent.log": "no stamp at all\n"})
    os.utime(root / "logs/n1/agent.log", (1796007845, 1796007845))
    assert read(root) == read(root)
