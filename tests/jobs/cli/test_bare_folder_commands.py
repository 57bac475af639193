"""What the commands that work on a bare folder have in common: a user's mistake is one line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jobs.cli import flight_recorder, stacks
from jobs.core.errors import FleetdiffError, NotFoundError, UsageError


@pytest.mark.parametrize("command", [flight_recorder.command, stacks.command], ids=["flight-recorder", "stacks"])
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda folder: folder / "absent", NotFoundError),
        (lambda folder: folder, NotFoundError),
        (lambda folder: (folder / "f").write_text("x") and folder / "f", UsageError),
    ],
    ids=["no such folder", "nothing in it", "a file"],
)
def test_a_users_mistake_is_one_line(tmp_path: Path, command: click.Command, make: object, error: type[FleetdiffError]) -> None:
    result = CliRunner().invoke(command, [str(make(tmp_path))], standalone_mode=False)
    assert isinstance(result.exception, error)
    assert "\n" not in str(result.exception)
