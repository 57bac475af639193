"""When: phases, iterations, the onset window and the events of each node on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from jobs.reports.svg.canvas import WIDTH, Canvas, time_ticks
from jobs.reports.words import clock, count, number, utc

LEFT = 150
RIGHT = 16
LANE = 17
MAX_LANES = 24


@dataclass(frozen=True)
class Span:
    """A named stretch of time: a phase, the onset window."""

    name: str
    start: datetime
    end: datetime


@dataclass(frozen=True)
class Step:
    """One iteration: its number, when it was printed, how long it took (seconds), if known."""

    iteration: int
    at: datetime
    step_time_s: float | None = None


@dataclass(frozen=True)
class Lane:
    """The events of one node: time, kind (`alert`, `warning`, `info`, `silence`) and text of each."""

    name: str
    events: Sequence[tuple[datetime, str, str]]
    is_suspect: bool = False


@dataclass(frozen=True)
class Axis:
    """Maps times to the picture's width."""

    start: datetime
    end: datetime

    def x(self, when: datetime) -> float:
        """Where a time lies, clamped to the axis."""
        span = max((self.end - self.start).total_seconds(), 1e-6)
        share = (when - self.start).total_seconds() / span
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def timeline(axis: Axis, phases: Sequence[Span], steps: Sequence[Step], onset: Span | None, lanes: Sequence[Lane]) -> Markup:
    """The whole picture; lanes beyond the first few are left out and counted (suspects come first)."""
    shown = sorted(lanes, key=lambda lane: (not lane.is_suspect, -len(lane.events), lane.name))[:MAX_LANES]
    rest = len(lanes) - len(shown)
    height = 26 + 24 + (58 if steps else 0) + LANE * len(shown) + (18 if rest else 0) + 12
    canvas = Canvas("Time line of the job", _describe(axis, phases, steps, onset, lanes), height)
    if onset:
        x1, x2 = axis.x(onset.start), axis.x(onset.end)
        canvas.rect(x1, 22, max(x2 - x1, 3), height - 30, "onset", f"{onset.name}: {utc(onset.start)} to {utc(onset.end)}")
    _time_axis(canvas, axis, height)
    _phase_band(canvas, axis, phases)
    top = 54.0
    if steps:
        _step_band(canvas, axis, steps, top)
        top += 58
    for number_, lane in enumerate(shown):
        _lane(canvas, axis, lane, top + number_ * LANE)
    if rest:
        canvas.text(LEFT - 10, top + len(shown) * LANE + 12, f"and {count(rest, 'more node')}", css="t mute", anchor="end")
    if onset:
        x = min(max(axis.x(onset.start), LEFT + 24), WIDTH - 40)
        canvas.text(x, height - 1, onset.name, css="t hot", anchor="middle")
    return canvas.markup()


def _describe(axis: Axis, phases: Sequence[Span], steps: Sequence[Step], onset: Span | None, lanes: Sequence[Lane]) -> str:
    said = [f"From {utc(axis.start)} to {utc(axis.end)}."]
    if phases:
        said.append("Phases: " + ", ".join(f"{p.name} from {clock(p.start)}" for p in phases) + ".")
    if steps:
        said.append(f"Iterations {steps[0].iteration:,} to {steps[-1].iteration:,}.")
    if onset:
        said.append(f"Onset between {utc(onset.start)} and {utc(onset.end)}.")
    busy = [f"{lane.name} ({len(lane.events)})" for lane in lanes if lane.events][:8]
    return " ".join([*said, f"Events by node: {', '.join(busy) or 'none'}."])


def _time_axis(canvas: Canvas, axis: Axis, height: float) -> None:
    for when in time_ticks(axis.start, axis.end):
        x = axis.x(when)
        anchor = "end" if x > WIDTH - 40 else "middle"
        canvas.line(x, 18, x, height - 12, "grid").text(
            min(x, WIDTH - 2.0) if anchor == "end" else x, 12, clock(when), css="t mute", anchor=anchor
        )
    canvas.text(LEFT - 34, 12, "UTC", css="t mute", anchor="end")


def _phase_band(canvas: Canvas, axis: Axis, phases: Sequence[Span]) -> None:
    if phases:
        canvas.text(LEFT - 10, 40, "phase", anchor="end")
    for number_, phase in enumerate(phases):
        x1, x2 = axis.x(phase.start), axis.x(phase.end)
        canvas.rect(
            x1, 26, max(x2 - x1 - 1, 2), 20, f"phase p{number_ % 4}", f"{phase.name}: {utc(phase.start)} to {utc(phase.end)}", 3
        )
    starts = sorted(axis.x(phase.start) for phase in phases)
    for phase in phases:
        x1 = axis.x(phase.start)
        x2 = min([axis.x(phase.end), *(x for x in starts if x > x1)])
        if x2 - x1 > 8 * len(phase.name):
            canvas.text(x1 + 6, 40, phase.name, css="t on")


def _step_band(canvas: Canvas, axis: Axis, steps: Sequence[Step], top: float) -> None:
    """Step times as a line; without them, a tick an iteration. Numbers stand where there is room."""
    base, tall = top + 36, 30.0
    canvas.text(LEFT - 10, base - 10, "iteration", anchor="end").line(LEFT, base, WIDTH - RIGHT, base)
    timed = [s for s in steps if s.step_time_s is not None and s.step_time_s >= 0]
    if len(timed) > 1:
        ordered = sorted(s.step_time_s or 0.0 for s in timed)
        ceiling = max(ordered[min(len(ordered) - 1, int(len(ordered) * 0.98))] * 1.15, 1e-9)
        canvas.polyline(((axis.x(s.at), base - tall * min((s.step_time_s or 0.0) / ceiling, 1.0)) for s in timed), "series")
        canvas.text(LEFT - 10, base + 4, f"step ≤ {number(ceiling)} s", css="t mute", anchor="end")
    else:
        canvas.path("".join(f"M{axis.x(s.at):.1f} {base:.1f}v-8" for s in steps), "series")
    last_x = -100.0
    for s in [*steps[:: max(1, len(steps) // 10)], steps[-1]]:
        x = axis.x(s.at)
        if x - last_x > 46:
            canvas.text(x, base + 14, f"{s.iteration:,}", css="t mute", anchor="middle")
            last_x = x
    canvas.dot(
        axis.x(steps[-1].at), base, 3, "series-dot", f"last iteration printed: {steps[-1].iteration:,} at {utc(steps[-1].at)}"
    )


def _lane(canvas: Canvas, axis: Axis, lane: Lane, top: float) -> None:
    middle = top + LANE / 2
    if lane.is_suspect:
        canvas.rect(0, top, WIDTH, LANE, "lane-hot").mark(4, middle)
    canvas.text(LEFT - 10, middle + 4, lane.name[:20], css="t hot" if lane.is_suspect else "t", anchor="end")
    canvas.line(LEFT, middle, WIDTH - RIGHT, middle, "grid")
    drawn: set[tuple[int, str]] = set()
    for when, kind, text in lane.events:
        x = axis.x(when)
        if (slot := (int(x / 3), kind)) in drawn:
            continue
        drawn.add(slot)
        tip = f"{lane.name}, {utc(when)}: {text}"
        if kind == "alert":
            canvas.path(f"M{x:.1f} {middle - 6:.1f}l5 6l-5 6l-5 -6z", "event alert", tip)
        else:
            canvas.dot(x, middle, 3.5 if kind == "warning" else 2.5, f"event {kind}", tip)
