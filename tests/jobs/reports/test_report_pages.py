"""Pages made from a diagnosis by hand: what the JSON says is there, nothing is claimed beyond it, hostile text stays text."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser

import pytest

from jobs.reports.pages.fleet import families_page, library_page, machines_page, quality_page
from jobs.reports.pages.job import job_page
from jobs.reports.pages.night import Night, first_look, night_page
from jobs.reports.pages.reliability import reliability_page
from jobs.reports.pages.summary import page_key, summary
from jobs.reports.pages.verdict import confidence, headline

VERSIONS = {"diagnoses": 4, "ranks": 2}


class Reader(HTMLParser):
    """Elements, attributes and text of a page, as a browser's parser sees them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


@pytest.fixture
def night_rows(hang_parts, hostile_parts):
    """A night of a hang, a healthy job, a cancelled one, a hostile one, and one job of an earlier night."""
    job, document = hang_parts["job"][0], hang_parts["diagnosis"][0]
    healthy = {
        **document,
        "symptom": "none",
        "candidates": [],
        "templates": [],
        "cause_class": "undetermined",
        "cause_confidence": 0.0,
    }
    return [
        summary({**job, "ingest_batch": 2}, document),
        summary({**job, "job_id": "job-2", "state": "COMPLETED", "ingest_batch": 2}, healthy),
        summary({**job, "job_id": "job-3", "state": "CANCELLED", "ingest_batch": 2}, {**healthy, "symptom": "cancelled"}),
        summary({**hostile_parts["job"][0], "ingest_batch": 2}, hostile_parts["diagnosis"][0]),
        summary({**job, "job_id": "job-0", "state": "FAILED", "ingest_batch": 1}, document),
    ]


def every_page(rows, parts):
    """All kinds of pages from the given rows."""
    text = parts["diagnosis"][0]["templates"][0]["template"]
    families = [{"family_id": text, "label": text, "n_jobs": 2, "is_new": True}]
    figure = {"figure": "failures_per_node_day", "scope_kind": "fleet", "scope": text, "basis": "measured", "value": 0.01, "low": 0.001, "high": 0.02, "unit": "per node-day",
              "n_events": 3, "n_censored": 1, "exposure": 300.0, "exposure_unit": "node-days", "is_small": True, "method": text, "source_table": "training_jobs",
              "source_rows": [text], "n_source_rows": 3}  # fmt: skip
    return [
        job_page(parts, VERSIONS, "/data/lake"),
        night_page(Night(rows, families, {rows[3]["job_id"]: text})),
        machines_page(rows, [{"node": text, "n_jobs": 1, "n_failures": 1, "exposure_days": 1.0, "failures_per_day": 1.0, "low": 0.1, "high": 3.0, "availability": 1.0, "q_value": 0.5,
                              "is_lemon": True, "fired": [text]}]),
        families_page(families, rows, {rows[3]["job_id"]: text}),
        reliability_page([figure, {**figure, "scope": "b"}], [{"node": text, "n_failures": 1, "exposure_days": 1.0, "q_value": 0.01, "is_lemon": True, "fired": [text]}]),
        library_page({"n_normal": 1, "n_jobs": 1, "n_templates": 2, "n_alert": 1}, [{"at": text, "n_templates": 1}, {"at": "b", "n_templates": 2}], [{"template": text, "n_jobs": 1, "first_at": None}]),
        quality_page([{"suite": text, "expectation": text, "severity": "critical", "is_success": False, "n_rows": 1, "n_unexpected": 1}],
                     [{"adapter": text, "state": "read", "n_files": 1, "n_read": 1, "n_kept": 1, "n_quarantined": 0, "n_understood": 1, "size_bytes": 1}],
                     [{"reason": text, "n": 1, "n_jobs": 1, "detail": text}], {text: 0.5}),
    ]  # fmt: skip


def test_what_the_diagnosis_says_is_on_the_page(hang_parts):
    page = job_page(hang_parts, VERSIONS, "/data/lake")
    said = " ".join(" ".join(read(page.html).text).split())
    d = hang_parts["diagnosis"][0]
    for c in d["candidates"]:
        assert all(e["statement"] in said for e in c["evidence"])
        assert all(f"{ref['file']}" in said for e in c["evidence"] for ref in e["refs"])
    for t in d["templates"]:
        assert t["template"] in said
        assert t["example"] in said
    assert d["missing"][0]["what"] in said
    assert "hyperparameters.lr" in said
    assert "0.0008" in said
    assert "iteration 61" in said
    assert "score 0.93" in said
    assert "9f2c1a" in said
    assert "fleetdiff diagnosis job-1 --lake /data/lake --json" in said
    assert "diagnoses 4" in said
    assert json.loads(page.json)["diagnosis"] == d
    for words in ("job\\-1", "score 0.93", "no log after", "Watchdog caught"):
        assert words in page.markdown


def test_the_verdict_names_candidates_and_never_more(hang_document):
    said = headline(hang_document)
    assert said.startswith("The job hung at iteration 61 in phase train; strongest candidate: node n3, rank 5")
    assert "Candidate cause class: storage" in said
    assert headline({**hang_document, "verified": True}).count("onfirmed") == 2
    assert "no single place stands out" in headline({**hang_document, "candidates": [], "spatial_signal": "global"})
    healthy = headline({"state": "COMPLETED", "symptom": "none", "candidates": []})
    assert healthy.startswith("Nothing stands out")
    assert "Coverage: logs 100 %, stacks 100 %, operations 100 %, metrics 75 %" in confidence(hang_document)
    assert "undetermined" in headline({})


