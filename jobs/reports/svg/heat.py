"""Where: ranks against time as a heat picture, and the fleet part of the job as a map of switches and nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from jobs.reports.svg.canvas import LEVELS, WIDTH, Canvas, cells, level
from jobs.reports.words import count, number, ranges

LEFT = 150
MAX_ROWS = 64


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
    """At most `limit` rows: suspects stay single and come first, the others are folded by neighbouring ranks.

    A folded cell shows the value that is furthest from its column's median, so that one odd rank is still seen.
    """
    suspects = [row for _, row in rows if row.is_suspect][: limit // 2]
    kept = {id(row) for row in suspects}
    others = [(rank, row) for rank, row in rows if id(row) not in kept]
    room = limit - len(suspects)
    if len(others) <= room:
        return suspects + [row for _, row in others]
    size = math.ceil(len(others) / room)
    middle = _column_medians([row for _, row in others])
    folded = []
    for start in range(0, len(others), size):
        block = others[start : start + size]
        values = [_furthest([row.values[i] for _, row in block], m) for i, m in enumerate(middle)]
        folded.append(HeatRow(f"ranks {ranges((r for r, _ in block), 2)}", values))
    return suspects + folded


def _column_medians(rows: Sequence[HeatRow]) -> list[float]:
    medians = []
    for column in zip(*(row.values for row in rows)):
        known = sorted(v for v in column if v is not None)
        medians.append(known[len(known) // 2] if known else 0.0)
    return medians


def _furthest(values: Sequence[float | None], middle: float) -> float | None:
    known = [v for v in values if v is not None]
    return max(known, key=lambda v: abs(v - middle)) if known else None


def heat(
    title: str, rows: Sequence[HeatRow], axis: HeatAxis, unit: str, what: str, ends: Callable[[float], str] = number
) -> Markup:
    """The picture. `what` says in words what a dark cell means; `unit` names the scale, `ends` writes its ends."""
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
    """Switches as frames, nodes as boxes, ranks as cells; a candidate is filled, outlined and marked."""
    named = len(places) <= 48
    cell = 15.0 if named else 7.0
    per = max((len(p.ranks) for p in places), default=1)
    box_w, box_h = max(per * cell + 8, 104.0 if named else 0), cell + (22 if named else 5)
    across = max(1, int((WIDTH - 24) // (box_w + 8)))
    switches: dict[str, list[Place]] = {}
    for place in places:
        switches.setdefault(place.switch, []).append(place)
    height = sum(26 + math.ceil(len(group) / across) * (box_h + 6) for group in switches.values()) + 6
    accused = [p.node for p in places if p.node_score or p.scores]
    n_ranks = sum(len(p.ranks) for p in places)
    said = f"{count(len(places), 'node')} below {count(len(switches), 'switch', 'switches')}, {count(n_ranks, 'rank')}."
    canvas = Canvas("Map of the job's machines", f"{said} Candidates: {', '.join(accused[:12]) or 'none'}.", height)
    top = 0.0
    for switch, group in switches.items():
        canvas.text(4, top + 16, f"{switch} · {count(len(group), 'node')}", css="t mute")
        top += 24
        for number_, place in enumerate(group):
            x, y = 4 + (number_ % across) * (box_w + 8), top + (number_ // across) * (box_h + 6)
            _place(canvas, place, (x, y, box_w, box_h), cell, named)
        top += math.ceil(len(group) / across) * (box_h + 6) + 2
    return canvas.markup()


def _place(canvas: Canvas, place: Place, box: tuple[float, float, float, float], cell: float, named: bool) -> None:
    x, y, w, h = box
    is_suspect = place.node_score > 0 or bool(place.scores)
    tip = f"{place.node}: ranks {ranges(place.ranks)}" + (f", candidate score {number(place.node_score, 2)}" if is_suspect else "")
    canvas.rect(x, y, w, h, "box hot-line" if is_suspect else "box", tip, 3)
    if named:
        if is_suspect:
            canvas.mark(x + 4, y + 10)
        canvas.text(x + (14 if is_suspect else 4), y + 14, place.node[: int(w // 7)], css="t hot" if is_suspect else "t small")
    plain = [(x + 4 + i * cell, y + h - cell - 1, cell - 2, cell - 3) for i, r in enumerate(place.ranks) if r not in place.scores]
    canvas.path(cells(plain), "cell")
    for i, rank in enumerate(place.ranks):
        if rank in place.scores:
            canvas.rect(
                x + 4 + i * cell,
                y + h - cell - 1,
                cell - 2,
                cell - 3,
                "cell hot-fill",
                f"rank {rank}: score {number(place.scores[rank], 2)}",
            )
    if named and per_rank_labels(cell, place.ranks):
        for i, rank in enumerate(place.ranks):
            canvas.text(
                x + 4 + i * cell + (cell - 2) / 2,
                y + h - 5,
                str(rank),
                css="t tiny on-hot" if rank in place.scores else "t tiny",
                anchor="middle",
            )


def per_rank_labels(cell: float, ranks: Sequence[int]) -> bool:
    """Whether rank numbers fit their cells."""
    return cell >= 15 and max(ranks, default=0) < 100
