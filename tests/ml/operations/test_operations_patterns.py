"""EROICA's patterns and their rule."""

import numpy as np
import pandas as pd

from ml.operations.ledger import book
from ml.operations.patterns import pattern_findings, patterns


def ledger(forward_s, n_steps=20):
    """Ranks that compute and then gather; data takes 0.2 % of the step, whatever it does."""
    rows = []
    for step in range(n_steps):
        begin = step * 10_000_000.0
        for rank, seconds in enumerate(forward_s):
            data = 30_000.0 if rank == 0 else 10_000.0
            rows += [
                (rank, step, "data", "data", "host", begin, data),
                (rank, step, "forward", "forward", "host", begin + data, seconds * 1e6),
                (rank, step, "dp-allreduce", "collective", "collective", begin + 4e6, 10_000_000.0 - 4e6),
            ]
    columns = ["rank", "step", "name", "kind", "layer", "started_us", "duration_us"]
    return book(pd.DataFrame(rows, columns=columns).assign(parent=None, group="dp"), {}, {})


SLOW = [1.0] * 11 + [3.0]


def test_shares_of_the_window_add_up_to_at_most_one():
    found = patterns(ledger(SLOW), 1, 20)
    for rank in range(12):
        assert sum(p.beta for p in found if p.rank == rank) <= 1 + 1e-9


def test_a_function_that_matters_and_differs_is_abnormal_and_comes_first():
    found = patterns(ledger(SLOW), 1, 20)
    assert (found[0].rank, found[0].name, found[0].is_abnormal) == (11, "forward", True)
    assert round(found[0].explained_s, 3) == 2.0


def test_a_function_that_does_not_matter_is_never_abnormal():
    found = patterns(ledger(SLOW), 1, 20)
    data = next(p for p in found if p.name == "data" and p.rank == 0)
    assert data.beta < 0.01  # three times its peers, but a third of a percent of the time
    assert not data.is_abnormal


def test_a_share_outside_the_expected_range_is_abnormal_though_all_ranks_agree():
    found = patterns(ledger([1.0] * 12), 1, 20, {"forward": (0.0, 0.05)})
    forward = [p for p in found if p.name == "forward"]
    assert all(p.is_abnormal and p.distance > 0 for p in forward)


def test_patterns_are_leads_below_an_accusation():
    book_ = ledger(SLOW)
    found = pattern_findings(book_, patterns(book_, 1, 20), {r: f"n{r}" for r in range(12)}, float(np.nanmedian(book_.step_s)))
    assert [(f.ranks, f.operation) for f in found] == [((11,), "forward")]
    assert found[0].score < 0.5
