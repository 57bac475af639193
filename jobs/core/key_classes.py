"""The key classes in force: the program's own, or those of a site's file."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.core.errors import FleetdiffError
from ml.configs.classes import KeyClasses, SettingsError, default_classes, load

SETTINGS_VARIABLE = "FLEETDIFF_KEY_CLASSES"


def classes_from(path: str | None) -> KeyClasses:
    """The key classes of a site's file (or of the file that the environment names), else the program's own."""
    path = path or os.environ.get(SETTINGS_VARIABLE)
    if not path:
        return default_classes()
    try:
        return load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FleetdiffError(f"{path}: cannot be read ({error}); give a YAML file as --key-classes") from None
    except SettingsError as error:
        raise FleetdiffError(f"{path}: {error}; see ml/configs/key_classes.yaml for the form") from None
