"""A site's settings (docs/settings.md): which there are, and of what kind."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from jobs.core.errors import FleetdiffError

KINDS: Mapping[str, type | tuple[type, ...]] = {
    "settle_s": (int, float),
    "template_rules": str,
    "normal_min_jobs": int,
    "key_classes": dict,
    "cause_rules": str,
    "machine_training_jobs": int,
    "machine_false_alarms_per_job_day": (int, float),
    "machine_seed": int,
    "webhook_url": str,
    "report_url": str,
}
_WORDS = {(int, float): "a number", int: "a whole number", str: "text", dict: "a mapping"}


def checked(settings: Mapping[object, Any], place: str) -> dict[str, Any]:
    """The settings, when every key is known and of its kind; raises FleetdiffError that names the key. Null is unset."""
    for key, value in settings.items():
        name = str(key)
        if name not in KINDS:
            near = get_close_matches(name, KINDS, n=1)
            mend = f"did you mean {near[0]}?" if near else f"there are {', '.join(KINDS)}"
            raise FleetdiffError(f"{place}: no setting {name}; {mend}")
        if value is not None and (not isinstance(value, KINDS[name]) or isinstance(value, bool)):
            raise FleetdiffError(f"{place}: {name} must be {_WORDS[KINDS[name]]}, see docs/settings.md")
    return {str(key): value for key, value in settings.items() if value is not None}
