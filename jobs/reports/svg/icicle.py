"""Stacks: merged paths as an icicle; width is the number of ranks, and each frame says who is there and who is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from jobs.reports.svg.canvas import WIDTH, Canvas
from jobs.reports.words import count, ranges

ROW = 20
MAX_DEPTH = 40
MIN_WIDTH = 3.0
LEAST_SHARE = 0.07
MAX_WIDENED = 10


@dataclass
class Frame:
    """One frame with the ranks whose stacks pass through it, and what they called next."""

    name: str
    has: frozenset[int]
    missing: frozenset[int]
    children: list[Frame] = field(default_factory=list)


def grow(paths: Sequence[tuple[Sequence[str], frozenset[int], frozenset[int]]]) -> list[Frame]:
    """Roots of the tree in which every path (frames outermost first, ranks there, ranks missing) is a way down."""
    roots: list[Frame] = []
    for frames, has, missing in paths:
        level, below = roots, has
        for name in frames[:MAX_DEPTH]:
            found = next((f for f in level if f.name == name), None)
            if found is None:
                found = Frame(name, frozenset(), missing)
                level.append(found)
            found.has |= below
            found.missing = (found.missing | missing) - found.has
            level = found.children
    _order(roots)
    return roots


def _order(frames: list[Frame]) -> None:
    frames.sort(key=lambda f: (-len(f.has), f.name))
    for frame in frames:
        _order(frame.children)


def squeeze(frames: list[Frame]) -> list[Frame]:
    """The same tree without the long trunk that everybody shares: only its last three frames stay."""
    trunk = []
    while len(frames) == 1 and frames[0].children and len(frames[0].children) == 1:
        trunk.append(frames[0])
        frames = frames[0].children
    return [trunk[-3]] if len(trunk) >= 3 else ([trunk[0]] if trunk else frames)


def icicle(title: str, roots: Sequence[Frame], suspects: frozenset[int]) -> Markup:
    """The picture. A frame that only suspects are in, or that a minority is in, is coloured, and never too thin to be seen."""
    deep = _depth(roots)
    everyone = frozenset().union(*(f.has for f in roots)) if roots else frozenset()
    odd = _odd_frames(roots)
    said = f"{count(len(everyone), 'rank')}; frames {deep} deep. " + " ".join(
        f"{frame.name}: ranks {ranges(frame.has, 6)} there, {ranges(frame.missing, 6)} missing." for frame in odd[:4]
    )
    canvas = Canvas(title, said, ROW * deep + 4)
    _draw_all(canvas, roots, (0.0, 2.0, float(WIDTH)), len(everyone), suspects)
    return canvas.markup()


def _draw_all(
    canvas: Canvas, frames: Sequence[Frame], box: tuple[float, float, float], n_parent: int, suspects: frozenset[int]
) -> None:
    """Frames side by side in (x, y, width): as wide as their ranks, but a few ranks get at least a fourteenth of the width."""
    x, y, width = box
    weights = [max(len(f.has), n_parent * LEAST_SHARE if i < MAX_WIDENED else 0.0) for i, f in enumerate(frames)]
    scale = width / max(sum(weights), float(n_parent), 1.0)
    for frame, weight in zip(frames, weights):
        _draw(canvas, frame, (x, y, weight * scale), suspects)
        x += weight * scale


def _depth(frames: Sequence[Frame]) -> int:
    return 1 + max((_depth(f.children) for f in frames), default=0) if frames else 0


def _odd_frames(frames: Sequence[Frame]) -> list[Frame]:
    found = [f for f in frames if f.missing and len(f.has) <= len(f.missing)]
    for frame in frames:
        found += _odd_frames(frame.children)
    return sorted(found, key=lambda f: (len(f.has), f.name))


def _draw(canvas: Canvas, frame: Frame, box: tuple[float, float, float], suspects: frozenset[int]) -> None:
    x, y, width = box
    if width < MIN_WIDTH:
        return
    is_hot = bool(suspects) and frame.has <= suspects
    is_minor = bool(frame.missing) and len(frame.has) * 4 <= len(frame.missing)
    css = "frame hot-fill" if is_hot else "frame minor" if is_minor else "frame"
    tip = f"{frame.name} · has {ranges(frame.has)} · missing {ranges(frame.missing)}"
    canvas.rect(x, y, max(width - 1, 1), ROW - 2, css, tip, 2)
    label = f"{frame.name} @{ranges(frame.has, 4)}" if frame.missing else frame.name
    room = int((width - 8) / 6.9)
    if room >= 4:
        canvas.text(x + 4, y + 13, label if len(label) <= room else label[: room - 1] + "…", css="t on-hot" if is_hot else "t")
    _draw_all(canvas, frame.children, (x, y + ROW, width), len(frame.has), suspects)
