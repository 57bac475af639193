"""The command line: one module a command, loaded only when it is called, so that look-ups answer at once."""

from __future__ import annotations

import importlib
import pkgutil

import click

from jobs.core.stages import STAGES

STAGE_NAMES = tuple(stage.name for stage in STAGES)


class LazyCommands(click.Group):
    """The modules of this package as commands, and beside them every stage by its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands: look-ups and tools first, then the stages in order."""
        modules = sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if m.name != "stage")
        return [*modules, *(name.replace("_", "-") for name in STAGE_NAMES if name.replace("_", "-") not in modules)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when there is none."""
        module = cmd_name.replace("-", "_")
        if module in {m.name for m in pkgutil.iter_modules(__path__)} - {"stage"}:
            found: click.Command = importlib.import_module(f"jobs.cli.{module}").command
            return found
        if module in STAGE_NAMES:
            from jobs.cli.stage import stage_command

            return stage_command(module)
        return None


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="fleetdiff")
def fleetdiff() -> None:
    """Find what differs between failed and successful training jobs, and how reliable a GPU fleet is."""
