"""A job's own course: step times and losses, and when they left it.

Iteration times come from printed iteration lines or from operation time lines. All times are seconds since 1970 with
node clocks corrected; onsets are windows, never instants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ml.log_diffs.topology import Finding

Floats = npt.NDArray[np.float64]

MIN_BEFORE = 8
MIN_AFTER = 5
MIN_RATIO = 1.25
"""A shift below this ratio is nothing that a user sees; the quartiles of healthy runs overlap at any ratio."""
MIN_RATIO_OF_FEW = 1.5
FEW = 60
"""With fewer values than this quartiles are rough, and healthy runs reach 1.3."""
WARM_UP = 3
WINDOW = 10
"""Steps of one window, as in L4."""


@dataclass(frozen=True)
class Shift:
    """A lasting change of level: first index of the new level, levels before and after (medians), and their ratio."""

    index: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after / self.before if self.before > 0 else float("inf")


def level_shift(times: Floats, min_ratio: float | None = None) -> Shift | None:
    """The split of a series into two levels that leaves the least squared error of its logarithm.

    Values are clipped to a factor of 8 around the median first, so that a few long pauses do not draw the split. Only
    an upward shift counts, of at least `min_ratio` between medians, whose quartiles do not overlap.

    >>> level_shift(np.array([1.0] * 10 + [3.0] * 10)).index
    10
    """
    n = len(times)
    if n < MIN_BEFORE + MIN_AFTER:
        return None
    middle = float(np.median(times))
    logs = np.log(np.clip(times, middle / 8, middle * 8))
    total = np.cumsum(logs)
    size = np.arange(1, n)
    mean_before = total[:-1] / size
    mean_after = (total[-1] - total[:-1]) / (n - size)
    gain = size * (n - size) / n * (mean_after - mean_before) ** 2
    allowed = (size >= MIN_BEFORE) & (n - size >= MIN_AFTER) & (mean_after > mean_before)
    if not allowed.any():
        return None
    index = int(size[np.argmax(np.where(allowed, gain, -1.0))])
    before, after = times[:index], times[index:]
    least = min_ratio if min_ratio is not None else MIN_RATIO if n >= FEW else MIN_RATIO_OF_FEW
    shift = Shift(index, float(np.median(before)), float(np.median(after)))
    is_clear = np.quantile(after, 0.25) > np.quantile(before, 0.75)
    return shift if shift.ratio >= least and is_clear else None


def slow_stretch(times: Floats, min_ratio: float = 2.0) -> tuple[int, int, float] | None:
    """The longest run of windows whose median is at least `min_ratio` times the job's fast quarter: (first, end, ratio).

    Catches a slowdown that ends again. None when it covers fewer than `WINDOW` steps.
    """
    if len(times) < 3 * WINDOW:
        return None
    usual = float(np.quantile(times, 0.25))
    rolling = pd.Series(times).rolling(WINDOW).median().to_numpy()[WINDOW - 1 :]
    is_slow = rolling >= min_ratio * usual
    best = (0, 0)
    start = None
    for place, slow in enumerate([*is_slow.tolist(), False]):
        if slow and start is None:
            start = place
        elif not slow and start is not None:
            best = max(best, (place - start, -start))
            start = None
    length, first = best[0], -best[1]
    if length < WINDOW:
        return None
    begin = first + WINDOW // 2
    end = first + length - 1 + WINDOW // 2
    return begin, end, float(np.median(times[begin:end]) / usual)


def pauses(times: Floats, factor: float = 4.0) -> tuple[int, int, float] | None:
    """Long single steps that take a fifth of the time from the first of them on: (first index, number, their share).

    The warm-up is left out.
    """
    if len(times) < MIN_BEFORE + MIN_AFTER:
        return None
    is_long = times > factor * np.median(times)
    is_long[:WARM_UP] = False
    where = np.nonzero(is_long)[0]
    if len(where) < 3:
        return None
    first = int(where[0])
    share = float(times[first:][is_long[first:]].sum() / times[first:].sum())
    return (first, len(where), share) if share >= 0.2 else None


def single_pause(times: Floats, factor: float = 20.0, least_s: float = 3.0, share: float = 0.1) -> int | None:
    """Index of the longest step after the warm-up when it alone is a pause: twenty usual steps, seconds, a tenth of the time."""
    if len(times) < MIN_BEFORE + MIN_AFTER:
        return None
    index = int(np.argmax(times[WARM_UP:])) + WARM_UP
    is_pause = times[index] >= max(factor * float(np.median(times)), least_s) and times[index] >= share * float(times.sum())
    return index if is_pause else None


def overlong_steps(times: pd.DataFrame, factor: float = 4.0) -> list[int]:
    """Numbers of the steps after the warm-up that took at least `factor` times the median, at most the 64 longest."""
    after = times.iloc[WARM_UP:]
    overlong = after[after["step_time_s"] > factor * after["step_time_s"].median()]
    return sorted(int(step) for step in overlong.nlargest(64, "step_time_s")["step"])


def iteration_times(iterations: pd.DataFrame) -> pd.DataFrame:
    """Printed step times for the whole job: `step, started_at, step_time_s`, the median over the ranks that print.

    A line `iteration 45 … 0.4 s` tells of the steps since the line before; `started_at` is when that line was printed.
    """
    known = iterations.dropna(subset=["iteration"])
    if known.empty:
        return pd.DataFrame({"step": [], "started_at": [], "step_time_s": []})
    grouped = known.groupby("iteration", sort=True).agg(at=("occurred_at", "median"), step_time_s=("step_time_s", "median"))
    steps = grouped.index.to_numpy()
    spacing = np.diff(steps, prepend=steps[0])
    elapsed = grouped["at"].diff().to_numpy() / np.where(spacing > 0, spacing, 1)
    measured = grouped["step_time_s"].to_numpy(dtype=float)
    times = np.where(np.isnan(measured), elapsed, measured)
    frame = pd.DataFrame(
        {"step": np.maximum(steps - np.maximum(spacing, 1) + 1, 0), "started_at": grouped["at"].to_numpy(), "step_time_s": times}
    )
    return frame.dropna(subset=["step_time_s"]).reset_index(drop=True)


def slowdown_findings(times: pd.DataFrame) -> list[Finding]:
    """Findings on the job's own step times: a lasting shift, a slow stretch, or many long pauses. They name no place."""
    if times.empty:
        return []
    values = times["step_time_s"].to_numpy(dtype=float)
    shift = level_shift(values)
    if shift is not None:
        return [_slow(times, "step_time_shift", shift.index, shift.ratio,
                      f"steps took {shift.after:.3g} s instead of {shift.before:.3g} s ({shift.ratio:.1f} times)")]  # fmt: skip
    stretch = slow_stretch(values)
    if stretch is not None:
        begin, end, ratio = stretch
        return [_slow(times, "slow_stretch", begin, ratio, f"{end - begin} steps took {ratio:.1f} times as long as the others")]
    one = single_pause(values)
    if one is not None:
        ratio = float(values[one] / np.median(values))
        return [_slow(times, "single_pause", one, ratio, f"one step took {values[one]:.3g} s, {ratio:.0f} times the usual")]
    stops = pauses(values)
    if stops is not None:
        first, number, share = stops
        return [
            _slow(
                times, "step_pauses", first, 1 / (1 - min(share, 0.9)), f"{number} single long steps took {share:.0%} of the time"
            )
        ]
    return []


