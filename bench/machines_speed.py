"""Speed of scoring one job, beside pairwise numpy in the same run: `python -m bench.machines_speed`.

1,024 machines × 12 metrics × 1 hour at 1 s. Pairwise methods are timed on some windows of the same data and scaled to all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np

from ml.machines.evidence import measure
from ml.machines.joint import LAGS, N_HIDDEN, Companion
from ml.machines.kernel import closed_scores, fused_scores, minder_scores, pairwise_scores
from ml.machines.levels import Levels
from ml.machines.model import fallback
from ml.machines.score import compare, compare_together, ratios
from ml.machines.series import Series
from ml.machines.windows import FILTER_POINTS, required_continuity_s

Array = np.ndarray
POINTS = 3600
METRICS = 12
WIDTH = FILTER_POINTS
STEP = 1
SEED = 3
MOST_PAIRWISE = 2048
"""Machines beyond which pairs are not timed: sixteen times the cost of a quarter of them."""


def job(n_machines: int, n_points: int = POINTS) -> tuple[Array, int, int, int]:
    """One metric of a job: a common course, offsets and noise; one machine shifted by two sd for ten minutes."""
    draw = np.random.default_rng(SEED + n_machines)
    common = np.cumsum(draw.standard_normal(n_points)) * 0.05
    values = common + 0.3 * draw.standard_normal((n_machines, 1)) + draw.standard_normal((n_machines, n_points))
    odd, start, length = n_machines // 3, n_points // 2, 600
    values[odd, start : start + length] += 2.0 * values.std()
    return values.astype(np.float32), odd, start, length


def basis() -> Array:
    """Three smooth directions of an eight-sample window: mean, slope, curvature."""
    grid = np.linspace(-1, 1, WIDTH)
    return np.linalg.qr(np.vander(grid, 3, increasing=True))[0].T.astype(np.float32)


def cpu_s(call: Callable[[], object], repeats: int = 3) -> float:
    """Median CPU seconds of a call."""
    seen = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        seen.append(time.process_time() - began)
    return float(np.median(seen))


def ours(values: Array) -> tuple[Array, Array]:
    """The project's path for one metric: bins, five aspects, all window lengths, thresholds. Strength a bin."""
    evidence = measure(values, 1.0, None)
    found = ratios(evidence, fallback("metric", None), np.zeros(len(values), dtype=bool))
    strength = np.max([own for each, own in found if each.aspect in ("level", "change")], axis=0)
    return strength.argmax(axis=0), strength.max(axis=0)


def series_of(values: Array, metric: str = "metric") -> list[Series]:
    """A metric as the stage reads it from its rows."""
    return [Series(f"n{row:05d}", None, metric, None, 0, 1.0, own) for row, own in enumerate(values.astype(np.float64))]


def joint(values: Array) -> Callable[[], object]:
    """All metrics of the job held against what their companions (of no meaning, of the right shape) let expect."""
    names = tuple(f"m{number:02d}" for number in range(METRICS))
    (own,) = compare(series_of(values), {}, {}).levels
    levels = [Levels(name, None, "", own.nodes, 0, own.bin_s, own.lengths_s, own.floor, own.values) for name in names]
    draw = np.random.default_rng(SEED)
    n_inputs = 2 * len(LAGS) * (METRICS - 1) + 1
    hidden = tuple(tuple(row) for row in (0.02 * draw.normal(size=(n_inputs, N_HIDDEN))).tolist())
    zeros = (0.0,) * N_HIDDEN
    models = {}
    for name in names:
        others = tuple(other for other in names if other != name)
        made = Companion(others, (-6.0,) * n_inputs, (6.0,) * n_inputs, hidden, zeros, zeros, 0.0)
        models[name] = replace(fallback(name, None), companion=asdict(made))
    return lambda: compare_together(levels, models)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--windows", type=int, default=24)
    given = parser.parse_args()
    print("| machines | pairwise distances (Minder) | pairwise squared | closed form, numpy | fused pass | times pairwise | GB/s | differences and thresholds | times pairwise | stage's function | times pairwise | companions |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    agreement = []
    vectors = basis()
    for n in given.machines:
        values, odd, start, length = job(n)
        turned = np.ascontiguousarray(values.T)
        fused_scores(turned[:64], WIDTH, STEP, vectors)
        ours(values)
        n_windows = (POINTS - WIDTH) // STEP + 1
        share = n_windows / given.windows * METRICS
        few = values[:, start : start + WIDTH + given.windows - 1]
        is_paired = n <= MOST_PAIRWISE
        minder = cpu_s(lambda v=few: minder_scores(v, WIDTH, STEP, vectors)) * share if is_paired else float("nan")
        pairs = cpu_s(lambda v=few: pairwise_scores(v, WIDTH, STEP, vectors)) * share if is_paired else float("nan")
        closed = cpu_s(lambda v=values: closed_scores(v, WIDTH, STEP, vectors)) * METRICS
        fused = cpu_s(lambda v=turned: fused_scores(v, WIDTH, STEP, vectors)) * METRICS
        whole = cpu_s(lambda v=values: ours(v)) * METRICS
        rows = series_of(values)
        stage = cpu_s(lambda r=rows: compare(r, {}, {}), 9) * METRICS
        beside = joint(values)
        beside()
        companions = cpu_s(beside)
        rate = values.nbytes * METRICS / fused / 1e9
        line = (f"| {n} | {minder:.1f} s | {pairs:.1f} s | {closed:.2f} s | {fused:.3f} s | **{minder / fused:.0f}** | {rate:.2f} | "
                f"{whole:.2f} s | **{minder / whole:.0f}** | {stage:.2f} s | **{minder / stage:.0f}** | {companions:.2f} s |")  # fmt: skip
        print(line.replace("**nan**", "–").replace("nan s", "–"), flush=True)
        if not is_paired:
            continue
        agreement.append(f"| {n} | " + " | ".join(_top_one(values, turned, odd, start, length, vectors)) + " |")
    print()
    print("Top machine right, of windows inside the fault (single windows; the whole path: bins from the required continuity on):")
    print()
    print("| machines | pairwise distances (Minder) | closed form | fused pass | whole path |")
    print("|---|---|---|---|---|")
    print("\n".join(agreement))


def _top_one(values: Array, turned: Array, odd: int, start: int, length: int, vectors: Array) -> list[str]:
    few = slice(start, start + 200)
    exact = minder_scores(values[:, few], WIDTH, STEP, vectors)[0]
    closed = closed_scores(values[:, few], WIDTH, STEP, vectors)[0]
    fused = fused_scores(np.ascontiguousarray(turned[few]), WIDTH, STEP, vectors)[0]
    mine = ours(values)[0]
    bin_s = POINTS / len(mine)
    settled = slice(int((start + required_continuity_s(POINTS, 1.0)) / bin_s) + 1, int((start + length) / bin_s))
    return [f"{np.mean(top == odd):.4f}" for top in (exact, closed, fused, mine[settled])]


if __name__ == "__main__":
    main()
