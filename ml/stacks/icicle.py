"""An icicle of merged stacks as SVG: a row a depth, a box's width the threads in it, its colour the ranks that lack it.

The picture is one self-contained text: no script, no style from outside, every text escaped, a title on every box.
"""

from __future__ import annotations

from html import escape

from ml.collectives.ranks import compressed
from ml.stacks.trie import Node, Trie

WIDTH = 1200.0
ROW = 18
TOP = 34
_TEXT_WIDTH = 6.4
_MIN_WIDTH = 0.4


def icicle(trie: Trie, title: str = "Merged stacks") -> str:
    """The SVG document. Boxes too narrow to see are left out; of text only what fits is drawn, titles hold all of it."""
    places = _places(trie)
    depth = max((len(node.path) for node in trie.nodes), default=0)
    height = TOP + ROW * max(1, depth) + 8
    boxes = [_box(node, *places[node.path], len(trie.ranks)) for node in trie.nodes if places[node.path][1] >= _MIN_WIDTH]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" width="{WIDTH:.0f}" '
        f'height="{height}" role="img" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11">'
    )
    caption = f"{title}: {len(trie.ranks)} ranks" + (f", {trie.n_cut} nodes not shown" if trie.n_cut else "")
    return "\n".join(
        [
            head,
            f"<title>{_text(caption)}</title>",
            f'<text x="4" y="14" font-size="13">{_text(caption)}</text>',
            '<text x="4" y="28" fill="#666">blue: every rank · red: few ranks</text>',
            *boxes,
            "</svg>",
        ]
    )


def _places(trie: Trie) -> dict[tuple[str, ...], tuple[float, float]]:
    """Left edge and width of each node: children share their parent's width by their threads, from the left."""
    roots = sum(node.n for node in trie.nodes if len(node.path) == 1)
    scale = WIDTH / max(1, roots)
    places: dict[tuple[str, ...], tuple[float, float]] = {}
    used: dict[tuple[str, ...], float] = {}
    for node in trie.nodes:
        parent = node.path[:-1]
        left = used.get(parent, places[parent][0] if parent in places else 0.0)
        places[node.path] = (left, node.n * scale)
        used[parent] = left + node.n * scale
    return places


def _box(node: Node, left: float, width: float, n_ranks: int) -> str:
    top = TOP + ROW * (len(node.path) - 1)
    label = node.path[-1]
    n_fit = int((width - 6) / _TEXT_WIDTH)
    text = label if len(label) <= n_fit else f"{label[: n_fit - 1]}…" if n_fit > 3 else ""
    who = f"{len(node.has_ranks)} of {n_ranks} ranks: {compressed(node.has_ranks)}"
    who += f"; not in it: {compressed(node.missing_ranks)}" if node.missing_ranks else ""
    drawn = f'<text x="{left + 3:.2f}" y="{top + 13}">{_text(text)}</text>' if text else ""
    return (
        f"<g><title>{_text(f'{label} — {who[:4000]}')}</title>"
        f'<rect x="{left:.2f}" y="{top}" width="{max(0.3, width - 0.5):.2f}" height="{ROW - 1}" rx="1" '
        f'fill="{_colour(len(node.has_ranks) / max(1, n_ranks))}"/>{drawn}</g>'
    )


def _colour(share: float) -> str:
    """From red for hardly any rank to blue for every rank."""
    hue = 8 + 202 * min(1.0, max(0.0, share))
    return f"hsl({hue:.0f},62%,78%)"


def _text(text: str) -> str:
    """Escaped, without signs that XML does not allow."""
    return escape("".join(c if c.isprintable() else "�" for c in text), quote=True)
