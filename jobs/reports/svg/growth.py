"""How the library grew: its size after each day as a line with a filled area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from jobs.reports.svg.canvas import WIDTH, Canvas, ticks
from jobs.reports.svg.timeline import LEFT, RIGHT
from jobs.reports.words import number


def growth_picture(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Rows of {at, n_templates} in order of time, at least two."""
    height, base, top = 200.0, 168.0, 14.0
    most = max(int(r["n_templates"]) for r in rows) or 1
    first, last = rows[0], rows[-1]
    said = f"From {number(first['n_templates'])} templates on {first['at']} to {number(last['n_templates'])} on {last['at']}."
    canvas = Canvas("Growth of the library", said, height)
    step = (WIDTH - LEFT - RIGHT) / (len(rows) - 1)
    points = [(LEFT + i * step, base - int(r["n_templates"]) / most * (base - top)) for i, r in enumerate(rows)]
    for tick in ticks(0, most, 4):
        y = base - tick / most * (base - top)
        canvas.line(LEFT, y, WIDTH - RIGHT, y, "grid").text(LEFT - 8, y + 4, number(tick), css="t mute", anchor="end")
    canvas.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in [(LEFT, base), *points, (points[-1][0], base)]) + "z", "band")
    canvas.polyline(points, "series")
    for i in sorted({0, len(rows) // 2, len(rows) - 1}):
        anchor = "start" if i == 0 else "end" if i == len(rows) - 1 else "middle"
        canvas.text(points[i][0], base + 18, str(rows[i]["at"]), css="t mute", anchor=anchor)
    return canvas.markup()
