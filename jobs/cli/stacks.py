"""`fleetdiff stacks DIR`: merge stack files; paths with their ranks, who waits, and whom they wait for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ml.stacks.samples import Sample, Snapshot

SHOWN = 200


@click.command(name="stacks", short_help="Who waits and who blocks, from stack files.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the merged stacks into this file.")
@click.option("--snapshot", "tag", help="Which snapshot to draw and print, by its tag; the last one if not given.")
def command(folder: Path, as_json: bool, svg: Path | None, tag: str | None) -> None:
    """Merge the stack files below DIR: py-spy, pystack, DeepTrace, Probing, faulthandler, gdb, folded, speedscope.

    Every path is printed with the ranks that are in it and those that are not, in FLAME's notation: @has|missing.
    """
    from jobs.stacks.folder import read_folder
    from ml.stacks.samples import snapshots_of

    samples, problems = read_folder(folder)
    snapshots = snapshots_of(samples)
    chosen = _chosen(snapshots, tag)
    found = answer(samples, snapshots, chosen, problems)
    if svg is not None and chosen is not None:
        _draw(svg, chosen, snapshots)
    click.echo(json.dumps(found) if as_json else page(found))


def _chosen(snapshots: list[Snapshot], tag: str | None) -> Snapshot | None:
    from jobs.core.errors import NotFoundError

    if tag is None:
        most = max((len(s.mains) for s in snapshots), default=0)
        # The last one in which most ranks are: samplers are stopped half-way when a job ends.
        return next((s for s in reversed(snapshots) if len(s.mains) * 2 >= most), None)
    named = [s for s in snapshots if s.tag == tag]
    if not named:
        raise NotFoundError(f"{tag}: no such snapshot; there are {', '.join(s.tag or '(no tag)' for s in snapshots)}")
    return named[-1]


def _draw(svg: Path, snapshot: Snapshot, snapshots: list[Snapshot]) -> None:
    from jobs.core.errors import FleetdiffError
    from ml.stacks.icicle import icicle
    from ml.stacks.merged import main_trie

    try:
        svg.write_text(icicle(main_trie(snapshot, _trainers(snapshots)), f"Merged stacks {snapshot.tag}".strip()), encoding="utf-8")
    except OSError as error:
        raise FleetdiffError(f"{svg}: cannot be written: {error.strerror}") from None


def _trainers(snapshots: list[Snapshot]) -> set[int]:
    return {rank for snapshot in snapshots for rank in snapshot.trainers()}


def answer(samples: list[Sample], snapshots: list[Snapshot], chosen: Snapshot | None, problems: list[str]) -> dict[str, Any]:
    """The answer: ranks, snapshots, merged paths, findings, problems, and folded text of the chosen snapshot."""
    from ml.stacks.findings import findings
    from ml.stacks.merged import everyone, main_trie, tries_of
    from ml.stacks.trie import folded

    return {
        "n_ranks": len({s.rank for s in samples if s.rank is not None}),
        "snapshots": [{"tag": s.tag, "at": _iso(s.at), "n_ranks": len({key[1] for key in s.mains})} for s in snapshots],
        "paths": [
            {
                "snapshot": snapshot.tag, "process_type": kind, "path": list(node.path), "has_ranks": list(node.has_ranks),
                "missing_ranks": list(node.missing_ranks), "n": node.n, "is_leaf": node.is_leaf,
            }
            for snapshot in ([chosen] if chosen else [])
            for kind, trie in tries_of(snapshot, everyone(snapshots)).items()
            for node in trie.nodes
        ],
        "findings": [
            {
                "kind": f.kind, "axis": f.axis, "score": f.score, "nodes": list(f.nodes), "ranks": list(f.ranks),
                "group_kind": f.group_kind, "is_echo": f.is_echo, "is_global": f.is_global, "statement": f.statement,
                "path": list(f.path), "files": list(f.files), "duration_s": f.duration_s,
            }
            for f in findings(samples)
        ],
        "problems": problems,
        "folded": folded(main_trie(chosen, _trainers(snapshots))) if chosen else "",
        "snapshot": chosen.tag if chosen else None,
    }  # fmt: skip


def _iso(at: float | None) -> str | None:
    from datetime import UTC, datetime

    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def page(found: dict[str, Any]) -> str:
    """The answer for people: findings first, then the paths of the chosen snapshot as an indented tree."""
    from ml.collectives.ranks import notation

    tags = ", ".join(s["tag"] or "(no tag)" for s in found["snapshots"])
    lines = [f"{found['n_ranks']} ranks, {len(found['snapshots'])} snapshots: {tags}"]
    lines += [f"  {f['score']:.2f}  {f['statement']}" for f in found["findings"]]
    if not found["findings"]:
        lines.append("  no rank stands out and nothing says that the job stood still")
    lines.append(f"merged stacks of {found['snapshot'] or 'all files'}, ranks in a path | ranks not in it:")
    for node in found["paths"][:SHOWN]:
        depth = len(node["path"]) - 1
        kind = f"{node['process_type']}: " if depth == 0 else ""
        lines.append(f"  {'  ' * depth}{kind}{node['path'][-1]} {notation(node['has_ranks'], node['missing_ranks'])}")
    if len(found["paths"]) > SHOWN:
        lines.append(f"  … {len(found['paths']) - SHOWN} more nodes; --json has all, --svg draws them")
    lines += [f"problem: {text}" for text in found["problems"]]
    return "\n".join(lines)
