"""Where: ranks against time as a heat picture, and the fleet part of the job as a map of switches and nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from jobs.reports.svg.canvas import LEVELS, WIDTH, Canvas, cells, level
from jobs.reports.words import count, number, ranges

LEFT = 150
MAX_ROWS = 48
N_ODD = 8
NAMED_PLACES = 48


@dataclass(frozen=True)
class HeatRow:
    """One rank (or several): its values along the axis, None where nothing is known."""

    label: str
    values: Sequence[float | None]
    is_suspect: bool = False


@dataclass(frozen=True)
class HeatAxis:
    """Labels along the bottom: position as a share of the width, and text; the onset as two shares."""

    labels: Sequence[tuple[float, str]]
    name: str
    onset: tuple[float, float] | None = None


def fold(rows: Sequence[tuple[int, HeatRow]], limit: int = MAX_ROWS) -> list[HeatRow]:
    """At most `limit` rows from (rank, row): suspects come first, then ranks that stand out, then blocks of neighbouring ranks.

    A block shows the median of its ranks; a rank stands out when its mean distance from the columns' medians is more than
    five spreads above the others', so that one odd rank among thousands keeps a row of its own.
    """
    suspects = [(rank, row) for rank, row in rows if row.is_suspect][: limit // 2]
    if len(rows) <= limit:
        return [row for _, row in suspects] + [row for _, row in rows if not row.is_suspect]
    kept = {rank for rank, _ in suspects}
    others = [(rank, row) for rank, row in rows if rank not in kept]
    grid = _grid([row for _, row in others])
    odd = _odd_rows(grid, N_ODD)
    single = [row for _, row in suspects] + [others[i][1] for i in odd]
    rest = [i for i in range(len(others)) if i not in set(odd)]
    size = math.ceil(len(rest) / max(limit - len(single), 1))
    for start in range(0, len(rest), size):
        block = rest[start : start + size]
        single.append(HeatRow(f"ranks {others[block[0]][0]}–{others[block[-1]][0]}", _medians(grid[block])))
    return single


def _grid(rows: Sequence[HeatRow]) -> np.ndarray:
    wide = max((len(row.values) for row in rows), default=0)
    grid = np.full((len(rows), wide), np.nan)
    for i, row in enumerate(rows):
        grid[i, : len(row.values)] = [np.nan if v is None else v for v in row.values]
    return grid


def _medians(grid: np.ndarray) -> list[float | None]:
    known = ~np.isnan(grid).all(axis=0)
    middle = np.full(grid.shape[1], np.nan)
    middle[known] = np.nanmedian(grid[:, known], axis=0)
    return [None if np.isnan(v) else float(v) for v in middle]


def _odd_rows(grid: np.ndarray, most: int) -> list[int]:
    """Rows whose mean distance from the columns' medians is far above the others', furthest first."""
    middle = np.array([np.nan if v is None else v for v in _medians(grid)])
    distance = np.abs(grid - middle)
    usable = ~np.isnan(distance).all(axis=1)
    means = np.zeros(len(grid))
    means[usable] = np.nanmean(distance[usable], axis=1)
    spread = float(np.median(np.abs(means - np.median(means)))) or 1e-9
    order = sorted(range(len(grid)), key=lambda i: (-means[i], i))
    return [i for i in order[:most] if means[i] > np.median(means) + 5 * spread and means[i] > 1e-6]


def heat(
    title: str, rows: Sequence[HeatRow], axis: HeatAxis, unit: str, what: str, ends: Callable[[float], str] = number
) -> Markup:
    """The picture. `what` says in words what a strongly coloured cell means; `unit` names the scale, `ends` writes its ends."""
    columns = max((len(row.values) for row in rows), default=1)
    wide, tall = (WIDTH - LEFT - 16) / columns, max(9, min(18, 640 / max(len(rows), 1)))
    known = sorted(v for row in rows for v in row.values if v is not None)
    low, high = (known[0], known[min(len(known) - 1, int(len(known) * 0.995))]) if known else (0.0, 1.0)
    canvas = Canvas(title, f"{what} {_extremes(rows, unit, ends)}", tall * len(rows) + 46)
    blocks: list[list[tuple[float, float, float, float]]] = [[] for _ in range(LEVELS)]
    for number_, row in enumerate(rows):
        top = 8 + number_ * tall
        for first, length, step in _runs(row.values, low, high):
            blocks[step].append((LEFT + first * wide, top, length * wide, tall - 1))
        if row.is_suspect:
            canvas.mark(4, top + tall / 2)
        if tall >= 9:
            canvas.text(LEFT - 8, top + tall / 2 + 4, row.label[:22], css="t hot" if row.is_suspect else "t small", anchor="end")
    for step, group in enumerate(blocks):
        canvas.path(cells(group), f"h{step}")
    bottom = 8 + tall * len(rows)
    if axis.onset:
        x1, x2 = (LEFT + share * wide * columns for share in axis.onset)
        canvas.rect(x1, 4, max(x2 - x1, 2), bottom - 2, "onset-line", "onset window")
    for share, text in axis.labels:
        canvas.text(LEFT + share * wide * columns, bottom + 14, text, css="t mute", anchor="middle")
    canvas.text(LEFT - 8, bottom + 14, axis.name, css="t mute", anchor="end")
    _legend(canvas, (ends(low), f"{ends(high)} {unit}; blank: no value"), bottom + 24)
    return canvas.markup()


def _runs(values: Sequence[float | None], low: float, high: float) -> list[tuple[int, int, int]]:
    """Neighbouring cells of one step as (first, length, step)."""
    runs: list[tuple[int, int, int]] = []
    span = (high - low) or 1.0
    for i, value in enumerate(values):
        if value is None:
            continue
        step = level((value - low) / span)
        if runs and runs[-1][2] == step and runs[-1][0] + runs[-1][1] == i:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, step)
        else:
            runs.append((i, 1, step))
    return runs


def _extremes(rows: Sequence[HeatRow], unit: str, ends: Callable[[float], str]) -> str:
    means = [(sum(v for v in r.values if v is not None) / max(1, sum(v is not None for v in r.values)), r.label) for r in rows]
    if not means:
        return "No values."
    (most, at_most), (least, at_least) = max(means), min(means)
    return f"Highest on average: {at_most} ({ends(most)} {unit}); lowest: {at_least} ({ends(least)} {unit})."


def _legend(canvas: Canvas, ends: tuple[str, str], top: float) -> None:
    for step in range(LEVELS):
        canvas.rect(LEFT + step * 22, top, 22, 10, f"h{step}")
    canvas.text(LEFT - 8, top + 9, ends[0], css="t mute", anchor="end").text(LEFT + LEVELS * 22 + 8, top + 9, ends[1], css="t mute")


@dataclass(frozen=True)
class Place:
    """One node of the job: its switch, its ranks, and the score (0 to 1) of each rank that a candidate names."""

    node: str
    switch: str
    ranks: Sequence[int]
    scores: dict[int, float]
    node_score: float = 0.0


def topology(places: Sequence[Place]) -> Markup:
    """Switches, below each its nodes as boxes, ranks as cells; a candidate is filled, outlined and marked.

    Up to 48 nodes are named; beyond, boxes are small and stand beside their switch's name.
    """
    named = len(places) <= NAMED_PLACES
    cell = 15.0 if named else 5.0
    per = max((len(p.ranks) for p in places), default=1)
    box_w, box_h = (max(per * cell + 8, 104.0), cell + 22) if named else (per * cell + 6, cell + 5)
    left, gap = (4.0, 8.0) if named else (130.0, 3.0)
    across = max(1, int((WIDTH - left - 4) // (box_w + gap)))
    switches: dict[str, list[Place]] = {}
    for place in places:
        switches.setdefault(place.switch, []).append(place)
    head = 24.0 if named else 0.0
    tall = {
        name: head + math.ceil(len(group) / across) * (box_h + gap * 0.75) + (2 if named else 8) for name, group in switches.items()
    }
    accused = [p.node for p in places if p.node_score or p.scores]
    n_ranks = sum(len(p.ranks) for p in places)
    said = f"{count(len(places), 'node')} below {count(len(switches), 'switch', 'switches')}, {count(n_ranks, 'rank')}."
    canvas = Canvas("Map of the job's machines", f"{said} Candidates: {', '.join(accused[:12]) or 'none'}.", sum(tall.values()) + 6)
    top = 2.0
    for switch, group in switches.items():
        label = f"{switch} · {count(len(group), 'node')}" if named else f"{switch[:16]} · {len(group)}"
        canvas.text(4, top + (14 if named else 9), label, css="t mute")
        for number_, place in enumerate(group):
            x, y = left + (number_ % across) * (box_w + gap), top + head + (number_ // across) * (box_h + gap * 0.75)
            _place(canvas, place, (x, y, box_w, box_h), cell, named)
        top += tall[switch]
    return canvas.markup()


def _place(canvas: Canvas, place: Place, box: tuple[float, float, float, float], cell: float, named: bool) -> None:
    x, y, w, h = box
    is_suspect = place.node_score > 0 or bool(place.scores)
    tip = f"{place.node}: ranks {ranges(place.ranks)}" + (f", candidate score {number(place.node_score, 2)}" if is_suspect else "")
    canvas.rect(x, y, w, h, "box hot-line" if is_suspect else "box", tip, 3 if named else 1.5)
    if named:
        if is_suspect:
            canvas.mark(x + 4, y + 10)
        canvas.text(x + (14 if is_suspect else 4), y + 14, place.node[: int(w // 7)], css="t hot" if is_suspect else "t small")
    inset, slack = (4.0, 2.0) if named else (3.0, 1.0)
    spots = [
        (x + inset + i * cell, y + h - cell - (1 if named else 2), cell - slack, cell - slack - (1 if named else 0))
        for i in range(len(place.ranks))
    ]
    canvas.path(cells(s for s, rank in zip(spots, place.ranks) if rank not in place.scores), "cell")
    for spot, rank in zip(spots, place.ranks):
        if rank in place.scores:
            canvas.rect(*spot, "cell hot-fill", f"rank {rank}: score {number(place.scores[rank], 2)}")
    if named and per_rank_labels(cell, place.ranks):
        for spot, rank in zip(spots, place.ranks):
            css = "t tiny on-hot" if rank in place.scores else "t tiny"
            canvas.text(spot[0] + spot[2] / 2, y + h - 5, str(rank), css=css, anchor="middle")


def per_rank_labels(cell: float, ranks: Sequence[int]) -> bool:
    """Whether rank numbers fit their cells."""
    return cell >= 15 and max(ranks, default=0) < 100
