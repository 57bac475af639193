"""One spelling for one meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml.configs.normalise import is_run_specific, normal_key, normal_value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1e-3", "0.001"),
        ("1.0", "1"),
        ("1,000,000", "1000000"),
        ("True", "yes"),
        ("off", "false"),
        ('"adam"', "adam"),
        ("16 GiB", "16384MiB"),
        ("10min", "600s"),
        ("600000ms", "600 s"),
        ("torch.bfloat16", "bf16"),
        ("[1, 2, 3]", "(1,2,3)"),
        ("['a', 'b']", "[a,b]"),
        ("/home/ana/data/", "/home/bo//data"),
        ("/runs/2026-11-30_12-00-01/ckpt", "/runs/2026-12-01_08-30-00/ckpt"),
        ("./train.py", "train.py"),
        ("nan", "NaN"),
    ],
)
def test_two_spellings_of_one_meaning_are_equal(one: str, other: str) -> None:
    assert normal_value(one) == normal_value(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.001", "0.01"),
        ("true", "1"),  # a count of one is not a switch
        ("7B", "7"),  # a model's size is not a byte
        ("16GB", "16GiB"),
        ("/data/corpus-v1", "/data/corpus-v2"),
        ("nan", "0"),
        ("5m", "5 s"),
    ],
)
def test_two_meanings_stay_apart(one: str, other: str) -> None:
    assert normal_value(one) != normal_value(other)


def test_a_version_is_never_read_as_a_number() -> None:
    assert normal_value("2.30", is_version=True) != normal_value("2.3", is_version=True)
    assert normal_value("v2.30", is_version=True) == normal_value("2.30", is_version=True)


@pytest.mark.parametrize("text", ["", "None", "null", "~", "N/A"])
def test_what_says_not_set_is_absent(text: str) -> None:
    assert normal_value(text) is None


@pytest.mark.parametrize(
    ("key", "normal"),
    [
        ("--Tensor-Model-Parallel-Size", "tensor_model_parallel_size"),
        ("config.model.layers", "model.layers"),
        ("env/NCCL_ALGO", "env.nccl_algo"),
    ],
)
def test_keys_lose_dashes_case_and_frame(key: str, normal: str) -> None:
    assert normal_key(key) == normal


@pytest.mark.parametrize("value", ["0b9a7c1e-1234-4abc-9def-001122334455", "2026-11-30T12:00:01Z", "tcp://10.0.0.1:29500"])
def test_ids_stamps_and_addresses_belong_to_one_run(value: str) -> None:
    assert is_run_specific(value)


@given(st.text(max_size=200))
def test_normalising_anything_twice_changes_nothing_more(text: str) -> None:
    once = normal_value(text)
    if once is not None and not once.startswith(("[", '"', "'")):
        again = normal_value(once)
        assert again is None or normal_value(again) == again
