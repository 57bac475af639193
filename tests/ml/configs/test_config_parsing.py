"""Configurations as people have them, good and bad."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml.configs.parse import ConfigError, flatten, from_log, parse_config

BLOCK = """[NeMo I 2026-11-30 03:14:47 trainer:54] ------------------------ arguments ------------------------
[NeMo I 2026-11-30 03:14:47 trainer:54]   num_layers ...................................... 24
 0:   hidden_size ..................................... 1024
  lr .............................................. 0.00015
  data_path ....................................... ['/data/a b']
-------------------- end of arguments ---------------------
"""


def test_an_argument_block_is_read_through_any_prefix() -> None:
    assert from_log(BLOCK) == {
        "args.num_layers": "24", "args.hidden_size": "1024", "args.lr": "0.00015", "args.data_path": "['/data/a b']",
    }  # fmt: skip


def test_mllog_settings_are_kept_and_measurements_are_not() -> None:
    lines = [
        ("submission_benchmark", '"bert"'), ("global_batch_size", "3072"), ("eval_accuracy", "0.4"), ("eval_accuracy", "0.7"),
    ]  # fmt: skip
    text = "\n".join(f' 0: :::MLLOG {{"event_type": "POINT_IN_TIME", "key": "{key}", "value": {value}}}' for key, value in lines)
    assert from_log(text) == {"args.mllog.submission_benchmark": "bert", "args.mllog.global_batch_size": "3072"}


def test_a_job_json_gives_its_configuration_and_size() -> None:
    job = {"job_id": "j", "state": "FAILED", "name": "n", "nodes": ["a", "b"], "world_size": 16, "config": {"model": {"layers": 2}}}
    parsed = parse_config(json.dumps(job))
    assert (parsed.config, parsed.world_size, parsed.n_nodes, parsed.job_id) == ({"model.layers": "2"}, 16, 2, "j")


def test_a_version_keeps_its_text_in_json_and_yaml() -> None:
    assert parse_config('{"packages": {"nccl": 2.30}}').config == {"packages.nccl": "2.30"}
    assert parse_config("packages:\n  nccl: 2.30\n").config == {"packages.nccl": "2.30"}


def test_yaml_merge_keys_and_aliases_are_expanded() -> None:
    text = "base: &b {lr: 1e-3, seed: 1}\nrun:\n  <<: *b\n  seed: 2\n"
    assert parse_config(text).config == {"base.lr": "1e-3", "base.seed": "1", "run.lr": "1e-3", "run.seed": "2"}


def test_lines_of_key_and_value_are_read() -> None:
    assert parse_config("--lr = 1e-3\nmodel.layers = 24\n").config == {"lr": "1e-3", "model.layers": "24"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("{}", "empty"),
        ("[1, 2]", "not a mapping"),
        ("&a {x: *a}", "contains itself"),
        ("a: &a\n  b: *a\n", "contains itself"),
        ("{" + '"a":{' * 60 + "}" * 60 + "}", "nested deeper"),
        ("[" * 100_000, "nested"),
        ('{"a": ', "not "),
        ("just words", "not a mapping"),
        (json.dumps({f"k{n}": n for n in range(20_001)}), "more than 20000 keys"),
    ],
)
def test_a_bad_configuration_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_config(text)


def test_aliases_that_explode_are_refused_at_once() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    began = time.monotonic()
    with pytest.raises(ConfigError, match="aliases expand"):
        parse_config("\n".join(["l0: &l0 [x, x, x]", *levels]))
    assert time.monotonic() - began < 5


def test_a_python_mapping_that_contains_itself_is_refused() -> None:
    loop: dict[str, object] = {"lr": 1}
    loop["self"] = loop
    with pytest.raises(ConfigError, match="self contains itself"):
        flatten(loop)


def test_ten_thousand_keys_are_read() -> None:
    assert (
        len(parse_config(json.dumps({"config": {f"k{n}": n for n in range(10_000)}, "job_id": "j", "state": "X"})).config) == 10_000
    )


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse_config(text)
    except ConfigError:
        return
    assert all(isinstance(value, str) for value in parsed.config.values())


def test_argument_blocks_of_megatron_logs_are_read(shared_data: Path) -> None:
    for log in sorted((shared_data / "bigscience").glob("meg_*.out")):
        config = parse_config(log.read_text(errors="replace")).config
        assert {"args.num_layers", "args.hidden_size", "args.seq_length"} <= config.keys(), log.name
