"""The fast lane gives the rows that the log parser gives, line for line, on regular logs with everything mixed in."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime

import pytest

from jobs.adapters import logs
from jobs.adapters.base import FileContext, Rows, Tally

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
    lines = []
    for i in range(n):
        if draw.random() < 0.08 and i > 500:
            lines.append(draw.choice(MIXED))
            continue
        header = HEADS[head if draw.random() < 0.97 or i < 500 else draw.choice(list(HEADS))].format(
            m=i // 60 % 60, s=i % 60, f=draw.randrange(1000), n=draw.randrange(999)
        )
        message = "plain words {n} and more" if draw.random() < 0.6 else draw.choice(MESSAGES)
        lines.append(header + message.format(n=draw.randrange(900)))
    return "\n".join(lines) + ("\n" if seed % 2 else "")


def rows_of(text, is_fast, monkeypatch):
    monkeypatch.setattr(logs, "MIN_BYTES", 1000 if is_fast else 1 << 60)
    context = FileContext("j", "a.log", "n0", 0, 0, "trainer", 0, "stdout", datetime(2026, 11, 30, tzinfo=UTC))
    records, iterations, tally = [], [], None
    for item in logs.ADAPTERS[0].parse(io.BytesIO(text.encode()), context):
        if isinstance(item, Tally):
            tally = item
        elif isinstance(item, Rows) and item.table in ("log_records", "iterations"):
            columns = {
                name: column.to_pylist() if hasattr(column, "to_pylist") else list(column) for name, column in item.columns.items()
            }
            into = records if item.table == "log_records" else iterations
            into += [dict(zip(columns, values)) for values in zip(*columns.values())]
    names = sorted(records[0])
    return sorted(records, key=lambda r: (r["byte_offset"], r["line"])), iterations, tally, names


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_fast_lane_and_the_parser_agree_on_every_row(head, seed, monkeypatch):
    text = text_of(head, seed)
    fast, fast_iterations, fast_tally, _ = rows_of(text, True, monkeypatch)
    slow, slow_iterations, slow_tally, _ = rows_of(text, False, monkeypatch)
    assert len(fast) == len(slow) > 3000
    for a, b in zip(fast, slow):
        assert {k: a.get(k) for k in b} == b
    assert fast_iterations == slow_iterations
    assert (fast_tally.n_read, fast_tally.n_understood, fast_tally.first_at, fast_tally.last_at) == (
        slow_tally.n_read,
        slow_tally.n_understood,
        slow_tally.first_at,
        slow_tally.last_at,
    )


def test_most_lines_of_a_regular_log_take_the_fast_lane(monkeypatch):
    from jobs.adapters import fast_lane

    taken = []
    real = fast_lane.FastLane.rows
    monkeypatch.setattr(fast_lane.FastLane, "rows", lambda self, *given: taken.append(rows := real(self, *given)) or rows)
    rows_of(text_of("megatron", 1), True, monkeypatch)
    assert sum(len(rows) for rows in taken) > 3000
