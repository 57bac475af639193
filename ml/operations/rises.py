"""Operations that take longer on all ranks from some step on: a difference in time that accuses no place."""

from __future__ import annotations

import numpy as np

from ml.operations.changes import change_point
from ml.operations.finding import Finding, milliseconds, strength
from ml.operations.ledger import BETWEEN, Ledger
from ml.operations.peers import WARM_UP, Floats, median_of_known, time_of

LEAST_SHARE = 0.02


def operation_rises(ledger: Ledger, step: Floats) -> list[Finding]:
    """A finding for each operation whose median over ranks moved up for good, the costliest first."""
    found = []
    for k, name in enumerate(ledger.names):
        common = median_of_known(ledger.work_s[k])
        common[:WARM_UP] = np.nan
        change = change_point(common, 10)
        if change is None or change.after <= change.before:
            continue
        length = float(np.nanmedian(step[change.index :]))
        share = (change.after - change.before) / length if length > 0 else 0.0
        if share < LEAST_SHARE:
            continue
        since = int(ledger.steps[change.index])
        what = "the time between operations" if name == BETWEEN else name
        statement = (
            f"{what} takes {milliseconds(change.after)} instead of {milliseconds(change.before)} on the median rank from "
            f"step {since} on ({100 * share:.0f} % of the step)"
        )
        found.append(
            Finding(
                "operation_rise", "temporal", strength(share), statement, name, is_global=True, iteration=since,
                at_s=time_of(ledger, change.index), layer=ledger.layers[k], operation=name,
                excess_s=change.after - change.before, share_of_step=share,
            )
        )  # fmt: skip
    return sorted(found, key=lambda f: (-f.score, f.subject))
