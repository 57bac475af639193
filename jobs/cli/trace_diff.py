"""`fleetdiff trace-diff`: which operations a test trace has more of, less of, or slower than a base trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ml.operations.diff import OperationDiff, Profile

_LAYERS = ("gpu", "collective", "host", "python")


@click.command("trace-diff", short_help="Compare the operations of two traces.")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("test", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the difference as JSON.")
@click.option("--layer", type=click.Choice(_LAYERS), help="Only operations of this layer.")
@click.option("--top", default=20, show_default=True, help="Operations to print (all with --json).")
def command(base: Path, test: Path, as_json: bool, layer: str | None, top: int) -> None:
    """Compare the operations of two traces (Kineto, or time lines), calls and time by operation."""
    from ml.operations.diff import compare

    before, after = _profile(base), _profile(test)
    found = [d for d in compare(before, after) if layer is None or d.layer == layer]
    absent = [name for name in _LAYERS if name in (layer, *(() if layer else _LAYERS)) and not any(d.layer == name for d in found)]
    if as_json:
        document = {"operations": [_document(d) for d in found], "absent_layers": absent}
        click.echo(json.dumps(document, allow_nan=False))
        return
    changed = [d for d in found if d.status.value != "same"]
    for diff in changed[:top]:
        click.echo(
            f"{diff.status.value:<8} {diff.layer:<10} {diff.seconds * 1e3:>+12.3f} ms  "
            f"{diff.base.n_calls:.0f} -> {diff.test.n_calls:.0f} calls  {_plain(diff.name)}"
        )
    click.echo(f"{len(changed)} of {len(found)} operations differ" + (f"; {top} shown" if len(changed) > top else ""))
    for name in absent:
        click.echo(f"neither trace holds an operation of the {name} layer: nothing can be said about it")


def _profile(path: Path) -> Profile:
    """Calls and seconds of every operation of one trace, by layer and name; profiler steps are left out."""
    from jobs.adapters.base import Adapter, FileContext, Problem, Rows
    from jobs.adapters.operations_kineto import KinetoAdapter
    from jobs.adapters.operations_timeline import TimelineAdapter
    from jobs.adapters.streams import Decompressed, peek
    from jobs.core.errors import FleetdiffError, NotFoundError
    from ml.operations.diff import Usage

    if not path.is_file():
        raise NotFoundError(f"{path}: no such file; give a Kineto trace or a time line")
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    refused: list[Problem] = []
    with path.open("rb") as raw:
        head, stream = peek(Decompressed(raw))  # type: ignore[arg-type]
        readers: tuple[Adapter, ...] = (KinetoAdapter(), TimelineAdapter())
        adapter = max(readers, key=lambda a: a.sniff(path.name, head))
        if adapter.sniff(path.name, head) < 0.3:
            raise FleetdiffError(f"{path}: neither a Kineto trace nor a time line; give one of these")
        for found in adapter.parse(stream, FileContext("", path.name)):
            if isinstance(found, Problem) and found.n_records:
                refused.append(found)
            if isinstance(found, Rows):
                columns = found.columns
                for layer, name, kind, n, us in zip(*(columns[c] for c in ("layer", "name", "kind", "n_calls", "duration_us"))):
                    if kind != "step":
                        calls, seconds = sums.get((layer, name), (0.0, 0.0))
                        sums[layer, name] = (calls + n, seconds + us / 1e6)
    if refused:
        click.echo(f"{path}: {sum(p.n_records for p in refused)} records could not be used ({_plain(refused[0].detail)})", err=True)
    if not sums:
        raise FleetdiffError(f"{path}: no operation in it")
    return {key: Usage(calls, seconds) for key, (calls, seconds) in sums.items()}


def _document(diff: OperationDiff) -> dict[str, Any]:
    return {
        "layer": diff.layer,
        "name": diff.name,
        "status": diff.status.value,
        "base": {"n_calls": diff.base.n_calls, "seconds": diff.base.seconds},
        "test": {"n_calls": diff.test.n_calls, "seconds": diff.test.seconds},
        "seconds": diff.seconds,
        "ratio": diff.ratio,
    }


def _plain(text: str) -> str:
    """Names come from files: nothing that steers a terminal is printed."""
    return "".join(character if character.isprintable() else "?" for character in text)[:160]
