"""The ledger: working is kept apart from waiting."""

import numpy as np
import pandas as pd
import pytest

from ml.operations.ledger import BETWEEN, book

NODES = {0: "a", 1: "b"}
GROUPS = {0: {"dp": [0, 1]}, 1: {"dp": [0, 1]}}


def operations(rows):
    names = {
        "forward": ("forward", "host"),
        "dp-allreduce": ("collective", "collective"),
        "tp-allreduce": ("collective", "collective"),
    }
    return pd.DataFrame(
        [
            {
                "rank": rank, "step": step, "name": name, "kind": names[name][0], "layer": names[name][1],
                "started_us": start, "duration_us": float(end - start), "parent": parent, "group": name[:2],
            }
            for rank, step, name, start, end, parent in rows
        ]
    )  # fmt: skip


def two_steps(shift_us=0):
    """Rank 1 computes 100 ms longer than rank 0, which waits for it; the transfer takes 20 ms."""
    rows = []
    for step in range(8):
        base = step * 1_000_000
        rows += [
            (0, step, "forward", base, base + 100_000, None),
            (0, step, "dp-allreduce", base + 110_000, base + 230_000, None),
            (1, step, "forward", base + shift_us, base + 200_000 + shift_us, None),
            (1, step, "dp-allreduce", base + 210_000 + shift_us, base + 230_000 + shift_us, None),
        ]
    return operations(rows)


def test_a_collective_is_split_into_waiting_and_transfer():
    ledger = book(two_steps(), GROUPS, NODES)
    (collective,) = ledger.collectives
    assert collective.group_kind == "dp"
    assert collective.waited_s[:, 3] == pytest.approx([0.1, 0.0])  # rank 0 waits for rank 1
    assert collective.transfer_s[:, 3] == pytest.approx([0.02, 0.02])


def test_work_is_own_time_and_what_lies_between():
    ledger = book(two_steps(), GROUPS, NODES)
    forward, between = ledger.names.index("forward"), ledger.names.index(BETWEEN)
    assert ledger.work_s[forward][:, 3] == pytest.approx([0.1, 0.2])
    # from the end of the last step (230 ms) to the next (1 s), and 10 ms before the collective
    assert ledger.work_s[between][:, 3] == pytest.approx([0.78, 0.78])
    assert np.isnan(ledger.step_s[:, 0]).all()  # the first step has no step before it


def test_an_enclosed_operation_is_not_counted_twice():
    rows = []
    for step in range(3):
        base = step * 1_000_000
        for rank in (0, 1):
            rows += [
                (rank, step, "forward", base, base + 100_000, None),
                (rank, step, "tp-allreduce", base + 20_000, base + 50_000, "forward"),
            ]
    ledger = book(operations(rows), {r: {"tp": [0, 1]} for r in (0, 1)}, NODES)
    assert ledger.work_s[ledger.names.index("forward")][:, 1] == pytest.approx([0.07, 0.07])


def test_clocks_that_differ_are_repaired_and_said_so():
    ledger = book(two_steps(shift_us=-400_000), GROUPS, NODES)  # by its own clock, node b ends before a has started
    (collective,) = ledger.collectives
    assert "clocks differ" in ledger.notes[0]
    assert collective.transfer_s[:, 3] == pytest.approx([0.02, 0.02])
    assert collective.waited_s[:, 3] == pytest.approx([0.1, 0.0])


def test_operations_without_a_place_in_time_are_left_out_and_said_so():
    rows = two_steps()
    rows.loc[0, "step"] = None
    assert book(rows, GROUPS, NODES).notes == ("1 operations without rank, step or start were left out",)
