"""A site's settings: a mistyped key or value is told before a night begins."""

from __future__ import annotations

import pytest

from jobs.core.errors import FleetdiffError
from jobs.core.settings import checked

# settings, the words that say what is wrong
WRONG = [
    ({"webook_url": "http://127.0.0.1/"}, "site.yaml: no setting webook_url; did you mean webhook_url?"),
    ({"colour": 1}, "site.yaml: no setting colour; there are settle_s, "),
    ({"settle_s": "five"}, "site.yaml: settle_s must be a number, see docs/settings.md"),
    ({"normal_min_jobs": 2.5}, "site.yaml: normal_min_jobs must be a whole number, "),
    ({"machine_seed": True}, "site.yaml: machine_seed must be a whole number, "),
    ({"webhook_url": ["http://127.0.0.1/"]}, "site.yaml: webhook_url must be text, "),
    ({"key_classes": ["seed"]}, "site.yaml: key_classes must be a mapping, "),
]


@pytest.mark.parametrize(("settings", "said"), WRONG, ids=lambda value: str(value)[:30])
def test_what_is_wrong_with_a_setting_is_named_with_its_mend(settings, said):
    with pytest.raises(FleetdiffError) as raised:
        checked(settings, "site.yaml")
    assert str(raised.value).startswith(said)


def test_known_settings_pass_and_null_is_unset():
    given = {"settle_s": 5, "key_classes": {"rules": []}, "webhook_url": None}
    assert checked(given, "site.yaml") == {"settle_s": 5, "key_classes": {"rules": []}}
