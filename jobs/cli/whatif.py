"""`fleetdiff whatif`: how much a job loses to stragglers, and to which."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ml.stragglers.whatif import WhatIf


@click.command("whatif", short_help="What stragglers cost, from an operation time line.")
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("meta", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(trace: Path, meta: Path, as_json: bool) -> None:
    """Straggler what-if analysis of one operation time line (TRACE, parquet) with its layout (META, YAML)."""
    from jobs.adapters.operations_whatif import read_columns, read_layout
    from jobs.core.errors import FleetdiffError
    from ml.stragglers.whatif import analyse
    from ml.stragglers.words import TraceError

    layout = read_layout(meta)
    columns = read_columns(trace)
    try:
        result = analyse(columns, layout)
    except TraceError as error:
        raise FleetdiffError(f"{trace}: {error}") from None
    click.echo(json.dumps(as_document(result), allow_nan=False) if as_json else as_text(result))


def as_document(result: WhatIf) -> dict[str, Any]:
    """The result in the words of the JSON contract; numbers that do not exist are null."""
    document: dict[str, Any] = {
        "S": result.slowdown,
        "waste": result.waste,
        "T": result.t_s,
        "T_ideal": result.t_ideal_s,
        "S_t": result.by_type,
        "S_dp": {str(rank): value for rank, value in result.by_dp_rank.items()},
        "S_pp": {str(stage): value for stage, value in result.by_stage.items()},
        "S_w": [{"dp_rank": w.dp_rank, "stage": w.stage, "S_w": w.slowdown} for w in result.workers],
        "M_W": result.worst.share,
        "M_S": result.last_stage.share,
        "launch_slowdown": result.launch_slowdown,
        "step_slowdown": list(result.step_slowdown),
        "sequence_correlation": {str(stage): r for stage, r in result.sequence_correlation.items()},
        "cause": result.cause.value,
        "T_recorded": result.t_recorded_s,
        "is_faithful": result.is_faithful,
        "steps": list(result.steps),
        "worst_workers": {
            "T_rem": result.worst.t_rem_s,
            "T_add": result.worst.t_add_s,
            "add": result.worst.share_added,
        },
        "last_stage": {
            "T_rem": result.last_stage.t_rem_s,
            "T_add": result.last_stage.t_add_s,
            "add": result.last_stage.share_added,
        },
        "notes": list(result.notes),
    }
    return {key: _finite(value) for key, value in document.items()}


def as_text(result: WhatIf) -> str:
    """The result for people."""
    lines = [
        f"slowdown S        {result.slowdown:.4f}",
        f"time of a step    {result.t_s:.3f} s, {result.t_ideal_s:.3f} s without stragglers",
        f"waste             {100 * result.waste:.1f} % of the time",
        f"cause             {result.cause.value}",
        f"worst workers     3 % of them explain {_share(result.worst.share)} (M_W)",
        f"last stage        explains {_share(result.last_stage.share)} (M_S)",
        f"simulation        recorded steps take {result.launch_slowdown:.4f} times the simulated ones",
        "slowest workers   " + ", ".join(f"dp {w.dp_rank} stage {w.stage}: {w.slowdown:.4f}" for w in result.workers[:5]),
        "by operation      " + _ranked(result.by_type),
        "by stage          " + _ranked(result.by_stage),
        "by dp rank        " + _ranked(result.by_dp_rank, 5),
        "forward-backward correlation by stage: "
        + ", ".join(f"{stage}: {r:.3f}" for stage, r in result.sequence_correlation.items()),
        *(f"note              {note}" for note in result.notes),
    ]
    return "\n".join(lines)


def _ranked(values: dict[Any, float], most: int = 20) -> str:
    ranked = sorted(values.items(), key=lambda item: (-item[1], str(item[0])))
    rest = f" … and {len(ranked) - most} more" if len(ranked) > most else ""
    return ", ".join(f"{key}: {value:.4f}" for key, value in ranked[:most]) + rest


def _share(share: float) -> str:
    return "nothing" if math.isnan(share) else f"{100 * share:.1f} %"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value
