"""Operations, metrics and rates: stacked bars a rank, a suspect against the band of its peers, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from jobs.reports.svg.canvas import WIDTH, Canvas, ticks
from jobs.reports.svg.timeline import LEFT, RIGHT, Axis, Span
from jobs.reports.words import clock, duration, number, percent, size, utc


@dataclass(frozen=True)
class Bar:
    """One rank (or several): seconds of work and of waiting."""

    label: str
    work_s: float
    wait_s: float
    is_suspect: bool = False


def work_and_wait(bars: Sequence[Bar]) -> Markup:
    """A bar a rank: working, then waiting. The rank that the others wait for works longest and waits least."""
    tall, most = 16, max((b.work_s + b.wait_s for b in bars), default=1.0) or 1.0
    wide = WIDTH - LEFT - 110
    least = min(bars, key=lambda b: b.wait_s, default=None)
    said = f"{len(bars)} rows. Least waiting: {least.label} ({duration(least.wait_s)})." if least else "No rows."
    canvas = Canvas("Working against waiting", said, 28 + tall * len(bars))
    canvas.rect(LEFT, 4, 10, 10, "work").text(LEFT + 15, 13, "working").rect(LEFT + 90, 4, 10, 10, "wait").text(
        LEFT + 105, 13, "waiting for others"
    )
    for number_, bar in enumerate(bars):
        top, total = 22 + number_ * tall, bar.work_s + bar.wait_s
        if bar.is_suspect:
            canvas.mark(4, top + tall / 2)
        canvas.text(LEFT - 8, top + 12, bar.label[:22], css="t hot" if bar.is_suspect else "t", anchor="end")
        canvas.rect(LEFT, top + 2, bar.work_s / most * wide, tall - 5, "work", f"{bar.label}: working {duration(bar.work_s)}")
        canvas.rect(
            LEFT + bar.work_s / most * wide,
            top + 2,
            bar.wait_s / most * wide,
            tall - 5,
            "wait",
            f"{bar.label}: waiting {duration(bar.wait_s)}",
        )
        canvas.text(
            LEFT + total / most * wide + 6, top + 12, f"{percent(bar.wait_s / total if total else 0, 0)} waiting", css="t mute"
        )
    return canvas.markup()


@dataclass(frozen=True)
class Band:
    """Peers' values at each grid point (low, middle, high), and the suspects' lines by name; None where unknown."""

    times: Sequence[datetime]
    low: Sequence[float | None]
    middle: Sequence[float | None]
    high: Sequence[float | None]
    suspects: Mapping[str, Sequence[float | None]]
    n_peers: int


def metric_band(name: str, unit: str, band: Band, axis: Axis, onset: Span | None) -> Markup:
    """One metric: the peers' 10th to 90th percentile as a band, their median, each suspect as a line."""
    height, top, base = 178, 26.0, 142.0
    values = [v for line in (band.low, band.high, *band.suspects.values()) for v in line if v is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)

    def y(value: float) -> float:
        return base - (value - low) / (high - low) * (base - top)

    extent = f"from {_amount(low, unit)} to {_amount(high, unit)} {unit}"
    said = f"{', '.join(band.suspects) or 'No suspect'} against {band.n_peers} peers, {extent}."
    canvas = Canvas(f"{name}: suspect against peers", said, height)
    if onset:
        canvas.rect(
            axis.x(onset.start),
            top - 6,
            max(axis.x(onset.end) - axis.x(onset.start), 3),
            base - top + 6,
            "onset",
            f"onset: {utc(onset.start)}",
        )
    for tick in ticks(low, high, 4):
        canvas.line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "grid").text(
            LEFT - 8, y(tick) + 4, _amount(tick, unit), css="t mute", anchor="end"
        )
    xs = [axis.x(when) for when in band.times]
    known = [(x, y(a), y(b)) for x, a, b in zip(xs, band.low, band.high) if a is not None and b is not None]
    outline = [*((x, a) for x, a, _ in known), *((x, b) for x, _, b in reversed(known))]
    canvas.path(
        ("M" + "L".join(f"{x:.1f} {v:.1f}" for x, v in outline) + "z") if len(known) > 1 else "",
        "band",
        f"peers: 10th to 90th percentile of {band.n_peers}",
    )
    _broken_line(canvas, xs, band.middle, y, "median")
    for number_, line in enumerate(band.suspects.values()):
        _broken_line(canvas, xs, line, y, f"suspect-line s{number_ % 3}")
    for when in (band.times[0], band.times[len(band.times) // 2], band.times[-1]) if band.times else ():
        canvas.text(min(max(axis.x(when), LEFT + 24), WIDTH - RIGHT - 24), base + 16, clock(when), css="t mute", anchor="middle")
    canvas.text(4, 14, f"{name}" + (f" ({unit})" if unit else ""), css="t strong")
    canvas.text(
        LEFT,
        height - 4,
        f"line: {', '.join(band.suspects) or 'no suspect'} · band: {band.n_peers} peers (10–90 %), median dashed",
        css="t mute",
    )
    return canvas.markup()


def _amount(value: float, unit: str) -> str:
    """A value on an axis: bytes as kB, MB, GB."""
    is_bytes = unit.lower().startswith(("byte", "b/s")) or unit == "B"
    return size(value) if is_bytes and value >= 0 else number(value)


def _broken_line(canvas: Canvas, xs: Sequence[float], values: Sequence[float | None], y: object, css: str) -> None:
    """A line that stops where values are missing."""
    piece: list[tuple[float, float]] = []
    pieces = [piece]
    for x, value in zip(xs, values):
        if value is None:
            pieces.append(piece := [])
        else:
            piece.append((x, y(value)))  # type: ignore[operator]
    canvas.path("".join("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in p) for p in pieces if len(p) > 1), css)


@dataclass(frozen=True)
class Interval:
    """A figure with its interval; `high` None is unbounded or unknown."""

    label: str
    value: float
    low: float | None
    high: float | None
    note: str = ""


def intervals(title: str, unit: str, rows: Sequence[Interval]) -> Markup:
    """Figures as dots with their 95 % intervals on one scale."""
    tall, wide = 20, WIDTH - LEFT - 200
    most = max((r.high if r.high is not None else r.value for r in rows), default=1.0) or 1.0
    canvas = Canvas(title, "; ".join(f"{r.label}: {number(r.value)} {unit}" for r in rows[:12]) + ".", 30 + tall * len(rows))
    for tick in ticks(0, most, 5):
        x = LEFT + tick / most * wide
        canvas.line(x, 4, x, 8 + tall * len(rows), "grid").text(
            x, 24 + tall * len(rows), number(tick), css="t mute", anchor="middle"
        )
    for number_, row in enumerate(rows):
        middle = 14 + number_ * tall
        canvas.text(LEFT - 8, middle + 4, row.label[:22], anchor="end")
        if row.low is not None:
            end = min(row.high if row.high is not None else most, most)
            canvas.line(LEFT + row.low / most * wide, middle, LEFT + end / most * wide, middle, "whisker")
        canvas.dot(LEFT + min(row.value / most, 1.0) * wide, middle, 4.5, "series-dot", f"{row.label}: {number(row.value)} {unit}")
        canvas.text(LEFT + wide + 12, middle + 4, f"{number(row.value)} {unit} {row.note}".strip(), css="t mute")
    return canvas.markup()
