"""The fast lane gives the rows that the log parser gives, line for line, on regular logs with everything mixed in."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime

import pytest

from jobs.adapters import fast_lane, fast_limits, lines, logs, shapes
from jobs.adapters.base import FileContext, Placement, Rows, Tally
from jobs.adapters.job_tables import to_batch

MIXED = [
    "Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: no", "", "bare text", "  indented", "\x1b[31mred\x1b[0m", "caf\u00e9", "10%|# | 1/9 [00:01, 3it/s]\r20%|# | 2/9 [00:01, 3it/s]",
    "[rank0]: Traceback (most recent call last):", "[rank0]: KeyError: 'x'", "W1130 03:20:31.923000 1 a/b.py:1] glog", "===========", "x" * 70_000,
]  # fmt: skip
MESSAGES = [
    "plain words {n}", " leading space {n}", "saving checkpoint at iteration {n} to /x", "successfully saved checkpoint at iteration {n}", " iteration {n}/ 900 | lm loss: 1.5E+00 | grad norm: 0.1 |",
    "ends with a colon:", "ends with {{", "hf_" + "A" * 34, "password: hunter{n}hunter", "a.log ERROR: two levels", "INFO again", "Error: mixed", "2026-11-30 03:00:00 two stamps", "[Rank 1] other", "[rank0] own",
    "12:30 clock", "- dash first", "Nov 30 in words", "E1130 half", "am i late", "pm is later", "Z end", "+02:00 zone", "-05:00 zone", "UTC zone", ": colon", "timed out after {n} seconds", "x", "training ...", "\ttab", "1234 number", "1234-56 dash",
    "loss is nan at step {n}", "hidden ........ {n}", "DLL 2026-11-30 03:00:00 - x", "worker1: iteration 7", "evaluating now",
]  # fmt: skip
HEADS = {
    "megatron": "2026-11-30 03:{m:02d}:{s:02d}.{f:03d} [rank0] ", "trainer": "2026-11-30 03:{m:02d}:{s:02d},{f:03d} INFO trainer:{n} | ", "nemo": "[NeMo W 2026-11-30 03:{m:02d}:{s:02d} data:{n}] ",
    "deepspeed": "[2026-11-30 03:{m:02d}:{s:02d},{f:03d}] [INFO] [engine.py:{n}:step] [Rank 0] ", "plain": "2026-11-30T03:{m:02d}:{s:02d}.{f:06d} ", "level": "2026-11-30 03:{m:02d}:{s:02d} WARNING ", "slashes": "2026/11/30 03:{m:02d}:{s:02d} ",
}  # fmt: skip


def text_of(head, seed, n=6000):
    draw = random.Random(seed)
    drawn = []
    for i in range(n):
        if draw.random() < 0.08 and i > 500:
            drawn.append(draw.choice(MIXED))
            continue
        header = HEADS[head if draw.random() < 0.97 or i < 500 else draw.choice(list(HEADS))].format(
            m=i // 60 % 60, s=i % 60, f=draw.randrange(1000), n=draw.randrange(999)
        )
        message = "plain words {n} and more" if draw.random() < 0.6 else draw.choice(MESSAGES)
        drawn.append(header + message.format(n=draw.randrange(900)))
    return "\n".join(drawn) + ("\n" if seed % 2 else "")


def rows_of(text, is_fast, monkeypatch, block=4 << 20, **where):
    monkeypatch.setattr(fast_limits, "MIN_BYTES", 1000 if is_fast else 1 << 60)
    monkeypatch.setattr(fast_limits, "MIN_BYTES_LOADED", 1000 if is_fast else 1 << 60)
    monkeypatch.setattr(lines.LineReader.__init__, "__defaults__", (block,))
    place = {"node": "n0", "rank": 0, "local_rank": 0, "role": "trainer", **where}
    context = FileContext("j", "a.log", attempt=0, stream="stdout", started_at=datetime(2026, 11, 30, tzinfo=UTC), **place)
    records, iterations, tally = [], [], None
    for item in logs.ADAPTERS[0].parse(io.BytesIO(text.encode()), context):
        if isinstance(item, Tally):
            tally = item
        elif isinstance(item, Rows) and item.table in ("log_records", "iterations"):
            batch = to_batch(item, {"job_id": "j"})
            (records if item.table == "log_records" else iterations).extend(batch.to_pylist())
    records.sort(key=lambda r: (r["byte_offset"], r["line"]))
    return records, sorted(iterations, key=lambda r: r["line"]), tally


def assert_alike(text, monkeypatch, **given):
    fast, fast_iterations, fast_tally = rows_of(text, True, monkeypatch, **given)
    slow, slow_iterations, slow_tally = rows_of(text, False, monkeypatch, **given)
    assert len(fast) == len(slow) > 1000
    for a, b in zip(fast, slow):
        assert repr(a) == repr(b)
    assert repr(fast_iterations) == repr(slow_iterations)
    assert fast_tally == slow_tally


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_fast_lane_and_the_parser_agree_on_every_row(head, seed, monkeypatch):
    assert_alike(text_of(head, seed), monkeypatch)


def test_blocks_may_end_anywhere(monkeypatch):
    assert_alike(text_of("megatron", 3), monkeypatch, block=20_000)


PLACEMENTS = tuple(Placement(rank, f"n{rank // 2}", rank % 2, "trainer" if rank else "leader") for rank in range(6))


@pytest.mark.parametrize("placements", [PLACEMENTS, ()], ids=["known ranks", "ranks by their lines"])
@pytest.mark.parametrize("seed", [4, 5])
def test_writers_that_share_a_file_keep_their_own_phase_iteration_and_tracebacks(placements, seed, monkeypatch):
    draw = random.Random(seed)
    rows = []
    for line in text_of("megatron", seed).split("\n"):
        rank = draw.randrange(7)
        rows.append(line.replace("[rank0]", f"[rank{rank}]"))
    shared = {"node": None, "rank": None, "local_rank": None, "role": None, "placements": placements}
    assert_alike("\n".join(rows), monkeypatch, block=60_000, **shared)


def test_labelled_lines_of_srun_take_the_same_rows(monkeypatch):
    draw = random.Random(6)
    text = "\n".join(f"{draw.randrange(6)}: {line}" for line in text_of("plain", 6, 3000).split("\n"))
    shared = {"node": None, "rank": None, "local_rank": None, "role": None, "placements": PLACEMENTS}
    assert_alike(text, monkeypatch, **shared)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_stamps_of_other_zones_become_utc_with_their_doubts(zone, monkeypatch):
    # The clocks of New York go back on 1 November at two in the morning: an hour that comes twice.
    text = text_of("megatron", 7, 3000).replace("2026-11-30 03:", "2026-11-01 01:")
    assert_alike(text, monkeypatch, zone=zone)


ITERATION_LINES = {
    "megatron": " iteration {a:8d}/  500000 | consumed samples: {b:12d} | elapsed time per iteration (ms): {c:.1f} | learning rate: {d:.3E} | lm loss: {e:.6E} | grad norm: {d:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |",
    "torchtitan": "step: {a:2d}  loss: {e:7.4f}  grad_norm: {d:7.4f}  memory: 45.12GiB(56.98%)  tps: 6,521  tflops: {c:.2f}  mfu: 12.48%",
    "deepspeed": "step={a}, skipped=4, lr=[{d:.2e}], mom=[(0.9, 0.95)]",
    "nemo": "Epoch 0: step {a}: reduced_train_loss={e:.3f}, global_step={a}.0, consumed_samples={b}.0, train_step_timing in s={d:.2f}",
    "negative": "step {a} loss -{d:.3f} | reward: -{e:.2f} | step_time={d:.4f} | x: {b} | y: 1e-5 | z: 0.1.2",
    "token": "iter {a} | loss: {e:.3f} | token: {b} | tokens: {b}",
    "huge": "iter {a} | loss: {e:.3f} | n: {b}{b}{b} | t: 0.1234567890123456789",
    "waits": "step {a} loss: {d:.2f} timed out after {b} seconds",
}  # fmt: skip


@pytest.mark.parametrize("form", ITERATION_LINES)
@pytest.mark.parametrize("head", ["megatron", "trainer"])
def test_iteration_lines_give_the_numbers_that_the_parser_reads(head, form, monkeypatch):
    draw = random.Random(form)
    rows = []
    for i, line in enumerate(text_of(head, 8, 1500).split("\n")):
        rows.append(line)
        if i % 3 == 0:
            at = HEADS[head].format(m=i // 60 % 60, s=i % 60, f=draw.randrange(1000), n=7)
            figures = {"a": draw.randrange(10 ** draw.randrange(1, 7)), "b": draw.randrange(10 ** draw.randrange(1, 10))}
            rows.append(at + ITERATION_LINES[form].format(**figures, c=draw.random() * 999, d=draw.random(), e=draw.random() * 9))
    assert_alike("\n".join(rows), monkeypatch)


@pytest.mark.parametrize(
    ("line", "is_learned"),
    [
        (" iteration  5/ 140 | lm loss: 5.86E+00 |", True),
        ("step: 5  loss: 2.5", True),
        ("step 5 of 9", False),  # no figure
        ("step: 5 loss: nan", False),  # the loss is no number that changes
        ("step: 5 loss: 1,024", False),  # one number in the parser's eyes, two here
        ("saving checkpoint at iteration 5 loss: 3", False),  # a phase
        ("iter 5 loss: 3 timed out after 30 seconds", False),  # a waiting time
        ("iter 5 loss: 3 error: 4", False),  # opens an event
        ("iter 5 loss: 3 token: 123456789012", False),  # may hold a secret
    ],
)
def test_a_shape_is_learned_only_when_the_line_is_nothing_but_progress(line, is_learned):
    assert (shapes.learned(line.encode())[1] is not None) == is_learned


def test_most_lines_of_a_regular_log_take_the_fast_lane(monkeypatch):
    taken = []
    real = fast_lane.record_rows
    monkeypatch.setattr(fast_lane, "record_rows", lambda *given: taken.append(rows := real(*given)) or rows)
    rows_of(text_of("megatron", 1), True, monkeypatch)
    assert sum(len(rows) for rows in taken) > 3000
