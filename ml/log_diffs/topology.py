"""Where ranks run and what they share, and findings in those words.

A `Job` is what the other modules need to know of one training job: outcome, times, places. All times are seconds
since 1970, UTC, with node clocks already corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Place:
    """One rank and where it ran; `groups` maps a kind (tp, dp …) to the ranks of the group that it is in."""

    rank: int
    node: str | None = None
    local_rank: int | None = None
    device: str | None = None
    switch: str | None = None
    role: str | None = None
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Identity, outcome and topology of one job."""

    job_id: str
    state: str
    exit_code: int | None = None
    node_exit_codes: Mapping[str, int | None] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    nodes: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    world_size: int | None = None
    coverage: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def node_of(self) -> dict[int, str]:
        """Node of each rank whose node is known."""
        return {place.rank: place.node for place in self.places if place.node is not None}

    @cached_property
    def _ranks_of(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place in self.places:
            if place.node is not None:
                found.setdefault(place.node, []).append(place.rank)
        return found

    @cached_property
    def _by_local_rank(self) -> dict[tuple[str | None, int | None], int]:
        return {(place.node, place.local_rank): place.rank for place in reversed(self.places)}

    def ranks_on(self, nodes: Iterable[str]) -> tuple[int, ...]:
        """Ranks that run on these nodes, in order."""
        return tuple(sorted(rank for node in set(nodes) for rank in self._ranks_of.get(node, ())))

    def nodes_under(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """Nodes on which these ranks run, in rank order."""
        where = self.node_of
        return tuple(dict.fromkeys(where[rank] for rank in sorted(set(ranks)) if rank in where))

    def rank_at(self, node: str | None, local_rank: int | None) -> int | None:
        """Global rank of a local one."""
        return self._by_local_rank.get((node, local_rank))


@dataclass(frozen=True)
class Finding:
    """One difference with its evidence: a row of any `*_findings` table (see `table`)."""

    source: str
    axis: str
    kind: str
    statement: str
    score: float
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    group_kind: str | None = None
    is_echo: bool = False
    is_global: bool = False
    at: float | None = None
    iteration: int | None = None
    phase: str | None = None
    subject: str | None = None
    refs: tuple[tuple[str, int | None], ...] = ()
    table: str = "log_findings"

    @property
    def accuses(self) -> bool:
        """Whether it points at a place as a possible origin."""
        return bool(self.nodes or self.ranks) and not self.is_echo and not self.is_global


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks in short form.

    >>> rank_ranges([0, 1, 2, 3, 6])
    '0-3/6'
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return "/".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def exact_groups(places: Sequence[Place], ranks: Iterable[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Parallel groups that consist of exactly these ranks, as (kind, ranks), by kind.

    A group of every rank of the job says nothing and is left out, and so is a group of one.
    """
    wanted = tuple(sorted(set(ranks)))
    if len(wanted) < 2 or len(wanted) == len(places):
        return []
    first = next((place for place in places if place.rank == wanted[0]), None)
    groups = first.groups.items() if first is not None else ()
    found = {(kind, tuple(sorted(members))) for kind, members in groups if tuple(sorted(members)) == wanted}
    return sorted(found)


def groups_holding(places: Sequence[Place], ranks: Iterable[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Groups for display: the exact ones, else each group of the first rank that holds all these ranks."""
    wanted = set(ranks)
    exact = exact_groups(places, wanted)
    if exact or not wanted:
        return exact
    first = next((place for place in places if place.rank in wanted), None)
    groups = first.groups.items() if first is not None else ()
    holding = {
        (kind, tuple(sorted(members))) for kind, members in groups if wanted <= set(members) and 1 < len(members) < len(places)
    }
    return sorted(holding)


def shared_switch(places: Sequence[Place], nodes: Iterable[str]) -> str | None:
    """The switch above exactly these nodes: all of them and no other; None for one node or a switch that all share."""
    wanted = set(nodes)
    if len(wanted) < 2:
        return None
    under: dict[str, set[str]] = {}
    for place in places:
        if place.switch is not None and place.node is not None:
            under.setdefault(place.switch, set()).add(place.node)
    if len(under) < 2:
        return None
    for switch, members in sorted(under.items()):
        if members == wanted:
            return switch
    return None


def where(job: Job, ranks: Sequence[int], nodes: Sequence[str]) -> str:
    """A place in words: `rank 5 on n3`, `ranks 4-5 on n3`, `node n3`, `ranks 0-3/6`."""
    if ranks:
        noun = "rank" if len(set(ranks)) == 1 else "ranks"
        words = f"{noun} {rank_ranges(ranks)}"
        on = nodes or job.nodes_under(ranks)
        return f"{words} on {on[0]}" if len(on) == 1 else words
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    return "nodes " + ", ".join(nodes) if nodes else "the job"


def is_nearly_all(n_with: int, n_peers: int) -> bool:
    """Whether so many peers show something that it accuses nobody: four in five, all but one of four, all of fewer.

    >>> is_nearly_all(63, 64), is_nearly_all(3, 4), is_nearly_all(2, 3)
    (True, True, False)
    """
    if n_peers < 4:
        return n_with >= n_peers
    return n_with >= min(0.8 * n_peers, n_peers - 1)
