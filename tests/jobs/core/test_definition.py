"""A stage is computed anew when what it is told changes, and only then."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.core.runner import Given, definition_of, seen_by
from jobs.core.settings import KINDS
from jobs.core.stages import STAGES, stage

NOTHING = Given()
VERDICTS = {"diagnoses", "similarity", "reliability", "reports"}
AFTER_BASELINES = {"baselines", "log_diffs", "operations", *VERDICTS}


def recomputed(given: Given) -> set[str]:
    return {each.name for each in STAGES if definition_of(each, given) != definition_of(each, NOTHING)}


@pytest.mark.parametrize(
    ("given", "stages"),
    [
        # what is told, and the stages that are computed anew: those that look at it, and those that read their tables
        (Given(settings={"webhook_url": "http://127.0.0.1:1"}), {"reports"}),
        (Given(settings={"settle_s": 60}), {"ingest"}),
        (Given(settings={"key_classes": {"must": []}}), AFTER_BASELINES),
        (Given(settings={"machine_seed": 2}), {"machine_models", "machine_scores", *VERDICTS}),
        (Given(as_of=datetime(2026, 1, 2, tzinfo=UTC)), {"machine_scores", *VERDICTS}),
        (Given(report="/elsewhere"), {"reports"}),
        (Given(archive="/elsewhere"), set()),
    ],
)
def test_a_setting_recomputes_the_stages_that_depend_on_it(given, stages):
    assert recomputed(given) == stages


def test_an_edited_rule_file_recomputes(tmp_path):
    rules = tmp_path / "rules.yaml"
    told = Given(settings={"cause_rules": str(rules)})
    rules.write_text("a: 1")
    before = definition_of(stage("diagnoses"), told)
    assert definition_of(stage("diagnoses"), told) == before
    rules.write_text("a: 2")
    assert definition_of(stage("diagnoses"), told) != before


def test_every_setting_is_looked_at_by_a_stage_and_a_stage_sees_no_other():
    assert {name for each in STAGES for name in each.settings} == set(KINDS)
    everything = Given(settings=dict.fromkeys(KINDS, 1))
    assert set(seen_by(stage("library"), everything).settings) == {"normal_min_jobs"}
