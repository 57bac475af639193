"""`fleetdiff`, the same as `python -m jobs`."""

from __future__ import annotations

import os
import sys

import click

from jobs.cli import fleetdiff
from jobs.core.errors import FleetdiffError

LOOKUPS = ("diagnosis", "baseline", "similar", "reliability", "verdict")
"""Commands that read a few rows and must answer at once."""


def in_one_line(wrong: click.ClickException) -> str:
    """What is wrong with the call, and where its options are told.

    >>> in_one_line(click.UsageError("Missing argument 'JOB'."))
    "missing argument 'JOB'; see `fleetdiff --help`"
    """
    said = " ".join(wrong.format_message().split()).rstrip(".")
    place = getattr(wrong, "ctx", None)
    path = place.command_path if place is not None else "fleetdiff"
    return f"{said[:1].lower()}{said[1:]}; see `{path} --help`"


def is_of_data(error: Exception) -> bool:
    """Whether the disk or a reader of tables raised it: files of the lake that are gone, cut off, or of another version."""
    made_in = type(error).__module__.split(".")[0]
    return isinstance(error, OSError) or made_in in ("pyarrow", "deltalake", "_internal", "duckdb", "_duckdb")


def main() -> None:
    """Run the command line: a user's mistake is one line on standard error and an exit code, never a stack trace."""
    if sys.argv[1:2] and sys.argv[1] in LOOKUPS:
        from jobs.core.query import without_pandas

        without_pandas()
    try:
        fleetdiff.main(prog_name="fleetdiff", standalone_mode=False)
    except click.exceptions.Exit as finished:
        sys.exit(finished.exit_code)
    except click.ClickException as wrong:
        click.echo(f"fleetdiff: {in_one_line(wrong)}", err=True)
        sys.exit(wrong.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except FleetdiffError as error:
        click.echo(f"fleetdiff: {' '.join(str(error).split())}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has seen enough; closing quietly is what a pipe expects.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if not is_of_data(error) or not set(sys.argv[1:2]) & set(LOOKUPS):
            raise
        click.echo(
            f"fleetdiff: the lake cannot be read: {' '.join(str(error).split())[:300]}; `fleetdiff run` makes it anew", err=True
        )
        sys.exit(FleetdiffError.exit_code)


if __name__ == "__main__":
    main()
