"""`fleetdiff flight-recorder DIR`: which ranks are missing from, or disagree in, which collective."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

SHOWN = 12


@click.command(name="flight-recorder", short_help="Ranks that others wait for, from flight-recorder dumps.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(folder: Path, as_json: bool) -> None:
    """Match the flight-recorder dumps below DIR, one a rank, and name the ranks that the others wait for.

    Dumps are PyTorch's own, pickled or JSON, named …_RANK. Nothing in them is executed.
    """
    from jobs.collectives.dumps import read_folder
    from ml.collectives.verdict import judge

    entries, problems = read_folder(folder)
    found = answer(judge(entries), problems)
    click.echo(json.dumps(found) if as_json else page(found), nl=True)


def answer(verdict: Any, problems: list[str]) -> dict[str, Any]:
    """The answer as contracts.md has it, with `suspects` (why each rank is named) and where each collective was called."""
    return {
        "n_ranks": verdict.n_ranks,
        "faulty_ranks": verdict.faulty_ranks,
        "syndrome": str(verdict.syndrome),
        "suspects": [
            {"rank": s.rank, "score": round(s.score, 3), "reason": str(s.reason), "statement": s.statement}
            for s in verdict.suspects
        ],
        "collectives": [
            {
                "group": one.group.name,
                "group_ranks": list(one.group.ranks),
                "sequence": one.sequence,
                "op": one.op,
                "missing_ranks": sorted({*one.missing, *one.undumped}),
                "waiting_ranks": list(one.present),
                "mismatches": [{"rank": m.rank, "field": m.field, "this": m.this, "others": m.others} for m in one.mismatches],
                "frame": one.frame or None,
            }
            for one in verdict.collectives
        ],
        "problems": problems,
    }


def page(found: dict[str, Any]) -> str:
    """The answer for people."""
    from ml.collectives.ranks import compressed

    lines = [f"{found['n_ranks']} ranks, {found['syndrome'].replace('_', ' ')}"]
    lines += [f"  rank {s['rank']:<6} {s['score']:.2f}  {s['statement']}" for s in found["suspects"][:SHOWN]]
    if not found["suspects"]:
        lines.append("  no rank stands out")
    if found["collectives"]:
        lines.append("collectives that are not over, or in which ranks disagree:")
    for one in found["collectives"][:SHOWN]:
        missing = f"missing {compressed(one['missing_ranks'])}" if one["missing_ranks"] else "nobody missing"
        where = f"  at {one['frame']}" if one["frame"] else ""
        waiting = compressed(one["waiting_ranks"])
        lines.append(f"  {one['group']} #{one['sequence']} {one['op']}: {missing}, waiting {waiting}{where}")
        lines += [f"    rank {m['rank']}: {m['field']} {m['this']}, others {m['others']}" for m in one["mismatches"][:4]]
    more = len(found["collectives"]) - SHOWN
    lines += [f"  … {more} more"] if more > 0 else []
    lines += [f"problem: {text}" for text in found["problems"]]
    return "\n".join(lines)
