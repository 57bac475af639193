"""From all jobs of one model to the few that are worth comparing key by key: array work, no strings.

The cost here is that of `compare` without what only the texts can tell (differences explained by scale, keys of an
argument block that one side lacks), so it orders candidates; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ml.configs.classes import KeyClasses
from ml.configs.describe import GROUP_BITS, VALUE_BITS, WEIGHT_BITS, WEIGHT_STEP, hash_group

N_KEPT = 24
N_NEAR = 8
ROWS_AT_ONCE = 2048
_KEY_SHIFT = VALUE_BITS + WEIGHT_BITS + GROUP_BITS
_N_GROUPS = 1 << GROUP_BITS


@dataclass(frozen=True)
class Bucket:
    """Jobs that may be compared with one another, one entry a job in every array, in order of their ids.

    `pairs[offsets[i]:offsets[i + 1]]` are the settings of job i (`Described.pairs`). Times in seconds, NaN where
    unknown; `ended_us` in microseconds since 1970, 0 where unknown. `disqualified` says why a successful job may not
    stand as a baseline (empty: it may).
    """

    job_ids: list[str]
    lineages: list[str]
    must_hash: NDArray[np.int64]
    full_must_hash: NDArray[np.int64]
    block_hash: NDArray[np.int64]
    speed_hash: NDArray[np.int64]
    has_block: NDArray[np.bool_]
    is_success: NDArray[np.bool_]
    disqualified: list[str]
    ended_us: NDArray[np.int64]
    n_ranks: NDArray[np.int64]
    n_planned: NDArray[np.int64]
    step_time_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    offsets: NDArray[np.int64]
    pairs: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.job_ids)


@dataclass(frozen=True)
class Shortlist:
    """Rows of a bucket to compare: `kept` may become baselines, `near` only help to say why there is none.

    `n_matching` jobs match in all that must, `n_successful` of these succeeded; `out` tells of those that succeeded
    and do not qualify: job and reason.
    """

    kept: tuple[int, ...]
    near: tuple[int, ...]
    n_matching: int
    n_successful: int
    out: tuple[tuple[str, str], ...]


class Comparable(Protocol):
    """What is needed of a job to shortlist for it: hashes and settings. `Described` has it, and so has a row."""

    @property
    def must_hash(self) -> int: ...  # noqa: D102
    @property
    def full_must_hash(self) -> int: ...  # noqa: D102
    @property
    def block_hash(self) -> int: ...  # noqa: D102
    @property
    def has_block(self) -> bool: ...  # noqa: D102
    @property
    def pairs(self) -> Sequence[int]: ...  # noqa: D102


@dataclass(frozen=True)
class Fitness:
    """Of every row of a bucket: why it may not stand as a baseline ('' when it may), and the same as a mask."""

    reasons: list[str]
    is_fit: NDArray[np.bool_]


def fitness(bucket: Bucket, classes: KeyClasses) -> Fitness:
    """Which successful jobs of a bucket qualify, each by itself and beside its peers."""
    slow = much_slower(bucket, classes)
    reasons = [known or late for known, late in zip(bucket.disqualified, slow, strict=True)]
    return Fitness(reasons, np.fromiter((not reason for reason in reasons), bool, len(bucket)))


def condense(bucket: Bucket) -> tuple[Bucket, NDArray[np.int64]]:
    """The bucket without the settings that all its jobs share, which tell none from another; and those settings.

    Their cost is nothing for every pair of jobs of the bucket, so the costs stay what they were.
    """
    values, counts = np.unique(bucket.pairs, return_counts=True)
    common = values[counts == len(bucket)] if len(bucket) > 1 else values[:0]
    keep = ~_found(common, bucket.pairs)
    offsets = np.concatenate([[0], np.cumsum(keep)])[bucket.offsets]
    return replace(bucket, pairs=bucket.pairs[keep], offsets=offsets.astype(np.int64)), common


def shortlist(
    this: Comparable, itself: int | None, bucket: Bucket, fit: Fitness, classes: KeyClasses, n_kept_each: int = N_KEPT
) -> Shortlist:
    """The most promising rows of a bucket for one job, which is row `itself` when it is part of the bucket."""
    same = (bucket.must_hash == this.must_hash) & (
        (bucket.full_must_hash == this.full_must_hash) | (bucket.has_block != this.has_block)
    )
    if this.block_hash:
        # One of the two is known by its argument block alone.
        is_block_only = this.block_hash == this.must_hash
        same |= (bucket.block_hash == this.block_hash) & ((bucket.block_hash == bucket.must_hash) != is_block_only)
    alone = np.ones(len(bucket), dtype=bool)
    if itself is not None:
        alone[itself] = False
    matching = same & alone
    is_fit, reasons = fit.is_fit, fit.reasons
    kept = np.flatnonzero(matching & bucket.is_success & is_fit)
    near = np.flatnonzero(~same & alone & bucket.is_success & is_fit)
    cost, is_scaled = _costs(this, bucket, np.concatenate([kept, near]), classes)
    n_kept = len(kept)
    chosen = _best(kept[~is_scaled[:n_kept]], cost[:n_kept][~is_scaled[:n_kept]], bucket, n_kept_each)
    chosen += _best(kept[is_scaled[:n_kept]], cost[:n_kept][is_scaled[:n_kept]], bucket, n_kept_each)
    out = [(bucket.job_ids[row], reasons[row]) for row in np.flatnonzero(matching & bucket.is_success & ~is_fit)]
    return Shortlist(
        kept=tuple(chosen),
        near=tuple(_best(near, cost[n_kept:], bucket, N_NEAR)),
        n_matching=int(matching.sum()),
        n_successful=int((matching & bucket.is_success).sum()),
        out=tuple(sorted(out)[:N_KEPT]),
    )


def much_slower(bucket: Bucket, classes: KeyClasses) -> list[str]:
    """Why successful jobs stand out from their peers (jobs whose speed-making settings agree): a text a job, or ''.

    A job is much slower when its median step takes `slow_ratio` times the median over its peers, itself included
    (three or more), or `slow_ratio_one_peer` times its only peer's; without iterations, it was cut short when it ran
    for less than `short_duration_share` of its peers' median.
    """
    said = [""] * len(bucket)
    for group in _groups(bucket.speed_hash, bucket.is_success & (bucket.step_time_s > 0)):
        times = bucket.step_time_s[group]
        ratios = times / np.median(times) if len(group) > 2 else times / times[::-1]
        limit = classes.limit("slow_ratio" if len(group) > 2 else "slow_ratio_one_peer")
        for row, ratio in zip(group, ratios, strict=True):
            if ratio >= limit and len(group) > 1:
                said[row] = f"is {ratio:.1f} times slower than its peers"
    timeless = bucket.is_success & ~(bucket.step_time_s > 0) & (bucket.duration_s > 0)
    for group in _groups(bucket.speed_hash ^ (bucket.n_planned + 1), timeless):
        median = float(np.median(bucket.duration_s[group]))
        for row in group if len(group) > 2 else ():
            if bucket.duration_s[row] < classes.limit("short_duration_share") * median:
                said[row] = f"ran for {bucket.duration_s[row]:.0f} s where its peers took {median:.0f} s"
    return said


def _groups(keys: NDArray[np.int64], mask: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Row numbers that share a key, among the masked."""
    rows = np.flatnonzero(mask)
    if not len(rows):
        return []
    order = rows[np.argsort(keys[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


def _best(rows: NDArray[np.int64], cost: NDArray[np.float64], bucket: Bucket, n: int) -> list[int]:
    """The cheapest rows, one a lineage; ties go to the job that ended last, then to the first row."""
    chosen: list[int] = []
    seen: set[str] = set()
    for place in np.lexsort((rows, -bucket.ended_us[rows], np.round(cost, 6))).tolist():
        row = int(rows[place])
        if bucket.lineages[row] not in seen:
            seen.add(bucket.lineages[row])
            chosen.append(row)
        if len(chosen) == n:
            break
    return chosen


def _costs(
    this: Comparable, bucket: Bucket, rows: NDArray[np.int64], classes: KeyClasses
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Cost of each row against this job, and whether its size differs."""
    mine = np.array(this.pairs, dtype=np.int64)
    caps = np.full(_N_GROUPS, np.inf)
    for group in sorted(classes.caps, key=lambda group: -classes.caps[group]):
        caps[hash_group(group)] = min(caps[hash_group(group)], classes.caps[group])
    costs, scaled = [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        cost, is_scaled = _part_costs(mine, bucket, part, caps, this.has_block)
        costs.append(cost)
        scaled.append(is_scaled)
    return np.concatenate(costs), np.concatenate(scaled)


def _part_costs(
    mine: NDArray[np.int64], bucket: Bucket, rows: NDArray[np.int64], caps: NDArray[np.float64], has_block: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    lengths = bucket.offsets[rows + 1] - bucket.offsets[rows]
    owner = np.repeat(np.arange(len(rows)), lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    theirs = bucket.pairs[bucket.offsets[rows][owner] + within]
    is_same, is_shared = _found(mine, theirs), _found(np.unique(mine >> _KEY_SHIFT), theirs >> _KEY_SHIFT)
    weight, group = _weight(theirs), _group(theirs)
    is_one_sided = (bucket.has_block[rows] != has_block)[owner]
    only_theirs = ~is_shared & ~is_one_sided
    size = len(rows) * _N_GROUPS
    place = owner * _N_GROUPS + group
    by_group = np.bincount(place, weight * ((is_shared & ~is_same) | only_theirs), size).reshape(-1, _N_GROUPS)
    shared = np.bincount(place, weight * is_shared, size).reshape(-1, _N_GROUPS)
    all_mine = np.bincount(_group(mine), _weight(mine), _N_GROUPS)
    only_mine = np.maximum(all_mine[None, :] - shared, 0) * (bucket.has_block[rows] == has_block)[:, None]
    cost = np.minimum(by_group + only_mine, caps[None, :]).sum(axis=1)
    is_scaled = np.bincount(owner, (weight == 0) & is_shared & ~is_same, len(rows)) > 0
    return cost + is_scaled, is_scaled


def _found(haystack: NDArray[np.int64], needles: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(haystack):
        return np.zeros(len(needles), dtype=bool)
    place = np.minimum(np.searchsorted(haystack, needles), len(haystack) - 1)
    found: NDArray[np.bool_] = haystack[place] == needles
    return found


def _weight(pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    return ((pairs >> VALUE_BITS) & ((1 << WEIGHT_BITS) - 1)).astype(np.float64) * np.float64(WEIGHT_STEP)


def _group(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    return (pairs >> (VALUE_BITS + WEIGHT_BITS)) & (_N_GROUPS - 1)
