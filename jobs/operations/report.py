"""The row of straggler_reports: what slowness cost one job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ml.operations.job import JobOperations
from ml.operations.step_times import StepTimes, gpu_hours
from ml.stragglers.trace import Layout
from ml.stragglers.whatif import WhatIf, analyse
from ml.stragglers.words import CODE, TraceError

MOST_WORKERS = 32
MOST_STEPS = 10_000


def report_row(
    job_id: str,
    source: str | None,
    rows: pd.DataFrame,
    found: JobOperations | None,
    times: StepTimes | None,
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """The report of one job from its operations (`rows`, of one source), their analysis, and its step times."""
    result, refused = (found.what_if, found.refused) if found else (None, "no operations were recorded")
    worker_ranks: Sequence[int] | None = found.ranks if found else None
    if source == "whatif":
        result, refused = _recorded_what_if(rows, known)
        worker_ranks = None
    n_gpus = known.get("n_gpus") or known.get("world_size") or len(known.get("ranks") or []) or None
    hours = _gpu_hours(known, times, n_gpus)
    n_ranks = len(known.get("ranks") or [])
    n_recorded = int(rows["rank"].nunique()) if len(rows) else 0
    return {
        "job_id": job_id,
        "method": source or None,
        "refused": None if result else refused,
        "rank_coverage": min(1.0, n_recorded / n_ranks) if n_ranks and source != "whatif" else None,
        "n_gpus": n_gpus,
        "gpu_hours": hours,
        "notes": [*(found.notes if found else ()), *(result.notes if result else ())],
        **_simulated(result, worker_ranks, hours),
        **_measured(times, n_gpus),
    }


def _recorded_what_if(rows: pd.DataFrame, known: Mapping[str, Any]) -> tuple[WhatIf | None, str | None]:
    """The analysis of a recorded trace; its layout is the configured one, else the one that its ranks show."""
    name_codes, names = pd.factorize(rows["name"])
    known_codes = np.array([CODE.get(str(name), -1) for name in names], dtype=np.int64)  # type: ignore[call-overload]
    columns = {
        "dp_rank": rows["dp_rank"].fillna(-1).to_numpy(np.int64),
        "stage": rows["stage"].fillna(-1).to_numpy(np.int64),
        "step": rows["step"].fillna(-1).to_numpy(np.int64),
        "optype": known_codes[name_codes],
        "start_ts": rows["started_us"].to_numpy(np.float64) / 1e6,
        "duration": rows["duration_us"].to_numpy(np.float64) / 1e6,
        "seq_id": rows["sequence"].fillna(0).to_numpy(np.int64),
        "mc": rows["group"].fillna("-1").astype(str).str.extract(r"(-?\d+)$")[0].fillna("-1").to_numpy(np.int64),
        "mb_id": rows["micro_batch"].fillna(-1).to_numpy(np.int64),
    }
    config = {key.lower(): value for key, value in dict(known.get("config") or []).items()}
    vpp = _configured(config, ("vpp_size", "virtual_pipeline_size", "vpp")) or int(columns["mc"].max(initial=0)) + 1
    dp, pp = int(columns["dp_rank"].max()) + 1, int(columns["stage"].max()) + 1
    world = known.get("world_size")
    if world and dp > 0 and pp > 0 and world % (dp * pp):
        return None, f"the trace shows dp {dp} x pp {pp}, which does not divide the world size {world}"
    layout = Layout(dp, pp, vpp_size=vpp)
    try:
        return analyse(columns, layout), None
    except TraceError as error:
        return None, str(error)


def _configured(config: Mapping[str, str], words: Sequence[str]) -> int | None:
    for key in sorted(config):
        if key.rsplit(".", 1)[-1] in words and str(config[key]).isdigit():
            return int(config[key])
    return None


def _gpu_hours(known: Mapping[str, Any], times: StepTimes | None, n_gpus: int | None) -> float | None:
    if not n_gpus:
        return None
    started, ended = known.get("started_at"), known.get("ended_at")
    if started and ended and ended >= started:
        return gpu_hours((ended - started).total_seconds(), n_gpus)
    return gpu_hours(times.typical_s * times.n_steps, n_gpus) if times else None


def _simulated(result: WhatIf | None, ranks: Sequence[int] | None, hours: float | None) -> dict[str, Any]:
    if result is None:
        return {}
    named = {w.dp_rank: (ranks[w.dp_rank] if ranks else None) for w in result.workers}
    workers = [
        {"rank": named[w.dp_rank], "dp_rank": w.dp_rank, "stage": w.stage, "slowdown": w.slowdown}
        for w in result.workers[:MOST_WORKERS]
    ]
    return {
        "slowdown": result.slowdown,
        "waste": result.waste,
        "step_time_s": result.t_s,
        "ideal_step_time_s": result.t_ideal_s,
        "launch_slowdown": result.launch_slowdown,
        "is_faithful": result.is_faithful,
        "by_type": list(result.by_type.items()),
        "by_dp_rank": [(str(named[dp] if ranks else dp), value) for dp, value in result.by_dp_rank.items()],
        "by_stage": [(str(stage), value) for stage, value in result.by_stage.items()],
        "workers": workers,
        "worst_workers_share": _known(result.worst.share),
        "last_stage_share": _known(result.last_stage.share),
        "step_slowdown": list(result.step_slowdown[:MOST_STEPS]),
        "sequence_correlation": [(str(stage), _known(r)) for stage, r in result.sequence_correlation.items()],
        "cause": result.cause.value,
        "gpu_hours_wasted": None if hours is None else max(0.0, result.waste) * hours,
    }


def _measured(times: StepTimes | None, n_gpus: int | None) -> dict[str, Any]:
    if times is None:
        return {}
    return {
        "n_steps": times.n_steps,
        "typical_step_time_s": times.typical_s,
        "best_step_time_s": times.best_s,
        "last_step_time_s": times.last_s,
        "own_slowdown": times.slowdown,
        "baseline_step_time_s": _known(times.baseline_s),
        "baseline_slowdown": _known(times.baseline_slowdown),
        "is_degraded": times.is_degraded,
        "slow_from_iteration": times.onset,
        "periods": [
            {"first": p.first, "last": p.last, "step_time_s": p.step_time_s, "slowdown": p.slowdown} for p in times.periods
        ],
        "gpu_hours_degraded": gpu_hours(times.lost_s, n_gpus) if n_gpus else None,
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
