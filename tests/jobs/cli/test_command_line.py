"""The command line's edges: exit codes, one-line errors, nothing but JSON where JSON was asked for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli import COMMAND_MODULES, SHARED_NAMES, fleetdiff
from jobs.core.stages import STAGES

CONTRACT_COMMANDS = (
    "run", "inspect", "diagnosis", "baseline", "similar", "templates", "whatif", "flight-recorder", "stacks",
    "reliability", "evaluate", "doctor",
)  # fmt: skip


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "jobs", *arguments], capture_output=True, text=True, timeout=60, check=False)


# arguments, exit code, a piece of the one line that explains
MISTAKES = [
    (["run", "/no/such/folder", "--lake", "/tmp/none"], 1, "/no/such/folder: no such folder"),
    (["stages", "ingest", "--lake", "/tmp/none"], 2, "--archive"),
    (["run", "{here}", "--lake", "/tmp/none", "--as-of", "yesterday"], 2, "not an ISO-8601 time"),
    (["run", "{here}", "--lake", "/tmp/none", "--settings", "{here}/absent.yaml"], 3, "absent.yaml: cannot be read"),
    (["diagnosis", "job-1", "--lake", "{here}"], 3, "no such table"),
    (["diagnosis", "job-1", "--lake", "{here}/lake[1]"], 3, "cannot hold '['"),
    (["log-diffs", "--lake", "{here}"], 3, "no such table"),  # a mistyped lake: no empty one is made
    (["sql", "--lake", "{here}"], 3, "no such table"),
    (["stages", "log-dif", "--lake", "{here}"], 2, "log_dif: no such stage; there are ingest"),
    (["templates", "{here}/absent.log"], 1, "absent.log: no such file"),
    (["evaluate", "--truth", "{here}/absent", "--lake", "{here}"], 1, "absent: no such folder"),
    (["no-such-command"], 2, "fleetdiff: no such command"),
    (["diagnos", "job-1"], 2, "(did you mean diagnosis?); see `fleetdiff --help`"),
    (["run"], 2, "fleetdiff: missing argument 'ARCHIVE'; see `fleetdiff run --help`"),
    (["diagnosis", "job-1"], 2, "fleetdiff: missing option '--lake'; see `fleetdiff diagnosis --help`"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_users_mistake_is_one_line_and_an_exit_code_never_a_stack_trace(arguments, code, said, tmp_path):
    done = call(*[argument.format(here=tmp_path) for argument in arguments])
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_every_command_of_the_contract_and_every_stage_is_there():
    listed = fleetdiff.list_commands(None)
    assert set(CONTRACT_COMMANDS) <= set(listed)
    assert {stage.name.replace("_", "-") for stage in STAGES} <= set(listed)


@pytest.mark.parametrize("name", sorted(COMMAND_MODULES))
def test_every_command_explains_itself(name):
    command = fleetdiff.get_command(None, name.replace("_", "-"))
    assert command is not None
    assert command.name == name.replace("_", "-")
    assert command.help


def test_help_lists_every_command_once():
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", call("--help").stdout, re.M)
    assert sorted(listed) == sorted(fleetdiff.list_commands(None))


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_name_that_a_tool_and_a_stage_share_goes_to_the_stage_when_a_lake_is_given(name):
    _, tool, _ = fleetdiff.resolve_command(None, [name, "somewhere"])
    _, staged, _ = fleetdiff.resolve_command(None, [name, "--lake", "somewhere"])
    assert "Stage:" in staged.help
    assert "Stage:" not in tool.help


def test_doctor_prints_only_json_when_asked():
    done = call("doctor", "--json")
    found = json.loads(done.stdout)
    assert {"Java", "pyspark", "Delta jars"} <= {each["what"] for each in found}


def test_help_answers_without_loading_an_engine():
    code = "import sys; import jobs.cli; print(sorted({'pyspark', 'pandas', 'numpy', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("typed", "offered"), [("diagnosi", "diagnosis"), ("flight", "flight-recorder"), ("machine-s", "machine-scores")]
)
def test_a_shell_completes_commands_and_stages(typed, offered):
    asked = {"_FLEETDIFF_COMPLETE": "bash_complete", "COMP_WORDS": f"fleetdiff {typed}", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("fleetdiff")
    done = subprocess.run([program], env={**os.environ, **asked}, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == [f"plain,{offered}"]
