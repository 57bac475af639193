"""Generated fleets with planted near-misses: what is found, what is named, what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from ml.configs.classes import default_classes
from ml.configs.describe import Described, describe
from ml.configs.match import Candidate, Match, Tried, decide
from ml.configs.qualify import Outcome, disqualified, is_success
from ml.configs.shortlist import Bucket, Shortlist, condense, fitness, shortlist

CLASSES = default_classes()


@dataclasses.dataclass(frozen=True)
class Job:
    """One generated job."""

    job_id: str
    config: Mapping[str, str]
    world_size: int = 64
    is_success: bool = True
    lineage: str | None = None
    step_time_s: float = 2.0
    ended_us: int = 1_000_000
    disqualified: str = ""
    duration_s: float = 1000.0

    @property
    def described(self) -> Described:
        return describe(self.config, CLASSES, world_size=self.world_size)


def bucket_of(jobs: list[Job]) -> Bucket:
    jobs = sorted(jobs, key=lambda job: job.job_id)
    described = [job.described for job in jobs]
    pairs = [np.array(each.pairs, dtype=np.int64) for each in described]
    return Bucket(
        job_ids=[job.job_id for job in jobs],
        lineages=[job.lineage or job.job_id for job in jobs],
        must_hash=np.array([each.must_hash for each in described]),
        full_must_hash=np.array([each.full_must_hash for each in described]),
        block_hash=np.array([each.block_hash for each in described]),
        speed_hash=np.array([each.speed_hash for each in described]),
        has_block=np.array([each.has_block for each in described]),
        is_success=np.array([job.is_success for job in jobs]),
        disqualified=[job.disqualified for job in jobs],
        ended_us=np.array([job.ended_us for job in jobs]),
        n_ranks=np.array([job.world_size for job in jobs]),
        n_planned=np.zeros(len(jobs), dtype=np.int64),
        step_time_s=np.array([job.step_time_s for job in jobs]),
        duration_s=np.array([job.duration_s for job in jobs]),
        offsets=np.cumsum([0, *map(len, pairs)]),
        pairs=np.concatenate(pairs),
    )


def listed(jobs: list[Job], job_id: str) -> tuple[Job, Bucket, Shortlist]:
    bucket = bucket_of(jobs)
    row = bucket.job_ids.index(job_id)
    job = next(job for job in jobs if job.job_id == job_id)
    return job, bucket, shortlist(job.described, row, bucket, fitness(bucket, CLASSES), CLASSES)


def matched(jobs: list[Job], job_id: str) -> Match:
    job, _, chosen = listed(jobs, job_id)
    ordered = sorted(jobs, key=lambda job: job.job_id)
    known = [Candidate(j.job_id, j.lineage or j.job_id, j.ended_us, j.world_size, j.described) for j in ordered]
    tried = Tried(chosen.n_matching, chosen.n_successful, chosen.out)
    return decide(job.described, [known[r] for r in chosen.kept], [known[r] for r in chosen.near], tried, CLASSES)


def model(number: int) -> dict[str, str]:
    return {
        "framework.name": "megatron", "model.layers": str(20 + number), "model.hidden": "2048", "entrypoint": "pretrain.py",
        "parallel.tp": "8", "code_version": "abc", "packages.nccl": "2.29", "packages.torch": "2.9", "env.NCCL_ALGO": "Ring",
        "data.dataset": "c4", "hyperparameters.lr": "1e-4", "hyperparameters.seed": "1",
        **{f"hyperparameters.h{n}": str(n) for n in range(60)},
    }  # fmt: skip


PLANTED = {
    "dependency": ({"packages.nccl": "2.30"}, 64, {"packages.nccl": ("2.30", "2.29")}),
    "variable": ({"env.NCCL_ALGO": "Tree"}, 64, {"env.NCCL_ALGO": ("Tree", "Ring")}),
    "new variable": ({"env.NCCL_IB_DISABLE": "1"}, 64, {"env.NCCL_IB_DISABLE": ("1", None)}),
    "scale": ({}, 128, {"world_size": ("128", "64")}),
    "code": ({"code_version": "def"}, 64, {"code_version": ("def", "abc")}),
}


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("planted", sorted(PLANTED))
def test_each_planted_difference_is_named_and_no_other_model_is_a_baseline(planted: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    fleet = [
        Job(f"job-{m:02d}-{n:02d}", {**model(m), "hyperparameters.seed": str(random.integers(1000))}, ended_us=int(random.integers(10**9)))
        for m in range(12)
        for n in range(6)
    ]  # fmt: skip
    own = int(random.integers(12))
    change, world_size, expected = PLANTED[planted]
    failed = Job("failed", {**model(own), **change, "hyperparameters.seed": "4242"}, world_size, is_success=False)
    found = matched([*fleet, failed], "failed")
    assert len(found.baselines) == 5
    for each in found.baselines:
        assert each.job_id.startswith(f"job-{own:02d}-")
        named = {d.key: (d.this, d.baseline) for d in each.differing if d.key != "hyperparameters.seed"}
        assert named == expected


@pytest.mark.parametrize("seed", [11, 12])
def test_the_nearest_of_many_variants_comes_first(seed: int) -> None:
    random = np.random.default_rng(seed)
    fleet = []
    for n in range(200):
        changed = random.choice(60, size=random.integers(2, 12), replace=False)
        fleet.append(Job(f"job-{n:03d}", {**model(1), **{f"hyperparameters.h{k}": "x" for k in changed}}))
    fleet.append(Job("twin", {**model(1), "hyperparameters.h7": "y"}))
    found = matched([*fleet, Job("failed", model(1), is_success=False)], "failed")
    assert found.baselines[0].job_id == "twin"
    scores = [each.score for each in found.baselines]
    assert scores == sorted(scores, reverse=True)


def test_five_repeats_of_one_run_are_one_witness() -> None:
    fleet = [Job(f"try-{n}", model(1), lineage="one", ended_us=n) for n in range(5)] + [Job("other", {**model(1), "env.A": "1"})]
    assert [b.job_id for b in matched([*fleet, Job("failed", model(1), is_success=False)], "failed").baselines] == [
        "try-4",
        "other",
    ]


@pytest.mark.parametrize("n_repeats", [40, 400])
def test_many_repeats_of_one_run_do_not_crowd_out_the_others(n_repeats: int) -> None:
    fleet = [Job(f"try-{n:03d}", model(1), lineage="one", ended_us=n) for n in range(n_repeats)]
    fleet += [Job("other", {**model(1), "env.A": "1"})]
    found = matched([*fleet, Job("failed", model(1), is_success=False)], "failed")
    assert [b.job_id for b in found.baselines] == [f"try-{n_repeats - 1:03d}", "other"]


def test_jobs_with_an_alert_cut_short_or_slow_do_not_qualify_and_the_refusal_says_so() -> None:
    fleet = [
        Job("alert", model(1), disqualified="has an alert in its logs: nccl"),
        Job("short", model(1), disqualified="stopped at iteration 5 of 100"),
        Job("failed", model(1), is_success=False),
    ]
    found = matched(fleet, "failed")
    assert found.baselines == ()
    assert found.refused == (
        "no successful job is comparable: 2 matching jobs succeeded, but none qualifies; "
        "alert has an alert in its logs: nccl; short stopped at iteration 5 of 100"
    )


def test_a_job_much_slower_than_its_peers_does_not_qualify() -> None:
    peers = [Job(f"peer-{n}", model(1), step_time_s=2.0 + n / 10) for n in range(3)]
    fleet = [*peers, Job("slow", model(1), step_time_s=4.4), Job("failed", model(1), is_success=False)]
    _, bucket, chosen = listed(fleet, "failed")
    assert "slow" not in {bucket.job_ids[row] for row in chosen.kept}
    assert chosen.out == (("slow", "is 2.0 times slower than its peers"),)


def test_a_job_with_other_batches_is_no_peer_and_not_slow() -> None:
    peers = [Job(f"peer-{n}", model(1)) for n in range(3)]
    large = Job("large", {**model(1), "hyperparameters.micro_batch": "8"}, step_time_s=8.0)
    _, _, chosen = listed([*peers, large, Job("failed", model(1), is_success=False)], "failed")
    assert chosen.out == ()


def test_without_iterations_a_job_that_ran_for_a_fraction_of_its_peers_time_does_not_qualify() -> None:
    nan = float("nan")
    peers = [Job(f"peer-{n}", model(1), step_time_s=nan, duration_s=1000.0 + n) for n in range(3)]
    short = Job("short", model(1), step_time_s=nan, duration_s=100.0)
    _, _, chosen = listed([*peers, short, Job("failed", model(1), is_success=False)], "failed")
    assert chosen.out == (("short", "ran for 100 s where its peers took 1000 s"),)


def test_matching_jobs_that_all_failed_are_no_baseline() -> None:
    fleet = [Job("other", model(1), is_success=False), Job("failed", model(1), is_success=False)]
    assert matched(fleet, "failed").refused == "no successful job is comparable: 1 jobs match, and none of them succeeded"


def test_another_layout_is_refused_with_the_nearest_job_and_what_keeps_it_out() -> None:
    fleet = [Job("tp4", {**model(1), "parallel.tp": "4"}), Job("failed", model(1), is_success=False)]
    assert matched(fleet, "failed").refused == (
        "no successful job is comparable: parallel.tp is 8, there 4 (nearest: tp4, same but for parallel.tp 4 → 8)"
    )


@pytest.mark.parametrize("config", [{}, {"hyperparameters.lr": "1"}])
def test_a_configuration_that_says_too_little_is_refused(config: dict[str, str]) -> None:
    found = decide(describe(config, CLASSES), [], [], Tried(), CLASSES)
    assert found.baselines == ()
    assert found.refused is not None


def test_settings_that_all_share_do_not_change_the_shortlist() -> None:
    random = np.random.default_rng(3)
    jobs = [Job(f"a-{n:02d}", {**model(1), f"hyperparameters.h{random.integers(60)}": "x"}, ended_us=n) for n in range(50)]
    jobs.append(Job("failed", model(1), is_success=False))
    bucket = bucket_of(jobs)
    small, common = condense(bucket)
    fit = fitness(bucket, CLASSES)
    whole = shortlist(jobs[-1].described, 50, bucket, fit, CLASSES)

    @dataclasses.dataclass(frozen=True)
    class Row:
        must_hash: int
        full_must_hash: int
        block_hash: int
        has_block: bool
        pairs: list[int]

    this = jobs[-1].described
    row = Row(this.must_hash, this.full_must_hash, this.block_hash, this.has_block, small.pairs[small.offsets[50] :].tolist())
    assert len(common) > 30
    assert shortlist(row, 50, small, fit, CLASSES) == whole


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome("COMPLETED", 0), ""),
        (Outcome("COMPLETED", 0, last_iteration=120, n_planned=120), ""),
        (Outcome("COMPLETED", 0, last_iteration=99, n_planned=100, log_every=1), ""),
        (Outcome("COMPLETED", 0, last_iteration=90, n_planned=100, log_every=10), ""),  # prints every tenth
        (Outcome("COMPLETED", 0, last_iteration=60, n_planned=120, log_every=5), "stopped at iteration 60 of 120"),
        (Outcome("COMPLETED", 0, alerts=["nccl", "oom"]), "has an alert in its logs: nccl, oom"),
        (Outcome("COMPLETED", 0, launcher_alerts=["exception"], last_iteration=100, n_planned=100), ""),  # a farewell
        (Outcome("COMPLETED", 0, launcher_alerts=["exception"]), "has an alert in its logs: exception"),
        (
            Outcome("COMPLETED", 0, launcher_alerts=["exception"], last_iteration=50, n_planned=100),
            "has an alert in its logs: exception",
        ),
        (Outcome("COMPLETED", 1), "did not succeed"),
        (Outcome("COMPLETED", 0, [0, 9]), "did not succeed"),
        (Outcome("FAILED", 1), "did not succeed"),
        (Outcome("TIMEOUT", 0), "did not succeed"),
    ],
)
def test_what_keeps_a_job_from_being_a_baseline(outcome: Outcome, reason: str) -> None:
    assert disqualified(outcome, CLASSES) == reason
    assert is_success(outcome) == (reason != "did not succeed")
