"""The command line: one module a command, loaded only when it is called, so that look-ups answer at once."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches

import click

from jobs.core.stages import STAGES

STAGE_NAMES = tuple(stage.name for stage in STAGES)
COMMAND_MODULES = tuple(module.name for module in pkgutil.iter_modules(__path__))
SHARED_NAMES = ("templates", "stacks")
"""Stages whose name is also that of a tool on bare files. (`reliability` is a look-up; its stage is run by `stages`.)"""

SECTIONS = (
    ("The night", ("inspect", "run", "summary", "doctor")),
    ("Look-ups in a lake, without Spark", ("diagnosis", "baseline", "similar", "verdict", "reliability", "sql")),
    ("Files as they are, without a lake", ("flight-recorder", "stacks", "whatif", "trace-diff", "templates")),
    ("Upkeep", ("delete-job", "evaluate", "plan", "stages")),
)
"""The commands as `--help` shows them."""
STAGES_HEADING = "Stages, one at a time (also `templates` and `stacks` with --lake, `stages reliability`)"


class LazyCommands(click.Group):
    """The modules of this package as commands, and beside them every stage by its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands: look-ups and tools first, then the stages in order."""
        modules = sorted(COMMAND_MODULES)
        return [*(name.replace("_", "-") for name in modules), *self._stages()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, each with its line."""
        for heading, names in (*SECTIONS, (STAGES_HEADING, self._stages())):
            with formatter.section(heading):
                formatter.write_dl([(name, self._line(ctx, name)) for name in names])

    def _line(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=90).removeprefix("Stage: ") if command else ""

    def _stages(self) -> list[str]:
        """Stages whose names no command bears."""
        return [name.replace("_", "-") for name in STAGE_NAMES if name not in COMMAND_MODULES]

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
        if name not in COMMAND_MODULES and name not in STAGE_NAMES and not name.startswith("__"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            raise click.UsageError(f"no such command {args[0]!r}{f' (did you mean {near[0]}?)' if near else ''}", ctx)
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
