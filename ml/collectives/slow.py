"""Slowness in collectives that were all completed, from durations, which do not depend on the nodes' clocks.

In a synchronous collective whoever comes last is in it for the shortest time; whoever is waiting is in it for longer.
A rank that is nearly always the shortest holds the others up outside of communication. A group whose members are all
long in it, compared with groups of the same kind, is slow in communication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ml.collectives.entries import Entries
from ml.collectives.latency import HotSpot, hot_spots, latency_matrix
from ml.collectives.matching import ONE_SIDED, base_op, collective_order, peer_places

MIN_COLLECTIVES = 20
WORST_FRACTION = 0.6
WAIT_RATIO = 1.5
GROUP_RATIO = 3.0


@dataclass(frozen=True)
class Slow:
    """Ranks with the share of collectives in which they came last and how much longer others waited; slow groups."""

    ranks: tuple[tuple[int, float, float], ...] = ()
    groups: tuple[tuple[str, float], ...] = ()
    links: tuple[HotSpot, ...] = ()


def slow_ranks(entries: Entries) -> Slow:
    """Ranks that others wait for in most collectives, and groups that are slow as a whole; empty without durations."""
    at, starts = collective_order(entries)
    links = _slow_links(entries)
    timed = ~np.isnan(entries.duration_ms[at]) if len(at) else np.empty(0, bool)
    if not timed.any():
        return Slow(links=links)
    sided = np.array([base_op(op) in ONE_SIDED for op in entries.ops], bool)
    n_last: dict[int, int] = {}
    n_all: dict[int, int] = {}
    ratios: dict[int, list[float]] = {}
    for begin, end in zip(starts, np.r_[starts[1:], len(at)]):
        here = at[begin:end]
        durations = entries.duration_ms[here]
        if len(here) < 3 or sided[entries.op[here[0]]] or np.isnan(durations).any():
            continue
        last = int(entries.rank[here[np.argmin(durations)]])
        for rank in entries.rank[here]:
            n_all[int(rank)] = n_all.get(int(rank), 0) + 1
        n_last[last] = n_last.get(last, 0) + 1
        ratios.setdefault(last, []).append(float(np.median(durations) / max(1e-6, durations.min())))
    found = [
        (rank, n / n_all[rank], float(np.median(ratios[rank])))
        for rank, n in sorted(n_last.items())
        if n_all[rank] >= MIN_COLLECTIVES and n / n_all[rank] >= WORST_FRACTION
    ]
    slow = tuple(one for one in found if one[2] >= WAIT_RATIO)
    return Slow(slow, () if slow else _slow_groups(entries), links)


def _slow_groups(entries: Entries) -> tuple[tuple[str, float], ...]:
    """Groups whose shortest member is long in it against other groups with the same operation and shape."""
    at, starts = collective_order(entries)
    shortest = np.minimum.reduceat(entries.duration_ms[at], starts)
    groups, ops, shapes = entries.group[at[starts]], entries.op[at[starts]], entries.shape[at[starts]]
    found: dict[str, float] = {}
    for op, shape in sorted({(int(o), int(s)) for o, s in zip(ops, shapes)}):
        same = (ops == op) & (shapes == shape) & ~np.isnan(shortest)
        medians = {
            int(g): float(np.median(shortest[same & (groups == g)]))
            for g in np.unique(groups[same])
            if (same & (groups == g)).sum() >= MIN_COLLECTIVES
        }
        if len(medians) < 3:
            continue
        usual = float(np.median(list(medians.values())))
        for group, value in medians.items():
            if value >= GROUP_RATIO * usual:
                name = entries.groups[group].name
                found[name] = max(found.get(name, 0.0), value / max(1e-9, usual))
    return tuple(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _slow_links(entries: Entries) -> tuple[HotSpot, ...]:
    """Hot cells, rows and columns of the latency matrix of all timed receives: source by destination, milliseconds."""
    at = np.flatnonzero(entries.is_p2p & ~np.isnan(entries.duration_ms))
    peers = {op: peer_places(name) for op, name in enumerate(entries.ops) if base_op(name) == "recv"}
    sources, destinations, values = [], [], []
    for i in at:
        places = peers.get(int(entries.op[i]))
        members = entries.groups[int(entries.group[i])].ranks
        if places is None or max(places) >= len(members):
            continue
        destination, source = (members[place] for place in places)
        if destination == int(entries.rank[i]):
            sources.append(source)
            destinations.append(destination)
            values.append(float(entries.duration_ms[i]))
    if len(values) < MIN_COLLECTIVES:
        return ()
    return tuple(hot_spots(*latency_matrix(np.array(sources), np.array(destinations), np.array(values))))
