"""The look-up over a lake written without Spark: answers, refusals, bad input, as a whole process."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from jobs.baselines.index import bucket_of, index_row
from jobs.cli.baseline import command
from jobs.core import lake as reader
from jobs.core.errors import FleetdiffError, NotFoundError, UsageError
from ml.configs.classes import default_classes

CLASSES = default_classes()
BASE = {
    "model.layers": "24", "model.hidden": "1024", "framework.name": "torch", "parallel.tp": "8", "packages.nccl": "2.29",
    "hyperparameters.lr": "0.001", "hyperparameters.seed": "1", "env.NCCL_ALGO": "Ring",
}  # fmt: skip


def row(job_id: str, config: dict[str, Any], state: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    job = {
        "job_id": job_id, "name": None, "user": None, "state": state, "exit_code": None, "node_exit_codes": None, "ended_at": None,
        "world_size": None, "n_nodes": None, "n_gpus": None, "lineage_id": None, "config": list(config.items()), "alerts": None, "launcher_alerts": None,
        "last_iteration": None, "n_planned": None, "log_every": None, "step_time_s": None, "duration_s": None,
    }  # fmt: skip
    return index_row({**job, **more}, CLASSES)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake of a few jobs, some of them strange."""
    reader.create_missing(tmp_path)
    rows = [
        row("good", BASE, ended_at=datetime(2026, 5, 1, tzinfo=UTC), world_size=64, n_gpus=64),
        row("good-nccl", {**BASE, "packages.nccl": "2.30"}, world_size=64, n_gpus=64),
        row("large", BASE, world_size=128, n_gpus=128),
        row("failed", {**BASE, "env.NCCL_ALGO": "Tree"}, "FAILED", world_size=64, n_gpus=64),
        row("empty", {}, "FAILED"),
        row("vague", {"hyperparameters.lr": "nan"}, "FAILED"),
        row("many", {**BASE, "model.layers": "7", **{f"extra.k{n}": str(n) for n in range(10_000)}}, "FAILED"),
        row("many-good", {**BASE, "model.layers": "7", **{f"extra.k{n}": str(n) for n in range(10_000)}, "extra.k5": "x"}),
        row('o\'hara "x"; --', {**BASE, "model.layers": "9", "it's": "<script>\x1b[31m"}, "FAILED"),
        row("nulls", {"model.layers": None, "framework.name": "null"}, "FAILED"),
    ]
    schema = reader.arrow_schema("config_index")
    write_deltalake(reader.table_path(tmp_path, "config_index"), pa.Table.from_pylist(rows, schema=schema), mode="append")
    return str(tmp_path)


