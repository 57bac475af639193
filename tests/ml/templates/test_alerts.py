"""Alert rules: every example raises its alert, no calm line raises any."""

import pytest

from ml.templates.alerts import alert_of, alerts_of, default_rules, parse_rules
from schemas.templates import ALERTS

EXAMPLES = [(rule.alert, text) for rule in default_rules() for text in rule.examples]
CALM = [text for rule in default_rules() for text in rule.calm]


@pytest.mark.parametrize(("alert", "text"), EXAMPLES)
def test_an_example_raises_its_alert(alert, text):
    assert alert_of(text) == alert


@pytest.mark.parametrize("text", CALM)
def test_a_calm_line_raises_none(text):
    assert alert_of(text) is None


def test_every_alert_of_the_rules_is_in_the_contract_and_the_other_way_round():
    assert {rule.alert for rule in default_rules()} == set(ALERTS)


@pytest.mark.parametrize(
    "line",
    [
        "iteration 5/ 140 | consumed samples: 120 | lm loss: 5.860323E+00 | grad norm: 0.414 |",
        '{"loss": 2.31, "learning_rate": 2e-05, "epoch": 0.1}',
        "step: 10, loss: 3.2, inf_checks: 0",
    ],
)
def test_an_iteration_line_with_a_finite_loss_is_no_alert(line):
    assert alert_of(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "iteration 5/ 140 | consumed samples: 120 | lm loss: nan | grad norm: 0.414 |",
        "iteration 5/ 140 | lm loss: 2.0E+00 | grad norm: inf |",
        "{'loss': nan, 'epoch': 0.1}",
        "step 10 loss -inf",
        "train_loss=NaN",
    ],
)
def test_an_iteration_line_with_a_loss_that_is_not_finite_is_one(line):
    assert alert_of(line) == "non_finite"


def test_a_site_puts_its_own_rules_before():
    own = parse_rules("- {alert: hardware, any: ['flux capacitor \\w+ drained']}")
    assert alerts_of(["flux capacitor 3 drained", "MemoryError"], (*own, *default_rules())) == ["hardware", "oom"]


def test_a_rule_that_cannot_be_used_is_named():
    with pytest.raises(ValueError, match="alert rule 1"):
        parse_rules("- {alert: oom, any: ['(']}")


def test_a_long_hostile_line_is_answered():
    assert alert_of("a" * 100_000 + " Error:" * 10_000) is None
