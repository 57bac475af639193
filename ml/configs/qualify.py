"""Whether a successful job by itself may stand as a baseline: no alert, not cut short, a clean exit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ml.configs.classes import KeyClasses

SUCCESS = "COMPLETED"


@dataclass(frozen=True)
class Outcome:
    """How a job ended, as far as the files say it. Iterations count from 0 or 1; null where unknown.

    `launcher_alerts` are those that only the launcher raises, which also complains when its peers leave before it.
    """

    state: str
    exit_code: int | None = None
    node_exit_codes: Sequence[int] = ()
    alerts: Sequence[str] = ()
    launcher_alerts: Sequence[str] = ()
    last_iteration: int | None = None
    n_planned: int | None = None
    log_every: int = 1


def is_success(outcome: Outcome) -> bool:
    """Whether the scheduler and the exit codes both say that it went well."""
    return outcome.state == SUCCESS and not outcome.exit_code and not any(outcome.node_exit_codes)


def disqualified(outcome: Outcome, classes: KeyClasses) -> str:
    """Why a successful job may not stand as a baseline; '' when it may.

    >>> from ml.configs.classes import default_classes
    >>> disqualified(Outcome("COMPLETED", last_iteration=60, n_planned=120), default_classes())
    'stopped at iteration 60 of 120'
    """
    if not is_success(outcome):
        return "did not succeed"
    done, planned = outcome.last_iteration, outcome.n_planned
    is_complete = None
    if done is not None and planned:
        # An iteration is printed every `log_every` steps, and some count from 0: the last line may lag by as much.
        is_complete = done + outcome.log_every + 1 > planned * classes.limit("short_share")
    # Once all iterations are done, the launcher's own alert is a farewell: a peer closed the connection first.
    alerts = [*outcome.alerts, *(() if is_complete else outcome.launcher_alerts)]
    if alerts:
        return "has an alert in its logs: " + ", ".join(sorted(set(alerts))[:3])
    return f"stopped at iteration {done} of {planned}" if is_complete is False else ""
