"""The command line: one module a command, loaded only when it is called, so that look-ups answer at once."""

from __future__ import annotations

import importlib
import pkgutil

import click

from jobs.core.stages import STAGES

STAGE_NAMES = tuple(stage.name for stage in STAGES)
COMMAND_MODULES = tuple(module.name for module in pkgutil.iter_modules(__path__))
SHARED_NAMES = ("templates", "stacks")
"""Stages whose name is also that of a tool on bare files. (`reliability` is a look-up; its stage is run by `stages`.)"""


class LazyCommands(click.Group):
    """The modules of this package as commands, and beside them every stage by its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands: look-ups and tools first, then the stages in order."""
        modules = sorted(COMMAND_MODULES)
        stages = [name for name in STAGE_NAMES if name not in modules]
        return [name.replace("_", "-") for name in (*modules, *stages)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when there is none."""
        module = cmd_name.replace("-", "_")
        if module in COMMAND_MODULES:
            found: click.Command = importlib.import_module(f"jobs.cli.{module}").command
            return found
        return self._stage(module)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Where a tool on bare files and a stage share a name, `--lake` asks for the stage."""
        name = args[0].replace("-", "_")
        if name in SHARED_NAMES and any(arg.split("=")[0] == "--lake" for arg in args):
            return args[0], self._stage(name), args[1:]
        return super().resolve_command(ctx, args)

    def _stage(self, name: str) -> click.Command | None:
        if name not in STAGE_NAMES:
            return None
        from jobs.cli.stages import stage_command

        return stage_command(name)


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="fleetdiff")
def fleetdiff() -> None:
    """Find what differs between failed and successful training jobs, and how reliable a GPU fleet is."""