def test_no_page_claims_a_root_cause(night_rows, hang_parts):
    for page in every_page(night_rows, hang_parts):
        for text in page.files().values():
            assert not re.search(r"root[ _-]?cause", text, re.IGNORECASE)


def test_a_weak_candidate_is_told_and_not_marked(hang_parts):
    html = job_page(hang_parts, VERSIONS).html
    assert "CPU use of n2 is 1.4 times" in html
    assert "Candidates: n3." in html  # the map's text alternative: n2 scores 0.31


@pytest.mark.parametrize("which", range(7))
def test_hostile_text_stays_text_on_every_page(which, night_rows, hostile_parts, hostile):
    page = every_page(night_rows, hostile_parts)[which]
    reader = read(page.html)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("script") == 1
    assert tags.count("base") == tags.count("img") == tags.count("iframe") == tags.count("object") == tags.count("form") == 0
    for tag, attributes in reader.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "style" not in attributes
        for name in ("href", "src", "xlink:href"):
            target = attributes.get(name, "")
            assert not re.match(r"[a-z]+:", target) or target == "data:,", (tag, target)
    assert "\u202e" not in page.html
    assert "\x1b" not in page.html
    json.loads(page.json)
    outside = re.sub(r"`[^`\n]+`", "", re.sub(r"\\.", "", page.markdown))
    assert "<" not in outside
    assert "](" not in re.sub(r"\]\(jobs/[a-z0-9.-]+\.md\)", "", outside)


def test_policy_allows_only_what_the_page_holds(hang_parts):
    html = job_page(hang_parts, VERSIONS).html
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;") or policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)


def test_every_picture_has_a_text_alternative(hang_parts, night_rows):
    for page in every_page(night_rows, hang_parts):
        for tag, attributes in read(page.html).tags:
            if tag == "svg":
                assert attributes.get("role") == "img"
                assert attributes.get("aria-labelledby") or attributes.get("aria-label")


def test_an_undiagnosed_job_and_a_bare_one_get_honest_pages():
    page = job_page({"job": [{"job_id": "j", "state": "FAILED"}]}, {})
    assert "has not been diagnosed yet" in page.html
    assert "No time line" in page.html
    assert "no logs at all" in page.html


def test_the_night_counts_costs_and_orders(night_rows):
    night = Night(night_rows, [{"family_id": "f", "label": "l", "n_jobs": 2, "is_new": True}], {"job-1": "f"}, {"n_quarantined": 7})
    data = json.loads(night_page(night).json)
    assert data["figures"]["n_jobs"] == 4
    assert data["figures"]["n_failed"] == 2
    assert data["figures"]["n_all_jobs"] == 5
    assert data["figures"]["n_new_families"] == 1
    assert data["figures"]["lost_gpu_hours"] == pytest.approx(2 * 176 / 3600 * 8)  # shorter than half an hour: all of it
    first = first_look(night)
    assert next(row["job_id"] for row, _ in first) == "job-1"  # same cost, but its family was not seen before
    assert "not seen before" in first[0][1]
    assert {m["node"]: m["n_jobs"] for m in data["machines"]}["n3"] == 1


def test_one_job_a_family_is_looked_at_first(night_rows):
    ids = [row["job_id"] for row in night_rows]
    night = Night(night_rows, [{"family_id": "f", "label": "l", "n_jobs": 2, "is_new": False}], {ids[0]: "f", ids[3]: "f"})
    assert len(first_look(night)) == 1
    assert "2 jobs failed alike" in first_look(night)[0][1]


def test_page_keys_change_with_what_a_page_is_made_from(hang_parts):
    job = {"job_hash": "a"}
    keys = {
        page_key(*given)
        for given in (
            (job, "d", "", "c"),
            ({"job_hash": "b"}, "d", "", "c"),
            (job, "e", "", "c"),
            (job, "d", "s", "c"),
            (job, "d", "", "x"),
        )
    }
    assert len(keys) == 5
    assert page_key(job, "d", "", "c") == page_key(dict(job), "d", "", "c")


def test_pages_are_the_same_bytes_each_time(hang_parts, night_rows):
    assert [p.files() for p in every_page(night_rows, hang_parts)] == [
        p.files() for p in every_page(copy.deepcopy(night_rows), copy.deepcopy(hang_parts))
    ]


def test_odd_rows_of_one_job_cost_its_pictures_and_nothing_else(hang_parts):
    from jobs.reports.render import drawn

    page = drawn({**hang_parts, "trie": [{"title": "t", "frames": None, "has": 3, "missing": None}]}, {}, "L")
    assert "the pictures of this page could not be drawn (TypeError)" in page.html
    assert "strongest candidate: node n3" in page.html


def test_a_long_list_of_jobs_stays_light(hang_parts):
    job, document = hang_parts["job"][0], hang_parts["diagnosis"][0]
    row = summary({**job, "ingest_batch": 1}, document)
    page = night_page(Night([{**row, "job_id": f"job-{i}", "page": f"job-{i}"} for i in range(5000)]))
    assert len(page.html.encode()) < 3e6
    assert "3,000 others are in the lake" in page.html
    assert len(json.loads(page.json)["jobs"]) == 5000
