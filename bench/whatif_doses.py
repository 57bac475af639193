"""Injected slowdowns: what is found and placed, by dose, in copies of healthy time lines of the lab.

    python bench/whatif_doses.py ../shared/data/lab [--quick] [--quiet] [--only WORDS]

Work of the chosen ranks takes (1 + dose) times as long from the middle of the run on; everything is then replayed:
the others wait at the next collective of their group, and transfers keep their length. `found` counts runs with a
finding that accuses (score >= 0.5), `right` those whose first accusation is the injected place, `first` those in which
the strongest spatial finding, whatever its score, is the injected place, `wrong` those that accuse another place.
The lab's hosts share two cores, so its steps are far noisier than those of machines of their own; `--quiet` first takes
nine tenths of the deviation of each piece of work from its median out.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from jobs.adapters.base import FileContext, Placement, Rows
from jobs.adapters.operations_timeline import TimelineAdapter
from ml.operations.job import Place, analyse_job

DOSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
ACCUSES = 0.5


@dataclass(frozen=True)
class Job:
    operations: pd.DataFrame
    place: Place


def load(folder: Path) -> Job:
    record = json.loads((folder / "job.json").read_text())
    placements = tuple(Placement(r["rank"], r["node"]) for r in record["ranks"])
    parts = []
    for path in sorted((folder / "traces").glob("timeline_rank*.jsonl")):
        with path.open("rb") as stream:
            found = TimelineAdapter().parse(stream, FileContext("j", f"traces/{path.name}", placements=placements))
            parts += [pd.DataFrame(dict(rows.columns)) for rows in found if isinstance(rows, Rows)]
    ranks = record["ranks"]
    place = Place(
        {r["rank"]: r["node"] for r in ranks}, {r["rank"]: r["role"] for r in ranks}, {r["rank"]: r["groups"] for r in ranks}
    )
    return Job(pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(), place)


class Replay:
    """One rank's time in pieces: work of an operation, work between operations, or a collective."""

    def __init__(self, job: Job) -> None:
        self.job = job
        ops = job.operations.sort_values(["rank", "started_us", "duration_us"], ascending=[True, True, False], kind="stable")
        self.ops = ops.reset_index(drop=True)
        self.pieces = {rank: self._pieces(part) for rank, part in self.ops.groupby("rank")}
        self.members = {}

    def _pieces(self, part):
        """(start, end, operation index or -1, is collective), in order, without gaps or overlaps."""
        marks = []
        for i, start, length in zip(part.index, part["started_us"], part["duration_us"]):
            marks += [(start, 1, -length, i), (start + length, 0, length, i)]
        marks.sort()
        pieces, stack, now = [], [], None
        for at, is_start, _, i in marks:
            if now is not None and at > now:
                pieces.append((now, at, stack[-1] if stack else -1))
            stack.append(i) if is_start else stack.remove(i)
            now = at
        return pieces

    def group(self, rank, name):
        word = name.split("-")[0]
        groups = self.job.place.groups[rank]
        return tuple(groups[word]) if word in groups else tuple(sorted(self.job.place.groups))

    def play(self, factor) -> pd.DataFrame:
        """Operations with work stretched by factor(rank, step, name); step of unrecorded time is that of the next operation."""
        name, step = self.ops["name"].to_numpy(), self.ops["step"].to_numpy()
        is_shared = (self.ops["kind"] == "collective").to_numpy()
        end_of = self.ops["started_us"] + self.ops["duration_us"]
        latest: dict = defaultdict(float)
        for i in np.flatnonzero(is_shared):
            key = (self.group(self.ops["rank"][i], name[i]), name[i], step[i], self.ops["sequence"][i])
            latest[key] = max(latest[key], self.ops["started_us"][i])
        new_start, new_end = np.full(len(self.ops), np.nan), np.full(len(self.ops), np.nan)
        now = {rank: pieces[0][0] for rank, pieces in self.pieces.items()}
        at = dict.fromkeys(self.pieces, 0)
        arrived: dict = defaultdict(dict)
        following = {rank: self._steps_ahead(pieces, step) for rank, pieces in self.pieces.items()}
        moved = True
        while moved:
            moved = False
            for rank, pieces in self.pieces.items():
                while at[rank] < len(pieces):
                    begin, end, i = pieces[at[rank]]
                    if i >= 0 and is_shared[i]:
                        members = self.group(rank, name[i])
                        key = (members, name[i], step[i], self.ops["sequence"][i])
                        arrived[key][rank] = now[rank]
                        if len(arrived[key]) < sum(m in self.pieces for m in members):
                            break
                        wait = latest[key]
                        now[rank] = max(now[rank], max(arrived[key].values()) + max(0.0, end_of[i] - max(wait, begin)))
                        new_start[i], new_end[i] = arrived[key][rank], now[rank]
                    else:
                        label = name[i] if i >= 0 else "(between)"
                        now_step = step[i] if i >= 0 else following[rank][at[rank]]
                        start = now[rank]
                        now[rank] += (end - begin) * factor(rank, now_step, label)
                        if i >= 0:
                            new_start[i] = start if np.isnan(new_start[i]) else new_start[i]
                            new_end[i] = now[rank]
                    at[rank] += 1
                    moved = True
        done = np.isfinite(new_start) & np.isfinite(new_end)
        played = self.ops.assign(started_us=new_start, duration_us=new_end - new_start)[done]
        return self._enclosing(played)

    def quiet(self):
        """A factor that takes nine tenths of the deviation of each piece of work from the median of its name out."""
        step, name = self.ops["step"].to_numpy(), self.ops["name"].to_numpy()
        is_shared = (self.ops["kind"] == "collective").to_numpy()
        spent: dict = defaultdict(float)
        for rank, pieces in self.pieces.items():
            ahead = self._steps_ahead(pieces, step)
            for k, (begin, end, i) in enumerate(pieces):
                if i < 0 or not is_shared[i]:
                    spent[rank, step[i] if i >= 0 else ahead[k], name[i] if i >= 0 else "(between)"] += end - begin
        by_name: dict = defaultdict(list)
        for (_, _, label), us in spent.items():
            by_name[label].append(us)
        usual = {label: float(np.median(values)) for label, values in by_name.items()}

        def factor(rank, now_step, label):
            own = spent.get((rank, now_step, label), 0.0)
            return (usual[label] + 0.1 * (own - usual[label])) / own if own > 0 else 1.0

        return factor

    def _steps_ahead(self, pieces, step):
        found, ahead = [0] * len(pieces), 0
        for k in range(len(pieces) - 1, -1, -1):
            ahead = step[pieces[k][2]] if pieces[k][2] >= 0 else ahead
            found[k] = ahead
        return found

    @staticmethod
    def _enclosing(played):
        """An operation that ends with a collective inside ends no earlier than that."""
        inner = played[played["parent"].notna()]
        ends = (inner["started_us"] + inner["duration_us"]).groupby([inner["rank"], inner["step"], inner["parent"]]).max()
        keys = pd.MultiIndex.from_arrays([played["rank"], played["step"], played["name"]])
        least = ends.reindex(keys).to_numpy() - played["started_us"].to_numpy()
        return played.assign(duration_us=np.fmax(played["duration_us"], np.nan_to_num(least, nan=-np.inf)))


