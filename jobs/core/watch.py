"""What a person sees while a stage works: a bar on a terminal, nothing in a scheduler's log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.status import StatusTracker
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

EVERY_S = 0.2
"""How often Spark is asked how far it is."""


@contextmanager
def bar(label: str, tracker: StatusTracker, console: Console | None = None) -> Iterator[None]:
    """Show a bar on standard error until the block ends, then take it away; without a terminal, show nothing.

    Spark does not know beforehand how many tasks a stage will take, so that the bar shows the tasks of what runs now.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(24),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
    )
    ended = threading.Event()
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(label, total=None, tasks="")

        def follow() -> None:
            while not ended.wait(EVERY_S):
                n_tasks, n_done = running_tasks(tracker)
                shown.update(task, total=n_tasks or None, completed=n_done, tasks=f"{n_done}/{n_tasks} tasks" if n_tasks else "")

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


def running_tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Tasks of all Spark stages that run now, and how many of them are done."""
    infos = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numTasks for info in known), sum(info.numCompletedTasks for info in known)
