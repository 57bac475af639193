"""Any bytes into any stack adapter: no exception, and the books balance."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.adapters.base import FileContext, Problem, Rows, Tally
from jobs.adapters.flight_recorder import ADAPTERS as RECORDERS
from jobs.adapters.stacks import ADAPTERS

PIECES = st.sampled_from(
    [b'[{"frames": [', b'{"threads": [null, 3, {"frames": {}}], "rank": true}', b"\x80\x02}q\x00", b"Thread 1 (idle): \"M\"\n",
     b"    f (a.py:1)\n", b"a;b 1\n", b'{"PyFrame": 3}', b"\xff\xfe", b"[[[[", b'[{"CFrame": {"func": null}}]', b"\n", b"cos\nsystem\n."]
)  # fmt: skip


@pytest.mark.parametrize("adapter", [*ADAPTERS, *RECORDERS], ids=lambda a: a.name)
@settings(max_examples=60, deadline=None)
@given(data=st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=8).map(b"".join)))
def test_any_bytes_are_rows_or_problems_and_the_books_balance(adapter: object, data: bytes) -> None:
    adapter.sniff("x/rank1_dump_3", data)
    parsed = list(adapter.parse(io.BytesIO(data), FileContext("job", "x/rank1_dump_3")))
    assert isinstance(parsed[-1], Tally)
    assert sum(isinstance(p, Tally) for p in parsed) == 1
    rejected = sum(p.n_records for p in parsed if isinstance(p, Problem))
    assert parsed[-1].n_read >= rejected
    assert all(len(set(map(len, p.columns.values()))) == 1 for p in parsed if isinstance(p, Rows))