def injections(job: Job, middle: int):
    """name, factor of dose, ranks, nodes (None: no place, accusing anybody is wrong)."""
    nodes = sorted(set(job.place.nodes.values()), key=lambda n: min(r for r, node in job.place.nodes.items() if node == n))
    of_node = {n: {r for r, node in job.place.nodes.items() if node == n} for n in nodes}
    for node in nodes[1:3]:
        rank = min(of_node[node])
        yield "one rank", lambda d, r=rank: lambda rank_, step, name: 1 + d * (rank_ == r and step >= middle), {rank}
        if len(of_node[node]) > 1:
            yield (
                "one node",
                lambda d, n=of_node[node]: lambda rank_, step, name: 1 + d * (rank_ in n and step >= middle),
                of_node[node],
            )
        yield (
            "one operation of a rank",
            lambda d, r=rank: lambda rank_, step, name: 1 + d * (rank_ == r and step >= middle and name == "backward"),
            {rank},
        )
        yield (
            "a rank, one step in ten",
            lambda d, r=rank: lambda rank_, step, name: 1 + d * (rank_ == r and step >= middle and step % 10 == 0),
            {rank},
        )
        yield (
            "pause of (dose) steps, one in ten",
            lambda d, r=rank: ("pause", d, r),
            {rank},
        )
    dp = {tuple(g["dp"]) for g in job.place.groups.values() if 1 < len(g["dp"]) < len(job.place.groups)}
    for group in sorted(dp)[:1]:
        yield "one group", lambda d, g=set(group): lambda rank_, step, name: 1 + d * (rank_ in g and step >= middle), set(group)
    yield "one operation everywhere", lambda d: lambda rank_, step, name: 1 + d * (step >= middle and name == "backward"), None


