"""One difference that was found, before it gets its place in a table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """What was found, where, since when, and how strongly (0 to 1); times in seconds.

    `excess_s` is the time a step that it explains, `share_of_step` the same as a share of the step; `share_last` the
    share of steps in which the accused came last to the collective.
    """

    kind: str
    axis: str
    score: float
    statement: str
    subject: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    group_kind: str | None = None
    is_echo: bool = False
    is_global: bool = False
    at_s: float | None = None
    iteration: int | None = None
    layer: str | None = None
    operation: str | None = None
    excess_s: float | None = None
    share_of_step: float | None = None
    share_last: float | None = None
    beyond: dict[str, float] = field(default_factory=dict)


def strength(share_of_step: float, half: float = 0.1) -> float:
    """Score of an effect by its share of the step: one half at `half`, towards 1 for what fills the step.

    >>> strength(0.1), round(strength(0.9), 2)
    (0.5, 0.9)
    """
    return max(0.0, share_of_step) / (max(0.0, share_of_step) + half)


def milliseconds(seconds: float) -> str:
    """For sentences: `850 ms`, `2.31 s`."""
    return f"{seconds * 1e3:.0f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"


def verb(ranks: tuple[int, ...], word: str) -> str:
    """For sentences: the verb that goes with these ranks."""
    return f"{word}s" if len(ranks) == 1 else word


def numbered(ranks: tuple[int, ...]) -> str:
    """For sentences: `rank 5`, `ranks 2, 3`, `ranks 0, 1, 2 and 61 more`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    rest = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return "ranks " + ", ".join(map(str, ranks[:8])) + rest
