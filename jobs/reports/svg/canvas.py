"""The small kit of the pictures: escaped elements, scales, ticks, and colour by class so that themes apply."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape

from markupsafe import Markup

from jobs.reports.words import clean

WIDTH = 960
LEVELS = 8
"""Steps of the heat scale; classes h0 to h7 take their colours from the theme."""


def attribute(value: object) -> str:
    """An attribute value, escaped; coordinates with one decimal."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(clean(str(value)), quote=True)


@dataclass
class Canvas:
    """One picture under construction.

    >>> str(Canvas("Events", "Two events.", 40).text(0, 10, "a <b>").markup())  # doctest: +ELLIPSIS
    '<svg ...a &lt;b&gt;...</svg>'
    """

    title: str
    description: str
    height: float
    width: float = WIDTH
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, *, css: str = "t", anchor: str = "start") -> Canvas:
        """A line of text at its base line."""
        extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(
            f'<text x="{attribute(float(x))}" y="{attribute(float(y))}" class="{css}"{extra}>{escape(clean(text, 200))}</text>'
        )
        return self

    def rect(self, x: float, y: float, w: float, h: float, css: str, tip: str = "", radius: float = 0) -> Canvas:
        """A rectangle; `tip` becomes its title."""
        round_ = f' rx="{attribute(float(radius))}"' if radius else ""
        at = zip(("x", "y", "width", "height"), (x, y, max(w, 0.4), h))
        box = " ".join(f'{name}="{attribute(float(value))}"' for name, value in at)
        self.parts.append(
            f'<rect {box}{round_} class="{css}">{_tip(tip)}</rect>' if tip else f'<rect {box}{round_} class="{css}"/>'
        )
        return self

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str = "axis") -> Canvas:
        """A straight line."""
        at = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2))
        self.parts.append("<line " + " ".join(f'{k}="{attribute(float(v))}"' for k, v in at) + f' class="{css}"/>')
        return self

    def path(self, d: str, css: str, tip: str = "") -> Canvas:
        """A path, its commands ready made from numbers."""
        if d:
            self.parts.append(f'<path d="{d}" class="{css}">{_tip(tip)}</path>' if tip else f'<path d="{d}" class="{css}"/>')
        return self

    def polyline(self, points: Iterable[tuple[float, float]], css: str) -> Canvas:
        """A line through points."""
        return self.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if (points := list(points)) else "", css)

    def dot(self, x: float, y: float, radius: float, css: str, tip: str = "") -> Canvas:
        """A circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{css}">{_tip(tip)}</circle>')
        return self

    def mark(self, x: float, y: float, css: str = "suspect") -> Canvas:
        """A small triangle that points right: the suspect, told by form as well as by colour."""
        return self.path(f"M{x:.1f} {y - 5:.1f}l7 5l-7 5z", css)

    def markup(self) -> Markup:
        """The finished picture."""
        key = hashlib.sha256((self.title + self.description + "".join(self.parts)).encode()).hexdigest()[:10]
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-labelledby="t{key} d{key}"><title id="t{key}">{escape(clean(self.title))}</title>'
            f'<desc id="d{key}">{escape(clean(self.description))}</desc>'
        )
        return Markup(head + "".join(self.parts) + "</svg>")  # noqa: S704  every part above is escaped


def _tip(text: str) -> str:
    return f"<title>{escape(clean(text, 300))}</title>" if text else ""


def level(share: float) -> int:
    """Heat step of a share of the scale."""
    return max(0, min(LEVELS - 1, int(share * LEVELS)))


def cells(blocks: Iterable[tuple[float, float, float, float]]) -> str:
    """Many rectangles of one colour as one path: x, y, width, height each."""
    return "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z" for x, y, w, h in blocks)


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round values between two ends, about `about` of them.

    >>> ticks(0, 120)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 5, 10) if raw <= scale * factor * 1.0000001)
    return [round(n * step, 12) for n in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)


def time_ticks(start: datetime, end: datetime, about: int = 6) -> list[datetime]:
    """Round moments between two times."""
    low, high = start.timestamp(), end.timestamp()
    step = next((s for s in TIME_STEPS_S if (high - low) / s <= about + 1), TIME_STEPS_S[-1])
    return [datetime.fromtimestamp(n * step, UTC) for n in range(math.ceil(low / step), int(high // step) + 1)][:40]