def pause_factor(job: Job, dose: float, rank: int, middle: int):
    """Every tenth step the rank stops, in its `data`, for `dose` times the typical step."""
    ops = job.operations
    length = ops.groupby("step")["started_us"].min().diff().median()
    own = ops[(ops["rank"] == rank) & (ops["name"] == "data")].set_index("step")["duration_us"]

    def factor(r, step, name):
        hit = r == rank and step >= middle and step % 10 == 0 and name == "data"
        return 1 + dose * length / max(own.get(step, 1.0), 1.0) if hit else 1

    return factor


def judge(job: Job, operations: pd.DataFrame, ranks):
    found = analyse_job(operations, job.place).findings
    spatial = [f for f in found if f.axis == "spatial" and f.ranks and f.kind != "operation_pattern"]
    accusing = [f for f in spatial if f.score >= ACCUSES]
    nodes = {job.place.nodes[r] for r in ranks} if ranks else set()

    def is_right(f):
        return (
            bool(ranks) and (set(f.nodes) <= nodes if f.nodes else set(f.ranks) <= set(ranks)) and bool(set(f.ranks) & set(ranks))
        )

    changed = any(f.axis == "temporal" and f.score >= 0.2 for f in found)
    return {
        "found": bool(accusing) if ranks else changed,
        "right": bool(accusing) and is_right(accusing[0]),
        "first": bool(spatial) and is_right(spatial[0]),
        "wrong": bool(accusing) and not is_right(accusing[0]),
    }


def main(lab: Path, quick: bool, is_quiet: bool, only: str) -> None:
    warnings.simplefilter("ignore")
    healthy = []
    for path in sorted((lab / "truth").glob("*.json")):
        truth = json.loads(path.read_text())
        if truth["fault"] == "none":
            healthy.append(load(lab / "archive" / truth["job_id"]))
    if quick:
        healthy = healthy[:2]
    table: dict = defaultdict(lambda: defaultdict(list))
    for job in healthy:
        replay = Replay(job)
        calm = replay.quiet() if is_quiet else lambda *_: 1.0
        middle = int(job.operations["step"].max()) // 2
        table["nothing injected", 0.0]["all"].append(judge(job, replay.play(calm), set()))
        for kind, factor_of, ranks in (one for one in injections(job, middle) if only in one[0]):
            for dose in DOSES:
                factor = factor_of(dose)
                if isinstance(factor, tuple):
                    factor = pause_factor(job, dose, factor[2], middle)
                table[kind, dose]["all"].append(judge(job, replay.play(lambda *at, f=factor, c=calm: f(*at) * c(*at)), ranks))
    print("injected                            dose   runs  found  right  first  wrong")
    for (kind, dose), rows in table.items():
        runs = rows["all"]
        shares = [sum(r[k] for r in runs) / len(runs) for k in ("found", "right", "first", "wrong")]
        print(f"{kind:<35} {100 * dose:>4.0f}%  {len(runs):>4}" + "".join(f"  {100 * s:>4.0f}%" for s in shares))


if __name__ == "__main__":
    words = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    main(Path(sys.argv[1]), "--quick" in sys.argv, "--quiet" in sys.argv, words)