def _slow(times: pd.DataFrame, kind: str, index: int, ratio: float, words: str) -> Finding:
    row = times.iloc[index]
    score = float(np.clip(0.5 + 0.5 * (ratio - MIN_RATIO) / 1.5, 0.5, 1.0))
    return Finding(
        "operations", "temporal", kind, f"from step {int(row.step)} on, {words}", score, at=float(row.started_at),
        iteration=int(row.step), phase="train", subject="step_time", table="onsets",
    )  # fmt: skip


def non_finite_findings(iterations: pd.DataFrame) -> list[Finding]:
    """The first iteration whose printed loss or gradient norm is not a finite number."""
    found = []
    for column, name in (("loss", "loss"), ("grad_norm", "gradient norm")):
        if column not in iterations or iterations.empty:
            continue
        values = iterations[column].to_numpy(dtype=float)
        is_printed = (
            iterations[f"is_{column}_printed"].to_numpy(dtype=bool)
            if f"is_{column}_printed" in iterations
            else ~np.isnan(values) | False
        )
        bad = iterations[is_printed & ~np.isfinite(values)]
        if len(bad):
            first = bad.sort_values(["iteration", "rank"], kind="stable").iloc[0]
            found.append(
                Finding(
                    "logs",
                    "temporal",
                    "loss_nonfinite",
                    f"the {name} was not finite at iteration {int(first.iteration)}",
                    0.95,
                    at=_number(first.occurred_at),
                    iteration=int(first.iteration),
                    phase="train",
                    subject=column,
                    refs=((str(first.file), int(first.line)),) if "file" in iterations else (),
                    table="onsets",
                )
            )
    return found[:1]


def loss_jump_findings(iterations: pd.DataFrame) -> list[Finding]:
    """A loss that jumped to at least five times its level (median of the ten before), as ByteRobust watches for."""
    if iterations.empty or "loss" not in iterations:
        return []
    series = iterations.groupby("iteration", sort=True)["loss"].median()
    values = series.to_numpy(dtype=float)
    for place in range(5, len(values)):
        before = values[max(0, place - WINDOW) : place]
        level = float(np.median(before[np.isfinite(before)])) if np.isfinite(before).any() else 0.0
        if np.isfinite(values[place]) and level > 0 and values[place] >= 5 * level:
            step = int(series.index[place])
            return [
                Finding(
                    "logs",
                    "temporal",
                    "loss_jump",
                    f"the loss jumped from {level:.4g} to {values[place]:.4g} at iteration {step}",
                    0.7,
                    iteration=step,
                    phase="train",
                    subject="loss",
                    table="onsets",
                )
            ]
    return []


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
