"""Errors that a person can act on: what, which file, why, and the mend, in one line."""

from __future__ import annotations


class FleetdiffError(Exception):
    """A user's or the data's mistake. The command line prints the message and exits with `exit_code`."""

    exit_code = 3


class NotFoundError(FleetdiffError):
    """The thing asked for does not exist."""

    exit_code = 1


class CheckError(FleetdiffError):
    """A check failed: a critical expectation, a figure below its bar."""

    exit_code = 1


class UsageError(FleetdiffError):
    """Wrong usage that the option parser cannot see."""

    exit_code = 2


class ContractError(FleetdiffError):
    """Rows do not fit the contract of their table; the message names every discrepancy."""
