"""What a page is, and how its HTML, JSON and Markdown come about: escaped, self-contained, strict about its content.

The policy in the page's head allows nothing but the one style sheet and the one script that are written into it,
named by their hashes: no request leaves the page, and text that looks like code stays text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from jobs.reports import words

_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_UNSAFE = re.compile(r"[^a-z0-9-]+")


_METER = Markup(
    '<svg class="meter" viewBox="0 0 60 8" role="img" aria-label="{} of 1"><rect class="track" width="60" height="8" rx="2"/>'
    '<rect class="fill" width="{}" height="8" rx="2"/></svg> <span class="num">{}</span>'
)


@dataclass(frozen=True)
class Page:
    """One page and its twins; `name` is its path below the report folder, without ending."""

    name: str
    html: str
    json: str
    markdown: str

    def files(self) -> dict[str, str]:
        """The page's files by path below the report folder."""
        return {f"{self.name}.html": self.html, f"{self.name}.json": self.json, f"{self.name}.md": self.markdown}


def file_name(key: str) -> str:
    """A file name for a key that may hold anything: itself when harmless, else its letters and a hash.

    >>> file_name("job-1"), file_name("../x")[:2]
    ('job-1', 'x-')
    """
    if _SAFE_NAME.fullmatch(key) and ".." not in key:
        return key
    letters = _UNSAFE.sub("-", key.lower()).strip("-")[:40] or "job"
    return f"{letters}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:10]}"


@cache
def _asset(name: str) -> str:
    return files("jobs.reports").joinpath("templates", name).read_text("utf-8").strip()


@cache
def code_key() -> str:
    """Hash of the code, templates and styles that make pages: when it changes, every page is written again."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(path for path in here.rglob("*") if path.suffix in {".py", ".j2", ".css", ".js"}):
        digest.update(file.relative_to(here).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _policy() -> str:
    hashes = {
        name: "'sha256-" + base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode() + "'"
        for name in ("page.css", "page.js")
    }
    allowed = f"style-src {hashes['page.css']}; script-src {hashes['page.js']}; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _finalize(value: Any) -> Any:
    """What a template shows of a value: markup as it is, text cleaned, nothing as a dash."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return words.NOTHING
    return words.clean(value) if isinstance(value, str) else value


def when(value: datetime | str | None) -> Markup:
    """A time element: UTC as text; the script adds the reader's local time beside it."""
    moment = words.moment(value)
    if moment is None:
        return escape(words.NOTHING)
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), words.utc(moment))


def meter(share: float | None) -> Markup:
    """A small bar for a share from 0 to 1, with the number beside it."""
    value = min(max(share or 0.0, 0.0), 1.0)
    return _METER.format(words.number(value, 2), f"{value * 60:.1f}", words.number(value, 2))


@cache
def environment() -> Environment:
    """The template engine: escapes everything, knows the words, fails on a name that is not given."""
    env = Environment(
        loader=PackageLoader("jobs.reports", "templates"), autoescape=True, undefined=StrictUndefined, finalize=_finalize,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.filters.update(
        number=words.number, percent=words.percent, duration=words.duration, size=words.size, ranges=words.ranges,
        listed=words.listed, features=words.features, words=words.sentence_case, md=words.markdown, when=when, meter=meter,
        utc=words.utc, file_name=file_name,
    )  # fmt: skip
    env.globals.update(css=Markup(_asset("page.css")), js=Markup(_asset("page.js")), policy=_policy(), count=words.count)  # noqa: S704  own files
    return env


def plain(value: Any) -> Any:
    """Values that JSON can hold: times as text, infinities and not-a-numbers as null, sets in order."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return [plain(v) for v in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def build(name: str, template: str, values: dict[str, Any], data: dict[str, Any], text: Sequence[str], depth: int = 0) -> Page:
    """Render a page from its template and values; `data` is the JSON twin, `text` the lines of the Markdown twin."""
    html = environment().get_template(template).render(root="../" * depth, page_name=name.rsplit("/", 1)[-1], **values)
    body = json.dumps(plain(data), ensure_ascii=False, indent=1, sort_keys=False)
    return Page(name, html, body + "\n", "\n".join(text).rstrip() + "\n")


def table_lines(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table whose cells are text, whatever they contain."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return [*lines, *("| " + " | ".join(words.markdown(cell) for cell in row) + " |" for row in rows), ""]
