"""The decision: which shortlisted jobs are baselines, in which order, or why none is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ml.configs.classes import KeyClasses
from ml.configs.compare import Comparison, Difference, Kind, compare
from ml.configs.describe import Described
from ml.configs.wording import refusal, sentence

N_BASELINES = 5


@dataclass(frozen=True)
class Candidate:
    """One shortlisted job: what is shown of it, and its configuration."""

    job_id: str
    lineage: str
    ended_us: int
    n_ranks: int | None
    described: Described


@dataclass(frozen=True)
class Tried:
    """What a shortlist says of the jobs that are not on it, for the wording of a refusal."""

    n_matching: int = 0
    n_successful: int = 0
    out: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Baseline:
    """One comparable successful job with its score and every differing key, heaviest first."""

    job_id: str
    score: float
    ended_us: int
    n_ranks: int | None
    differing: tuple[Difference, ...]
    sentence: str


@dataclass(frozen=True)
class Match:
    """Baselines, best first; or none, and why."""

    baselines: tuple[Baseline, ...]
    refused: str | None


def decide(this: Described, kept: Sequence[Candidate], near: Sequence[Candidate], tried: Tried, classes: KeyClasses) -> Match:
    """Compare key by key, keep what is comparable, one a lineage, best first; refuse with reasons otherwise.

    Ties go to the job with fewer free differences, then to the one that ended last, then by id.
    """
    if not this.items:
        return Match((), "nothing is known of its configuration")
    if not this.is_identified:
        return Match((), "its configuration does not name a model (a key such as model.*, num_layers or hidden_size)")
    # Of the near ones some lack only what this job does not say either: these are comparable after all.
    compared = [(candidate, compare(this, candidate.described, classes)) for candidate in [*kept, *near]]
    compared.sort(key=_order)
    chosen: list[Baseline] = []
    lineages: set[str] = set()
    for candidate, comparison in compared:
        if comparison.is_comparable and candidate.lineage not in lineages and len(chosen) < N_BASELINES:
            lineages.add(candidate.lineage)
            chosen.append(_baseline(candidate, comparison))
    if chosen:
        return Match(tuple(chosen), None)
    return Match((), _why(compared, bool(kept), bool(near), tried))


def _order(entry: tuple[Candidate, Comparison]) -> tuple[float, int, int, str]:
    candidate, comparison = entry
    n_free = sum(difference.kind == Kind.FREE for difference in comparison.differences)
    return (-comparison.score, n_free, -candidate.ended_us, candidate.job_id)


def _baseline(candidate: Candidate, comparison: Comparison) -> Baseline:
    return Baseline(
        candidate.job_id, comparison.score, candidate.ended_us, candidate.n_ranks, comparison.differences, sentence(comparison)
    )


def _why(compared: Sequence[tuple[Candidate, Comparison]], kept: bool, near: bool, tried: Tried) -> str:
    """Why there is no baseline: the first that applies of too different, none qualifies, none succeeded, none matches."""
    if kept:
        candidate, comparison = compared[0]
        return refusal(candidate.job_id, comparison.obstacles, sentence(comparison))
    if tried.out:
        shown = [f"{job} {reason}" for job, reason in tried.out[:3]]
        more = [f"{len(tried.out) - 3} more do not qualify"] if len(tried.out) > 3 else []
        return refusal(None, [f"{tried.n_successful} matching jobs succeeded, but none qualifies", *shown, *more])
    if tried.n_matching:
        return refusal(None, [f"{tried.n_matching} jobs match, and none of them succeeded"])
    if near:
        candidate, comparison = min(compared, key=lambda entry: (_n_must(entry[1]), *_order(entry)))
        return refusal(candidate.job_id, comparison.obstacles, sentence(comparison))
    return refusal(None, ["no other job has the same model, framework, entry point and parallel layout"])


def _n_must(comparison: Comparison) -> int:
    return sum(difference.kind == Kind.MUST for difference in comparison.differences)
