"""Two configurations side by side: what differs, what it means, in words."""

from __future__ import annotations

import pytest

from ml.configs.classes import SettingsError, default_classes, load
from ml.configs.compare import Comparison, Kind, compare
from ml.configs.describe import Described, describe, name_family
from ml.configs.wording import sentence

BASE = {
    "framework.name": "torch", "framework.version": "2.15.0", "entrypoint": "train.py", "code_version": "3f1c9ab",
    "model.layers": "24", "model.hidden": "1024", "parallel.tp": "2", "parallel.pp": "1", "parallel.dp": "4",
    "hyperparameters.lr": "0.001", "hyperparameters.seed": "1", "hyperparameters.global_batch": "32",
    "data.dataset": "corpus-v1", "env.NCCL_ALGO": "Ring", "packages.nccl": "2.29", "packages.numpy": "2.1",
}  # fmt: skip
CLASSES = default_classes()


def described(world_size: int = 8, n_gpus: int | None = None, **changes: str | None) -> Described:
    config = {**BASE, **{key.replace("__", "."): value for key, value in changes.items()}}
    return describe(config, CLASSES, world_size=world_size, n_gpus=n_gpus)


def against(world_size: int = 8, n_gpus: int | None = None, **changes: str | None) -> Comparison:
    """A job with these changes, compared with the unchanged one."""
    before = 512 if n_gpus else 8
    return compare(described(world_size, n_gpus, **changes), described(before, before if n_gpus else None), CLASSES)


def test_the_same_is_the_same() -> None:
    found = against()
    assert (found.score, found.differences, sentence(found)) == (1.0, (), "same configuration")


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"packages__nccl": "2.30"}, "packages.nccl", "same but for NCCL 2.29 → 2.30"),
        ({"env__NCCL_ALGO": "Tree"}, "env.NCCL_ALGO", "same but for NCCL_ALGO Ring → Tree"),
        ({"hyperparameters__lr": "2e-3"}, "hyperparameters.lr", "same but for learning rate 0.001 → 2e-3"),
        ({"code_version": "91be77d"}, "code_version", "same but for code 3f1c9ab → 91be77d"),
        ({"data__dataset": "corpus-v2"}, "data.dataset", "same but for data.dataset corpus-v1 → corpus-v2"),
        ({"env__NEW": "1"}, "env.NEW", "same but for NEW 1 (not set there)"),
        ({"env__NCCL_ALGO": None}, "env.NCCL_ALGO", "same but for NCCL_ALGO not set (Ring there)"),
    ],
)
def test_one_change_is_named_with_both_values_and_costs_a_little(change: dict[str, str], key: str, words: str) -> None:
    found = against(**change)
    assert [d.key for d in found.differences] == [key]
    assert sentence(found) == words
    assert found.is_comparable
    assert 0.85 < found.score < 1


@pytest.mark.parametrize(
    "change", [{"model__layers": "32"}, {"model__experts": "8"}, {"parallel__tp": "4"}, {"entrypoint": "eval.py"}]
)
def test_another_model_layout_or_entry_point_is_no_baseline(change: dict[str, str]) -> None:
    assert not against(**change).is_comparable


def test_a_seed_is_listed_and_costs_nothing() -> None:
    found = against(hyperparameters__seed="7")
    assert (found.score, [d.kind for d in found.differences], sentence(found)) == (1.0, [Kind.FREE], "same but for the seed")


def test_twice_the_scale_is_comparable_when_all_else_follows_from_it() -> None:
    found = against(16, parallel__dp="8", hyperparameters__global_batch="64")
    assert found.is_comparable
    assert {d.key: d.kind for d in found.differences} == {
        "world_size": Kind.SCALE, "parallel.dp": Kind.SCALE, "hyperparameters.global_batch": Kind.EXPLAINED,
    }  # fmt: skip
    assert sentence(found) == "same but for 8 → 16 ranks"


def test_the_learning_rate_may_follow_the_root_of_the_scale() -> None:
    assert against(32, parallel__dp="16", hyperparameters__lr="0.002").is_comparable
    assert not against(32, parallel__dp="16", hyperparameters__lr="0.003").is_comparable


def test_another_scale_and_another_library_together_are_not_comparable_but_the_distance_is_said() -> None:
    found = against(1024, 1024, packages__nccl="2.30")
    assert found.obstacles == ("its size differs, and packages.nccl differs without following from that",)
    assert sentence(found) == "same but for NCCL 2.29 → 2.30 and 512 → 1024 GPUs"


def test_a_site_may_let_scale_differ_beside_other_things() -> None:
    classes = load("limits: {scale_alone: false}")
    this = describe({**BASE, "packages.nccl": "2.30"}, classes, world_size=16)
    assert compare(this, describe(BASE, classes, world_size=8), classes).is_comparable


def test_a_site_may_class_a_key_its_own_way() -> None:
    classes = load("rules: [{keys: [data.dataset], class: must}]")
    this, other = (describe({**BASE, "data.dataset": name}, classes) for name in ("a", "b"))
    assert compare(this, other, classes).obstacles == ("data.dataset is a, there b",)
    assert classes.version != CLASSES.version


@pytest.mark.parametrize(
    "text", ["rules: 3", "- a", "rules: [{keys: x}]", "rules: [{keys: [x], class: maybe}]", "limits: {minimum_score: high}", "a: ["]
)
def test_settings_of_the_wrong_form_are_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        load(text)


