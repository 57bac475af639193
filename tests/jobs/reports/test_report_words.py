"""Values as words: units, separators, times, ranges, and text that can do no harm."""

from __future__ import annotations

import math

import pytest

from jobs.reports import words
from jobs.reports.page import file_name


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (5, "5"), (1234567, "1,234,567"), (3231.32, "3,231.32"), (0.976786, "0.9768"), (0.0065, "0.0065"), (-12, "−12"), (0.5, "0.5"),
     (None, "–"), (math.nan, "–"), (math.inf, "∞"), (1e-7, "0.0000001")],
)  # fmt: skip
def test_numbers(value, text):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0123, "12.3 ms"),
        (1, "1 s"),
        (59.94, "59.9 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (9131, "2 h 32 min"),
        (3231.32 * 86400, "3,231 d 8 h"),
        (-90, "−1 min 30 s"),
    ],
)
def test_durations(seconds, text):
    assert words.duration(seconds) == text


def test_shares_sizes_times_and_ranges():
    assert words.percent(0.976786) == "97.7 %"
    assert words.percent(1.0) == "100 %"
    assert words.size(123456789) == "123.5 MB"
    assert words.utc("2026-11-30T02:59:49.511+00:00") == "2026-11-30 02:59:49 UTC"
    assert words.utc("2026-11-30T10:59:49+08:00") == "2026-11-30 02:59:49 UTC"
    assert words.utc("not a time") == "–"
    assert words.ranges([5, 0, 1, 2, 2]) == "0–2, 5"
    assert words.ranges(range(0, 100, 2), limit=2) == "0, 2 and 48 more"
    assert words.count(4096, "rank") == "4,096 ranks"


def test_text_that_hides_or_reorders_is_made_visible():
    assert words.clean("a\u202eb\x1b[31mc\x07\u200b") == "a\ufffdb\ufffd[31mc\ufffd\ufffd"
    assert words.clean("x" * 10, 4) == "xxxx … (cut)"
    assert words.clean("\ud800lone") == "?lone"


def test_markdown_text_renders_as_itself(hostile):
    assert words.markdown("[a](javascript:x) | **b** <i>\n# c") == r"\[a\]\(javascript\:x\) \| \*\*b\*\* \<i\> \# c"
    for text in hostile:
        escaped = words.markdown(text)
        assert "\n" not in escaped
        assert "](" not in escaped
        assert "<script" not in escaped.replace("\\<", "")


@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "a/b", "", "con.", "Job-A", "job-a\u0301", ".hidden", "x" * 300, "a..b", "<script>"]
)
def test_file_names_stay_inside_the_folder_and_apart(key):
    name = file_name(key)
    assert "/" not in name
    assert ".." not in name
    assert not name.startswith(".")
    assert len(name) < 90
    assert name != file_name(key + "x")


def test_file_names_of_harmless_ids_are_the_ids():
    assert file_name("job-7107") == "job-7107"
    assert file_name("Job-7107") != file_name("job-7107")
