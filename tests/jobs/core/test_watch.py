"""The bar of a long stage: on a terminal, without colours where none are wanted, and never in a log."""

from __future__ import annotations

import io
import time
from collections import namedtuple

import pytest
from rich.console import Console

from jobs.core.watch import bar

Stage = namedtuple("Stage", "numTasks numCompletedTasks")


class Tracker:
    """Two Spark stages that run, one that has just gone."""

    def getActiveStageIds(self):
        return [1, 2, 3]

    def getStageInfo(self, number):
        return {1: Stage(6, 2), 2: Stage(2, 1)}.get(number)


def shown(console):
    with bar("[5/14] log_diffs", Tracker(), console):
        time.sleep(0.5)
    return console.file.getvalue()


def test_a_terminal_shows_the_stage_and_its_tasks():
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=100))
    assert "[5/14] log_diffs" in text
    assert "3/8 tasks" in text


def test_no_color_is_honoured(monkeypatch):
    coloured = shown(Console(file=io.StringIO(), force_terminal=True, color_system="256", width=100))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(Console(file=io.StringIO(), force_terminal=True, color_system="256", width=100))
    assert "\x1b[38;5;" in coloured
    assert "\x1b[38;5;" not in plain
    assert "3/8 tasks" in plain


def test_a_log_shows_nothing():
    assert shown(Console(file=io.StringIO())) == ""


def test_the_bar_goes_when_the_stage_breaks():
    with (
        pytest.raises(ValueError, match="broken"),
        bar("[1/1] ingest", Tracker(), Console(file=io.StringIO(), force_terminal=True)),
    ):
        raise ValueError("broken")
