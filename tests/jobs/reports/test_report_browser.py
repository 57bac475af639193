"""Pages in headless Chromium: no request, no script of others, both colour schemes, a phone's width, contrast, keys, print."""

from __future__ import annotations

import json

import pytest

from jobs.reports.pages.job import job_page
from jobs.reports.pages.night import Night, night_page
from jobs.reports.pages.summary import summary

pytestmark = pytest.mark.browser

CONTRAST = """() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const lum = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]); };
  const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (["SCRIPT", "STYLE", "TITLE", "DESC"].includes(e.tagName.toUpperCase()) || !e.getClientRects().length) continue;
    const svg = e instanceof SVGElement, css = getComputedStyle(e);
    if (svg && /on-hot|tiny| on\\b/.test(e.getAttribute("class") || "")) continue;
    const a = lum(parse(svg ? css.fill : css.color)), b = lum(ground(svg ? e.closest("svg").parentElement : e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push([e.tagName, e.className.baseVal ?? e.className, e.textContent.slice(0, 40), ratio.toFixed(2)]);
  }
  return poor;
}"""


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens a page's file; every request but for the file itself, and every error, is recorded."""
    opened = []

    def go(page, scheme="light", width=1200, **more):
        for name, text in page.files().items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, **more)
        opened.append(context)
        tab = context.new_page()
        tab.asked, tab.wrong = [], []
        url = (tmp_path / f"{page.name}.html").as_uri()

        def route(r):
            if r.request.url.split("#")[0] == url:
                r.continue_()
            else:
                tab.asked.append(r.request.url)
                r.abort()

        tab.route("**/*", route)
        tab.on("pageerror", lambda e: tab.wrong.append(str(e)))
        tab.on("console", lambda m: tab.wrong.append(m.text) if m.type == "error" else None)
        tab.goto(url)
        return tab

    yield go
    for context in opened:
        context.close()


@pytest.fixture
def night(hang_parts, hostile_parts):
    job, document = hang_parts["job"][0], hang_parts["diagnosis"][0]
    rows = [summary({**job, "job_id": f"job-{i}", "name": f"task-{i % 3}", "ingest_batch": 1}, document) for i in range(30)]
    return night_page(Night([*rows, summary({**hostile_parts["job"][0], "ingest_batch": 1}, hostile_parts["diagnosis"][0])]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_job_page_asks_for_nothing_and_is_legible(open_page, hang_parts, scheme):
    tab = open_page(job_page(hang_parts, {}), scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert (tab.asked, tab.wrong) == ([], [])
    assert tab.evaluate(CONTRAST) == []
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(v) for v in paper[4:-1].split(",")) > 600) == (scheme == "light")


def test_what_the_json_says_is_seen(open_page, hang_parts):
    page = job_page(hang_parts, {})
    seen = open_page(page).inner_text("main")
    twin = json.loads(page.json)
    assert twin["headline"] in seen
    for candidate in twin["diagnosis"]["candidates"]:
        assert all(e["statement"] in seen for e in candidate["evidence"])
    for heading in ("Candidates", "When", "Where", "What the logs say", "Stacks", "Operations", "Metrics", "The baseline and how it differs", "Similar incidents",
                    "What was missing", "How to see this again"):  # fmt: skip
        assert heading in seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_runs_nothing_and_asks_for_nothing(open_page, hostile_parts, night, scheme):
    for page in (job_page(hostile_parts, {}), night):
        tab = open_page(page, scheme)
        tab.wait_for_timeout(100)
        assert (tab.asked, tab.wrong) == ([], [])
        assert tab.evaluate("window.pwned") is None
        assert (
            tab.evaluate("document.querySelectorAll('img, iframe, base, object, embed, main h1:not(:first-of-type)').length") == 0
        )
        assert "<script>window.pwned=1</script>" in tab.inner_text("main")
        assert tab.evaluate(CONTRAST) == []


def test_pages_fit_a_phone(open_page, hang_parts, hostile_parts, night):
    for page in (job_page(hang_parts, {}), job_page(hostile_parts, {}), night):
        tab = open_page(page, width=400)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400


def test_search_narrows_and_pages_work_without_scripts(open_page, night):
    tab = open_page(night)
    tab.fill("#search", "task-1")
    assert tab.locator("#jobs tbody tr:visible").count() == 10
    assert tab.inner_text("#found") == "10 of 31 jobs"
    tab.fill("#search", "")
    tab.select_option("#state", "FAILED")
    assert tab.locator("#jobs tbody tr:visible").count() == 31
    plain = open_page(night, java_script_enabled=False)
    assert plain.locator("#jobs tbody tr:visible").count() == 31
    assert not plain.is_visible("#sift")


def test_keys_reach_the_content_and_local_time_stands_beside_utc(open_page, hang_parts):
    tab = open_page(job_page(hang_parts, {}), timezone_id="Asia/Tokyo", locale="en-GB")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.getAttribute('role') || '')"))
    assert {"A ", "DIV region", "SUMMARY "} <= reached
    started = tab.inner_text("#when ~ dl dd")
    assert started.startswith("2026-11-30 02:56:55 UTC")
    assert "11:56" in started


def test_print_shows_what_is_folded_away(open_page, hang_parts):
    tab = open_page(job_page(hang_parts, {}))
    tab.emulate_media(media="print")
    assert not tab.is_visible("nav")
    assert tab.evaluate("[...document.querySelectorAll('details')].every(d => d.getBoundingClientRect().height > 60)")
