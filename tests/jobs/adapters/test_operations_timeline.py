"""Operation time lines as JSON Lines."""

import io

from jobs.adapters.base import FileContext, Placement, Problem, Rows, Tally
from jobs.adapters.operations_timeline import TimelineAdapter

CONTEXT = FileContext("job-1", "traces/timeline_rank3.jsonl", placements=(Placement(3, "n1"),))


def parsed(text, context=CONTEXT):
    found = list(TimelineAdapter().parse(io.BytesIO(text.encode()), context))
    rows = [
        dict(zip(batch.columns, values, strict=True))
        for batch in found
        if isinstance(batch, Rows)
        for values in zip(*batch.columns.values(), strict=True)
    ]
    return rows, [p for p in found if isinstance(p, Problem)], [t for t in found if isinstance(t, Tally)]


def test_a_step_becomes_rows_with_kind_layer_group_and_parent():
    rows, problems, tallies = parsed(
        '{"step": 0, "op": "tp-allreduce", "rank": 3, "start_us": 1100, "end_us": 1200}\n'  # inside the forward
        '{"step": 0, "op": "forward", "rank": 3, "start_us": 1000, "end_us": 1300}\n'
        '{"step": 0, "op": "dp-allreduce", "rank": 3, "start_us": 1400, "end_us": 1900}\n'
        '{"step": 0, "op": "checkpoint", "rank": 3, "start_us": 1900, "end_us": 1950}\n'
    )
    assert problems == []
    assert [(r["name"], r["kind"], r["layer"], r["group"], r["parent"], r["sequence"]) for r in rows] == [
        ("tp-allreduce", "collective", "collective", "tp", "forward", 0),
        ("forward", "forward", "host", None, None, 0),
        ("dp-allreduce", "collective", "collective", "dp", None, 1),
        ("checkpoint", "checkpoint", "host", None, None, 0),
    ]
    assert {(r["node"], r["rank"], r["step"]) for r in rows} == {("n1", 3, 0)}
    assert [r["duration_us"] for r in rows] == [100, 300, 500, 50]
    assert (tallies[0].n_read, tallies[0].n_understood) == (4, 4)


def test_units_are_taken_from_the_names_of_the_fields():
    rows, _, _ = parsed(
        '{"step": 1, "name": "backward", "start_ns": 1500000, "end_ns": 2500000}\n'
        '{"iteration": 1, "op": "optimizer", "start_ms": 3, "duration_ms": 2}\n'
    )
    assert [(r["started_us"], r["duration_us"], r["rank"], r["step"]) for r in rows] == [
        (1500, 1000, 3, 1),
        (3000, 2000, 3, 1),
    ]


def test_bad_records_are_counted_with_their_reason_and_the_rest_is_kept():
    rows, problems, tallies = parsed(
        '{"step": 0, "op": "forward", "rank": 3, "start_us": 1000, "end_us": 900}\n'  # ends before it starts
        '{"step": 0, "op": "forward", "rank": 3, "start_us": 1000}\n'  # never ends
        '{"step": 0, "op": "for\n'  # cut off
        '{"step": 0, "op": "forward", "rank": 3, "start_us": 1000, "end_us": 1300}\n'
    )
    assert [p.reason for p in problems] == ["bad_value", "missing_column", "broken_json"]
    assert len(rows) == 1
    assert tallies[0].n_read == len(rows) + sum(p.n_records for p in problems)


def test_only_time_lines_are_recognised():
    adapter = TimelineAdapter()
    assert adapter.sniff("traces/x.jsonl", b'{"step": 0, "op": "data", "start_us": 1, "end_us": 2}\n') > 0.9
    assert adapter.sniff("logs/x.jsonl", b'{"level": "INFO", "message": "hello"}\n') == 0
    assert adapter.sniff("logs/x.log", b"[2026-01-01] step 3\n") == 0
