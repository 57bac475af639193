"""Parallel groups from the configuration of process groups: the topology that a dump carries for free."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LARGE = 64
"""Ranks from which a group of all of them is not written out for each."""

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("world", re.compile(r"^(?:default_pg|world|global)$")),
    ("ep", re.compile(r"^expert_model_parallel|^(?:mesh_)?ep$")),
    ("etp", re.compile(r"^expert_tensor_(?:model_)?parallel")),
    ("edp", re.compile(r"^expert_data_parallel")),
    ("tp", re.compile(r"^tensor_model_parallel|^tensor_parallel|^(?:mesh_)?tp$")),
    ("pp", re.compile(r"^pipeline_model_parallel|^pipeline_parallel|^(?:mesh_)?pp$")),
    ("dp", re.compile(r"^data_parallel|^(?:mesh_)?(?:dp|fsdp|dp_replicate|dp_shard|data)$")),
    ("cp", re.compile(r"^context_parallel|^(?:mesh_)?(?:cp|sp)$|^sequence_parallel")),
    ("mp", re.compile(r"^model_parallel")),
)


def group_kind(description: str) -> str:
    """A short kind for a group's description; a description that is not known is its own kind, in lower case.

    >>> group_kind("TENSOR_MODEL_PARALLEL_GROUP"), group_kind("default_pg"), group_kind("EMBEDDING_GROUP")
    ('tp', 'world', 'embedding')
    """
    lowered = description.strip().lower()
    for kind, pattern in _KINDS:
        if pattern.search(lowered):
            return kind
    return re.sub(r"[^a-z0-9]+", "_", lowered.removesuffix("_group")).strip("_")[:64] or "group"


def groups_from_pg_config(groups: Iterable[tuple[str, Iterable[int]]]) -> dict[int, dict[str, list[int]]]:
    """The parallel groups of each rank, as `ranks.groups` holds them, from pairs of description (or name) and ranks.

    A label is a name, a description, or both with a space between, as in `collectives.group`. Groups of one rank and the
    world say nothing and are left out, and in large jobs all groups of every rank: written for each rank they would grow
    with the square of the ranks. Of several groups of one kind that a rank is in, the first in order of labels counts.

        >>> groups_from_pg_config([("35 TENSOR_MODEL_PARALLEL_GROUP", [0, 1]), ("0 default_pg", [0, 1])])[0]
        {'tp': [0, 1]}
    """
    found: dict[int, dict[str, list[int]]] = {}
    pairs = {(label, tuple(dict.fromkeys(ranks))) for label, ranks in groups}
    n_ranks = len({rank for _, ranks in pairs for rank in ranks})
    for label, ranks in sorted(pairs, key=lambda pair: (_number(pair[0]), pair)):
        kind = group_kind(_description(label))
        is_everyone = kind == "world" or (len(ranks) == n_ranks and n_ranks > LARGE)
        for rank in ranks if len(ranks) > 1 and not is_everyone else ():
            found.setdefault(rank, {}).setdefault(kind, sorted(ranks))
    return {rank: dict(sorted(kinds.items())) for rank, kinds in sorted(found.items())}


def _number(label: str) -> int:
    match = re.match(r"\d{1,9}", label)
    return int(match[0]) if match else 0


def _description(label: str) -> str:
    name, _, description = label.partition(" ")
    return description or name


def smallest_group(
    ranks: Iterable[int], groups: Mapping[int, Mapping[str, Iterable[int]]], n_ranks: int | None = None
) -> tuple[str, list[int]] | None:
    """The smallest parallel group that holds all these ranks, with its kind; None when only the whole job does.

    >>> smallest_group([4, 5], {4: {"tp": [4, 5], "dp": [0, 2, 4, 6]}, 5: {"tp": [4, 5]}})
    ('tp', [4, 5])
    """
    wanted = set(ranks)
    if not wanted:
        return None
    held = [
        (len(set(members)), kind, sorted(set(members)))
        for kind, members in groups.get(min(wanted), {}).items()
        if wanted <= set(members)
    ]
    held = [one for one in held if one[0] > 1 and (n_ranks is None or one[0] < n_ranks)]
    return min(held)[1:] if held else None