def test_a_new_image_is_one_change_not_fifty() -> None:
    packages = {f"packages.p{n}": "1.0" for n in range(50)}
    changed = dict.fromkeys(packages, "1.1")
    found = compare(describe({**BASE, **changed}, CLASSES), describe({**BASE, **packages}, CLASSES), CLASSES)
    assert found.is_comparable
    assert len(found.differences) == 50
    assert 0.6 < found.score < 0.85


def test_when_nearly_everything_differs_it_is_refused() -> None:
    other = {
        key: value if key.startswith(("model", "parallel", "framework.name", "entry")) else value + "x"
        for key, value in BASE.items()
    }
    other |= {f"hyperparameters.h{n}": "1" for n in range(20)}
    found = compare(describe(BASE, CLASSES), describe(other, CLASSES), CLASSES)
    assert found.obstacles[0].startswith("too much differs")


def test_spellings_of_frameworks_meet_and_the_differing_key_keeps_the_jobs_own_name() -> None:
    megatron = {"num_layers": "24", "hidden_size": "1024", "tensor_model_parallel_size": "2", "lr": "1e-3"}
    named = {"model.layers": "24", "model.hidden": "1024", "parallel.tp": "2", "hyperparameters.lr": "0.002"}
    found = compare(describe(megatron, CLASSES), describe(named, CLASSES), CLASSES)
    assert [(d.key, d.this, d.baseline) for d in found.differences] == [("lr", "1e-3", "0.002")]


BLOCK = {f"args.argument_{n}": str(n) for n in range(30)}
SAID_AGAIN = {"args.num_layers": "24", "args.hidden_size": "1024", "args.lr": "1e-3", "args.num_attention_heads": "16"}


@pytest.mark.parametrize("prefix", ["args.", ""])
def test_a_job_that_died_before_its_argument_block_meets_those_that_printed_it(prefix: str) -> None:
    block = {key.replace("args.", prefix): value for key, value in {**BLOCK, **SAID_AGAIN}.items()}
    early, full = describe(BASE, CLASSES), describe({**BASE, **block}, CLASSES)
    found = compare(early, full, CLASSES)
    assert early.must_hash == full.must_hash
    assert early.full_must_hash != full.full_must_hash
    assert (found.is_comparable, found.differences, found.n_unknown) == (True, (), 31)
    assert 0.9 < found.score < 1


def test_two_argument_blocks_of_different_models_stay_apart() -> None:
    one = {**BASE, **BLOCK, **SAID_AGAIN}
    other = {**one, "args.num_attention_heads": "32"}
    assert not compare(describe(one, CLASSES), describe(other, CLASSES), CLASSES).is_comparable


def test_the_argument_block_alone_meets_jobs_that_have_a_job_json_beside_it() -> None:
    alone, full = describe({**BLOCK, **SAID_AGAIN, "args.lr": "0.002"}, CLASSES), describe({**BASE, **BLOCK, **SAID_AGAIN}, CLASSES)
    found = compare(alone, full, CLASSES)
    assert alone.is_block_only
    assert not full.is_block_only
    assert alone.block_hash == full.block_hash != 0
    assert [(d.key, d.this, d.baseline) for d in found.differences] == [("args.lr", "0.002", "0.001")]
    assert found.is_comparable


def test_the_argument_block_of_another_model_does_not() -> None:
    alone, full = (
        describe({**BLOCK, **SAID_AGAIN, "args.num_layers": "48"}, CLASSES),
        describe({**BASE, **BLOCK, **SAID_AGAIN}, CLASSES),
    )
    assert alone.block_hash != full.block_hash
    assert not compare(alone, full, CLASSES).is_comparable


def test_two_keys_of_one_name_with_different_values_both_count() -> None:
    both = describe({"actor.num_layers": "24", "critic.num_layers": "12"}, CLASSES)
    assert sorted(item.value for item in both.items.values()) == ["12", "24"]
    assert both.must != describe({"actor.num_layers": "24"}, CLASSES).must


def test_a_configuration_without_a_model_is_known_by_its_jobs_name_and_never_surely() -> None:
    settings = {"env.A": "1", "env.B": "2", "packages.x": "1"}
    one = describe(settings, CLASSES, name="pretrain_2026-11-30_try2", user="ana")
    other = describe(settings, CLASSES, name="pretrain", user="ana")
    assert one.must_hash == other.must_hash != 0
    assert compare(one, other, CLASSES).score == 0.7
    assert describe(settings, CLASSES, name="pretrain", user="bo").must_hash != one.must_hash
    assert describe({}, CLASSES, name="pretrain", user="ana").must_hash == 0


def test_sizes_in_a_name_stay_and_repeats_go() -> None:
    assert name_family("gpt-64-pretrain_20261130_rerun2") == "gpt-64-pretrain"
    assert name_family("sft-48") == "sft-48"


def test_nan_equals_nan_and_differs_from_numbers() -> None:
    assert against(hyperparameters__lr="nan").differences
    assert not compare(described(hyperparameters__lr="nan"), described(hyperparameters__lr="NaN"), CLASSES).differences


def test_ten_thousand_keys_compare() -> None:
    many = {**BASE, **{f"extra.k{n}": str(n) for n in range(10_000)}}
    found = compare(describe(many, CLASSES), describe({**many, "extra.k77": "x"}, CLASSES), CLASSES)
    assert [d.key for d in found.differences] == ["extra.k77"]
