"""Values as words for people: units, thousands separators, times in UTC, ranges of ranks, text made harmless.

>>> number(3231.32), percent(0.976786), duration(9131.0), ranges([0, 1, 2, 5])
('3,231.32', '97.7 %', '2 h 32 min', '0–2, 5')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

NOTHING = "–"
"""Shown where a value is not known."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
_HASH = re.compile("[0-9a-f]{16}")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&=:@])")


def clean(text: str, limit: int = 4000) -> str:
    """Text without characters that hide or reorder what is shown; bounded, the cut is marked."""
    shown = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    shown = shown.encode("utf-8", "replace").decode("utf-8")
    return shown if len(shown) <= limit else shown[:limit] + " … (cut)"


def markdown(value: object, limit: int = 400) -> str:
    """Text as one line of Markdown that renders as itself, whatever it contains."""
    return _MARKDOWN.sub(r"\\\1", " ".join(clean(str(value), limit).split()))


def code(text: str) -> str:
    """Text as a Markdown code span that nothing inside can end.

    >>> code("a `b`")
    '`` a `b` ``'
    """
    shown = " ".join(clean(text).split())
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    return f"`{shown}`" if not longest else f"{'`' * (longest + 1)} {shown} {'`' * (longest + 1)}"


def number(value: float | int | None, digits: int | None = None) -> str:
    """A number with thousands separators; about four significant digits unless `digits` after the point are asked."""
    if value is None or not isinstance(value, (int, float)) or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if digits is None:
        if float(value).is_integer() and abs(value) < 1e15:
            return f"{int(value):,}".replace("-", "−")
        magnitude = math.floor(math.log10(abs(value))) if value else 0
        digits = min(max(3 - magnitude, 2 if magnitude >= 1 else 0), 8)
        shown = f"{value:,.{digits}f}"
        return (shown.rstrip("0").rstrip(".") if "." in shown and (magnitude < 1 or shown.endswith(".00")) else shown).replace(
            "-", "−"
        )
    return f"{value:,.{digits}f}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share as per cent: `97.7 %`, `100 %`."""
    if value is None or math.isnan(value):
        return NOTHING
    text = f"{value * 100:,.{digits}f}".replace("-", "−")
    return f"{text.removesuffix('.' + '0' * digits) if digits else text} %"


def duration(seconds: float | None) -> str:
    """A length of time in the two units that matter."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    sign, seconds = ("−" if seconds < 0 else ""), abs(seconds)
    if seconds < 1:
        return f"{sign}{_tenths(seconds * 1000)} ms"
    if seconds < 60:
        return f"{sign}{_tenths(seconds)} s"
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(round(seconds / small), size // small)
            return f"{sign}{whole:,} {name}" + (f" {rest} {small_name}" if rest else "")
    return NOTHING


def _tenths(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    if value is None:
        return NOTHING
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:,.0f} B"


def moment(value: datetime | str | None) -> datetime | None:
    """A time in UTC from a column or from a diagnosis; None when it is missing or not a time."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def utc(value: datetime | str | None) -> str:
    """`2026-11-30 02:59:49 UTC`."""
    when = moment(value)
    return when.strftime("%Y-%m-%d %H:%M:%S UTC") if when else NOTHING


def clock(value: datetime | str | None) -> str:
    """`02:59:49`, for axes."""
    when = moment(value)
    return when.strftime("%H:%M:%S") if when else NOTHING


def count(n: int, noun: str, plural: str | None = None) -> str:
    """`1 node`, `4,096 ranks`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def ranges(values: Iterable[int], limit: int = 12) -> str:
    """Whole numbers as ranges, `0–3, 5`; the rest is counted beyond `limit` ranges."""
    ordered = sorted(set(values))
    runs: list[list[int]] = []
    for value in ordered:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    shown = ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in runs[:limit])
    hidden = sum(b - a + 1 for a, b in runs[limit:])
    return (shown + (f" and {hidden:,} more" if hidden else "")) or NOTHING


def listed(values: Sequence[Any], limit: int = 8) -> str:
    """Names in a row, the rest counted."""
    shown = ", ".join(str(value) for value in values[:limit])
    return (shown + (f" and {len(values) - limit:,} more" if len(values) > limit else "")) or NOTHING


def features(values: Sequence[str]) -> list[str]:
    """What two failures share, in words: `exception:OSError` as `exception OSError`; names that are only hashes come last.

    >>> features(["alert_template:8224019b11583f5b", "alert_template:elastic.child_failed"])
    ['alert template elastic.child_failed', 'alert template 8224019b11583f5b']
    """
    pairs = [str(value).partition(":") for value in values]
    ordered = sorted(pairs, key=lambda pair: bool(_HASH.fullmatch(pair[2])))
    return [f"{kind.replace('_', ' ')} {name.strip()}".strip() if name else kind for kind, _, name in ordered]


def sentence_case(word: str) -> str:
    """`launch_failure` as `Launch failure`."""
    text = word.replace("_", " ").strip()
    return text[:1].upper() + text[1:]
