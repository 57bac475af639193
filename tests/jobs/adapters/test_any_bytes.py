"""Properties: any bytes into any adapter give rows or quarantine, never an exception, and the books balance."""

from __future__ import annotations

import io
import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.adapters.base import FileContext, Placement, Problem, Rows, Tally
from jobs.adapters.job_tables import to_batch
from jobs.adapters.redaction import redact
from jobs.adapters.registry import adapters, choose
from jobs.adapters.streams import Decompressed

CONTEXT = FileContext(
    "j",
    "logs/n0/r_x/attempt_0/0/stdout.log",
    "n0",
    0,
    0,
    None,
    0,
    "stdout",
    datetime(2026, 11, 30, tzinfo=UTC),
    placements=(Placement(0, "n0", 0, "trainer"),),
)
PIECES = [
    b"Traceback (most recent call last):\n", b'  File "a.py", line 1, in f\n', b"ValueError: x\n", b"\r", b"\n", b"\x1b[31m", b"{", b"}", b"[", b"]", b'"', b",", b":",
    b"2026-11-30 03:04:05,123 ", b"[rank0]: ", b" 3: ", b"iteration 5/ 9 | loss: nan |", b":::MLLOG {", b'{"log":"x\\n","time":"2026-11-30T03:04:05Z"}\n', b"\xff\xfe", b"\x00",
    b"W1130 03:20:31.923000 1 a.py:1] ", b"exitcode  : -9 (pid: 1)", b"time      : 2026-11-30_03:20:32\n", b"[0]:\n", b"rank      : 6 (local_rank: 0)\n", b"=" * 20 + b"\n",
    b"2026-11-30T03:04:05Z stdout P x\n", b"JobID|State|End\n", b"1|FAILED|x\n", b"NVRM: Xid (PCI:0000:05:00): 79, x\n", b"timestamp,a,b\n", b"2026-11-30T03:00:00Z,1,nan\n",
    b'{"status":"success","data":{"resultType":"matrix","result":[', b'{"metric":{"__name__":"a"},"values":[[1,"2"]]}', b"# TYPE a counter\na{b=\"c\"} 1 1\n", b"\x80\x02}q\x00.",
    b'{"step": 0, "op": "data", "rank": 0, "start_us": 1, "end_us": 2}\n', b'{"traceEvents": [', b'{"ph":"X","ts":1,"dur":"x","name":1}', b"PAR1", b"Process 1: python\nThread 1 (idle): \"M\"\n",
]  # fmt: skip
anything = st.one_of(
    st.binary(max_size=400), st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=12)), max_size=30).map(b"".join)
)


def held_to_account(items, table_context=CONTEXT):
    """Rows fit their tables, problems have known reasons, one tally ends the file and covers the problems."""
    from schemas.quarantine import REASONS

    assert isinstance(items[-1], Tally)
    assert sum(isinstance(item, Tally) for item in items) == 1
    n_quarantined = 0
    for item in items:
        if isinstance(item, Rows):
            assert len({len(column) for column in item.columns.values()}) <= 1
            to_batch(item, {"job_id": "j", "file": "f", "node": "n0"})
        elif isinstance(item, Problem):
            assert item.reason in REASONS
            assert item.n_records >= 0
            n_quarantined += item.n_records
    assert 0 <= n_quarantined <= items[-1].n_read or n_quarantined <= 1
    assert 0 <= items[-1].n_understood <= max(items[-1].n_read, 0)


@pytest.mark.parametrize("adapter", adapters(), ids=lambda adapter: adapter.name)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=anything)
def test_any_bytes_give_rows_or_problems_and_balanced_books(adapter, data):
    assert 0.0 <= adapter.sniff("logs/a.log", data[:65536]) <= 1.0
    held_to_account(list(adapter.parse(io.BytesIO(data), CONTEXT)))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=600), kind=st.sampled_from([b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh9", b""]))
def test_any_bytes_after_any_magic_are_decompressed_or_refused(data, kind):
    source = Decompressed(io.BytesIO(kind + data), 600)
    out = io.BufferedReader(source).read()
    assert source.problems or source.kind is None or out is not None


@settings(max_examples=100, deadline=None)
@given(path=st.text(max_size=60), head=anything)
def test_some_adapter_or_none_is_chosen_for_any_head(path, head):
    adapter, confidence = choose(path, head)
    assert 0.0 <= confidence <= 1.0
    assert adapter is None or confidence > 0


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=300))
def test_redaction_changes_no_text_twice(text):
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "adapter", [a for a in adapters() if a.name in ("text_log", "cri_log", "kernel_log")], ids=lambda adapter: adapter.name
)
def test_memory_of_a_large_log_is_bounded(adapter):
    """More than two blocks: memory stays below what one block takes as Python objects, a few times over."""

    class Endless(io.RawIOBase):
        left = 9 << 20
        line = b"2026-11-30T03:04:05.123456789Z stdout F " + b"word " * 36 + b"\n"

        def readable(self):
            return True

        def readinto(self, buffer):
            data = (self.line * (len(buffer) // len(self.line) + 1))[
                : min(len(buffer) // len(self.line) * len(self.line) or len(buffer), self.left)
            ]
            self.left -= len(data)
            buffer[: len(data)] = data
            return len(data)

    tracemalloc.start()
    for _ in adapter.parse(io.BufferedReader(Endless(), 1 << 20), CONTEXT):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 160 << 20