def asked(root: str, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(command, [*words, "--lake", root, "--json"], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.output)
    return document


def test_the_answer_has_the_words_of_the_contract(root: str) -> None:
    document = asked(root, "failed")
    assert {"job_id", "baselines", "refused"} <= document.keys()
    assert document["baselines"][0] == {
        "job_id": "good", "score": document["baselines"][0]["score"], "n_ranks": 64, "ended_at": "2026-05-01T00:00:00.000Z",
        "differing": [{"key": "env.NCCL_ALGO", "this": "Tree", "baseline": "Ring"}],
        "sentence": "same but for NCCL_ALGO Ring → Tree",
    }  # fmt: skip
    assert [each["job_id"] for each in document["baselines"]] == ["good", "good-nccl"]  # the larger one differs in more than size


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("empty", "nothing is known of its configuration"),
        ("vague", "does not name a model"),
        ("nulls", "nothing is known of its configuration"),
        ('o\'hara "x"; --', "no other job has the same model"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(root: str, job: str, reason: str) -> None:
    document = asked(root, job)
    assert document["baselines"] == []
    assert reason in document["refused"]


def test_ten_thousand_settings_are_compared(root: str) -> None:
    assert asked(root, "many")["baselines"][0]["differing"] == [{"key": "extra.k5", "this": "5", "baseline": "x"}]


MEGATRON = """[rank0] ------------------------ arguments ------------------------
  num_layers ...................................... 24
  hidden_size ..................................... 1024
  tensor_model_parallel_size ...................... 8
  world_size ...................................... 64
  lr .............................................. 1.0E-3
-------------------- end of arguments ---------------------
"""
YAML = """
model: {layers: 24, hidden: 1024}
framework: {name: torch}
parallel: {tp: 8}
packages: {nccl: "2.29"}
hyperparameters: {lr: 1e-3, seed: 7}
env: {NCCL_ALGO: Tree}
world_size: 64
"""


@pytest.mark.parametrize("form", ["json", "yaml", "strings"])
def test_a_new_incident_is_looked_up_from_a_file(root: str, tmp_path: Path, form: str) -> None:
    nested = {"model": {"layers": 24, "hidden": 1024}, "framework": {"name": "torch"}, "parallel": {"tp": 8}}
    nested |= {"packages": {"nccl": "2.29"}, "hyperparameters": {"lr": 1e-3, "seed": 7}, "env": {"NCCL_ALGO": "Tree"}}
    job = {"job_id": "new", "state": "FAILED", "world_size": 64, "config": nested}
    texts = {
        "json": json.dumps(job),
        "yaml": YAML,
        "strings": json.dumps(job).replace(": 24", ': "24"').replace(": 0.001", ': "1E-3"'),
    }
    file = tmp_path / "incident"
    file.write_text(texts[form])
    document = asked(root, "--config", str(file))
    assert document["baselines"][0]["job_id"] == "good"
    assert [d["key"] for d in document["baselines"][0]["differing"]] == ["env.NCCL_ALGO", "hyperparameters.seed"]


def test_an_argument_block_is_looked_up_and_meets_jobs_with_a_job_json_too(root: str, tmp_path: Path) -> None:
    file = tmp_path / "block.log"
    file.write_text(MEGATRON)
    # The block does not say which framework: those with the same model and layout are comparable.
    assert asked(root, "--config", str(file))["baselines"][0]["job_id"] == "good"
    block = {"args.num_layers": "24", "args.hidden_size": "1024", "args.tensor_model_parallel_size": "8", "args.lr": "0.002"}
    rows = [
        row("block", {**block, "args.world_size": "64"}),
        row("both", {**BASE, **block, "hyperparameters.lr": "0.001"}, world_size=64),
    ]
    schema = reader.arrow_schema("config_index")
    write_deltalake(reader.table_path(root, "config_index"), pa.Table.from_pylist(rows[:1], schema=schema), mode="append")
    found = asked(root, "--config", str(file))["baselines"]
    assert [(each["job_id"], each["differing"]) for each in found] == [
        ("block", [{"key": "args.lr", "this": "1.0E-3", "baseline": "0.002"}])
    ]
    write_deltalake(reader.table_path(root, "config_index"), pa.Table.from_pylist(rows[1:], schema=schema), mode="append")
    assert {each["job_id"] for each in asked(root, "--config", str(file))["baselines"]} == {"block", "both"}


def test_a_configuration_of_another_model_is_refused(root: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"model": {"layers": 99}, "framework": {"name": "torch"}}))
    assert asked(root, "--config", str(file))["baselines"] == []


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        (["nobody"], NotFoundError, "no job nobody"),
        ([], UsageError, "either a job or --config"),
        (["failed", "--config", "x"], UsageError, "either a job or --config"),
        (["--config", "/nothing/here"], NotFoundError, "no such file"),
        (["--config", "/tmp"], FleetdiffError, "is a folder"),
    ],
)
def test_wrong_questions_are_answered_in_one_line(root: str, words: list[str], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason) as raised:
        CliRunner().invoke(command, [*words, "--lake", root], catch_exceptions=False)
    assert "\n" not in str(raised.value)


def test_a_lake_made_with_other_key_classes_is_refused(root: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("key_classes: {rules: [{keys: [data.dataset], class: must}]}")
    with pytest.raises(FleetdiffError, match="give the site's file"):
        CliRunner().invoke(command, ["failed", "--lake", root, "--settings", str(settings)], catch_exceptions=False)


def test_text_for_people_holds_no_control_characters(root: str) -> None:
    text = CliRunner().invoke(command, ['o\'hara "x"; --', "--lake", root], catch_exceptions=False).output
    assert "\x1b" not in text
    assert CliRunner().invoke(command, ["failed", "--lake", root], catch_exceptions=False).output.splitlines()[:4] == [
        "Baselines of failed",
        "1. good  score 0.88  64 ranks  ended 2026-05-01T00:00:00.000Z",
        "   same but for NCCL_ALGO Ring → Tree",
        "     env.NCCL_ALGO: Ring → Tree",
    ]


def test_as_a_process_it_prints_json_alone_and_loads_neither_spark_nor_pandas(root: str) -> None:
    watch = (
        "import sys, atexit; sys.argv = ['fleetdiff', *sys.argv[1:]]\n"
        "atexit.register(lambda: print(sorted({'pyspark', 'pandas', 'sklearn', 'scipy'} & sys.modules.keys()), file=sys.stderr))\n"
        "from jobs.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch, "baseline", "failed", "--lake", root, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["baselines"]
    assert done.stderr.strip() == "[]"


def test_rows_of_an_empty_index_are_an_empty_bucket() -> None:
    assert len(bucket_of(reader.arrow_schema("config_index").empty_table())) == 0
