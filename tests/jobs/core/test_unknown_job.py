"""A job id that the lake does not have: the nearest ones are offered."""

from __future__ import annotations

import pytest

from jobs.core.unknown_job import nearest

KNOWN = ["job-7107", "job-7114", "lab/7170@2026-11-30T03:37:08", "sft-48"]

# what was asked for, what is offered
ASKED = [
    ("7107", ["job-7107"]),  # the bare number
    ("JOB-7114", ["job-7114"]),  # letters of another case
    ("7170", ["lab/7170@2026-11-30T03:37:08"]),  # a job made from accounting
    ("job-7117", ["job-7114", "job-7107"]),  # a typing error: either may be meant
    ("zebra", []),
]


@pytest.mark.parametrize(("asked", "offered"), ASKED)
def test_the_ids_nearest_to_a_mistyped_one_are_offered(asked, offered):
    assert nearest(asked, KNOWN) == offered
