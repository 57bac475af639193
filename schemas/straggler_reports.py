"""What slowness cost each job: the straggler what-if, and its step times against its own best and its baselines."""

import pyarrow as pa

from schemas.columns import JOB_ID
from schemas.contract import STRINGS, Check, Column, Layer, Table

CAUSES = ("worker", "stage", "sequence", "none")
SHARES = pa.map_(pa.string(), pa.float64())
WORKERS = pa.list_(
    pa.struct(
        [
            pa.field("rank", pa.int32()),
            pa.field("dp_rank", pa.int32()),
            pa.field("stage", pa.int32()),
            pa.field("slowdown", pa.float64()),
        ]
    )
)
PERIODS = pa.list_(
    pa.struct(
        [
            pa.field("first", pa.int64()),
            pa.field("last", pa.int64()),
            pa.field("step_time_s", pa.float64()),
            pa.field("slowdown", pa.float64()),
        ]
    )
)

TABLE = Table(
    name="straggler_reports",
    layer=Layer.GOLD,
    row="one job with operations or printed step times",
    columns=(
        JOB_ID,
        Column("method", pa.string(), "what the what-if ran on", one_of=("whatif", "timeline", "kineto")),
        Column("slowdown", pa.float64(), "S: simulated step time over that without stragglers; null when not simulated", minimum=0),
        Column("waste", pa.float64(), "1 - 1/S"),
        Column("step_time_s", pa.float64(), "T: mean simulated step time", minimum=0),
        Column("ideal_step_time_s", pa.float64(), "T without stragglers", minimum=0),
        Column("launch_slowdown", pa.float64(), "recorded step time over the simulated one", minimum=0),
        Column("is_faithful", pa.bool_(), "the simulation reproduces the recorded steps within 5 %"),
        Column("by_type", SHARES, "S_t: step time when only this operation type keeps its durations, over the ideal"),
        Column("by_dp_rank", SHARES, "S_dp, by data-parallel rank (in jobs without a pipeline: by rank)"),
        Column("by_stage", SHARES, "S_pp, by pipeline stage"),
        Column("workers", WORKERS, "S_w of the slowest workers, at most 32, the slowest first"),
        Column("worst_workers_share", pa.float64(), "M_W: share of the slowdown that the worst 3 % of workers explain; not clamped"),
        Column("last_stage_share", pa.float64(), "M_S: share that the last stage explains; not clamped"),
        Column("step_slowdown", pa.list_(pa.float64()), "slowdown of each simulated step, in order"),
        Column("sequence_correlation", SHARES, "correlation of forward and backward time of a micro-batch, by stage"),
        Column("cause", pa.string(), "by a fixed rule on the figures above", one_of=CAUSES),
        Column("refused", pa.string(), "why there is no what-if; null when there is one"),
        Column("n_steps", pa.int64(), "steps with a known time, start-up left out", minimum=0),
        Column("typical_step_time_s", pa.float64(), "median step time", minimum=0),
        Column("best_step_time_s", pa.float64(), "the lowest lasting level of the step time", minimum=0),
        Column("last_step_time_s", pa.float64(), "median of the last 50 steps", minimum=0),
        Column("own_slowdown", pa.float64(), "last over best", minimum=0),
        Column("baseline_step_time_s", pa.float64(), "median typical step time of the baselines", minimum=0),
        Column("baseline_slowdown", pa.float64(), "typical step time over that of the baselines", minimum=0),
        Column("is_degraded", pa.bool_(), "5 % or more slower than its own best or than its baselines"),
        Column("slow_from_iteration", pa.int64(), "step from which a slower level lasts", minimum=0),
        Column("periods", PERIODS, "levels of the step time, in order"),
        Column("n_gpus", pa.int32(), "accelerators, or ranks where unknown", minimum=0),
        Column("gpu_hours", pa.float64(), "accelerators times run time; of the known steps where the run time is unknown", minimum=0),
        Column("gpu_hours_wasted", pa.float64(), "waste times gpu_hours: what stragglers cost, never below 0", minimum=0),
        Column("gpu_hours_degraded", pa.float64(), "time beyond the job's own best level, in GPU-hours", minimum=0),
        Column("rank_coverage", pa.float64(), "share of the job's ranks with operations", minimum=0, maximum=1),
        Column("notes", STRINGS, "what was repaired or left out, in sentences", nullable=False),
    ),
    key=("job_id",),
    replaced_by="job_id",
    checks=(Check("simulated_or_refused", "(slowdown IS NULL) = (refused IS NOT NULL)"),),
)  # fmt: skip
