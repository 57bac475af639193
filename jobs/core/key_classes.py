"""The key classes in force: the program's own, or those of a site's settings (`key_classes:` in the settings file)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.core.errors import FleetdiffError
from ml.configs.classes import KeyClasses, SettingsError, default_classes, load


def classes_from(settings: Mapping[str, Any]) -> KeyClasses:
    """The site's rules before the program's own; raises FleetdiffError when they have the wrong form."""
    site = settings.get("key_classes")
    if not site:
        return default_classes()
    try:
        return load(site)
    except SettingsError as error:
        raise FleetdiffError(f"settings: key_classes: {error}; see ml/configs/key_classes.yaml for the form") from None
