"""Slow ranks in profiles of a few steps, of which only sums by step are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ml.operations.finding import Finding, milliseconds, strength
from ml.operations.layers import begins_in, beyond_group, in_words
from ml.operations.ledger import BETWEEN, Floats, Ledger
from ml.operations.peers import beyond_peers, median_of_known, peers_of

LEAST_STEPS = 3
LEAST_SHARE = 0.03
SEEN_WAITING = 0.5
"""Share of a rank's excess that its peers must be seen to wait."""
QUIET = 0.45


def slow_in_profiles(
    ledger: Ledger,
    operations: pd.DataFrame,
    nodes: Mapping[int, str],
    roles: Mapping[int, str],
    groups: Mapping[int, Mapping[str, Sequence[int]]],
) -> list[Finding]:
    """A finding for each rank that works longer than its peers in every profiled step, while these wait for it.

    Profilers keep few steps: below `LEAST_STEPS` of them, or where nobody is seen to wait, it stays below an accusation.
    """
    step = median_of_known(ledger.step_s)
    typical = float(np.nanmedian(step)) if np.isfinite(step).any() else 0.0
    if typical <= 0:
        return []
    found = []
    peers = peers_of(ledger, roles, groups)
    excess = beyond_peers(ledger.busy_s, peers)
    for members in peers:
        slow = [p for p in members if _is_slow(excess[p], typical)]
        if not slow or (len(members) > 2 and 2 * len(slow) >= len(members)):
            continue
        others = [p for p in members if p not in slow]
        waiting = float(np.nanmedian(ledger.waited_s[others]))
        found += [_slow_rank(ledger, operations, p, members, excess[p], waiting, typical, nodes) for p in slow]
    return sorted(found, key=lambda f: (-f.score, f.ranks))


def _is_slow(excess: Floats, typical: float) -> bool:
    known = excess[np.isfinite(excess)]
    return len(known) > 0 and bool((known >= LEAST_SHARE * typical).all())


def _slow_rank(
    ledger: Ledger, operations: pd.DataFrame, position: int, members: Sequence[int], excess: Floats, waiting_s: float,
    typical: float, nodes: Mapping[int, str],
) -> Finding:  # fmt: skip
    known = excess[np.isfinite(excess)]
    seconds = float(np.median(known))
    share = seconds / typical
    beyond = beyond_group(ledger, position, members, 0, len(ledger.steps))
    layer = begins_in(beyond, typical) or "host"
    rank = ledger.ranks[position]
    operation = _worst(operations, rank, [ledger.ranks[m] for m in members], layer)
    score = strength(share)
    is_sure = len(known) >= LEAST_STEPS and waiting_s >= SEEN_WAITING * seconds
    where = f", mostly in {operation}" if operation else ""
    statement = (
        f"rank {rank} works {milliseconds(seconds)} a step longer than its peers in all {len(known)} profiled steps "
        f"({100 * share:.0f} % of the step){where}; the others wait {milliseconds(waiting_s)} a step in collectives; "
        f"layer by layer against its group: {in_words(beyond)}: the difference begins in the {layer} layer"
    )
    return Finding(
        "slow_worker", "spatial", score if is_sure else min(score, QUIET), statement, operation or BETWEEN,
        nodes=(nodes[rank],) if rank in nodes else (), ranks=(rank,), layer=layer, operation=operation or BETWEEN,
        excess_s=seconds, share_of_step=share,
    )  # fmt: skip


def _worst(operations: pd.DataFrame, rank: int, members: Sequence[int], layer: str) -> str | None:
    """The operation of a layer in which a rank is furthest beyond its group; those of a device only do not enclose others."""
    rows = operations[(operations["layer"] == layer) & operations["rank"].isin(members) & operations["step"].notna()]
    if layer != "gpu" or rows.empty:
        return None
    table = rows.pivot_table(index="name", columns="rank", values="duration_us", aggfunc="sum", fill_value=0.0)
    if rank not in table:
        return None
    return str((table[rank] - table.median(axis=1)).sort_index().idxmax())
