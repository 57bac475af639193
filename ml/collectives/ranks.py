"""Sets of ranks as people read them, in FLAME's notation."""

from __future__ import annotations

from collections.abc import Iterable


def compressed(ranks: Iterable[int]) -> str:
    """Ranks as ranges joined by slashes.

    >>> compressed([8, 0, 1, 2, 3])
    '0-3/8'
    """
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return "/".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def notation(has: Iterable[int], missing: Iterable[int]) -> str:
    """Who is in a path and who is not, as FLAME writes it.

    >>> notation([0, 1, 2, 8], [7]), notation([0, 1], [])
    ('@0-2/8|7', '@0-1|')
    """
    return f"@{compressed(has)}|{compressed(missing)}"
