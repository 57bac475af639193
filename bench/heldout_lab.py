"""Tools that make a failed job out of a healthy one of the lab: cut it, slow it, let a rank die, let its peers complain.

A copy keeps the real files (logs, time lines, metrics, stacks) and only changes what a fault would change. Kinds of fault
stand in bench/heldout_kinds.py and bench/heldout_table.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{3})?")
GLOG = re.compile(r"\b[WEI](\d{2})(\d{2}) (\d\d:\d\d:\d\d)\.\d+")
PER_STEP = re.compile(r"(elapsed time per iteration \(ms\): )[\d.]+")
ELASTIC = "torch/distributed/elastic/multiprocessing/api.py"
RULE, LINE = "=" * 60, "-" * 60
SITE = "/opt/venv/lib/python3.11/site-packages"


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace(",", ".")).replace(tzinfo=UTC).timestamp()


def stamp_of(line: str, year: int = 2026) -> float | None:
    found = STAMP.search(line[:120])
    if found:
        return seconds(found[0])
    glog = GLOG.search(line[:60])
    return seconds(f"{year}-{glog[1]}-{glog[2]} {glog[3]}") if glog else None


def iso(at: float, form: str = "milliseconds") -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=form)


class LabJob:
    """A healthy job in memory. `end` is when it ends; files are written by `save`."""

    def __init__(self, folder: Path, job_id: str, nodes: Mapping[str, str]) -> None:
        self.folder, self.job_id, self.node_names = folder, job_id, nodes
        self.record: dict[str, Any] = json.loads(self._renamed((folder / "job.json").read_text()))
        self.record |= {"job_id": job_id}
        self.nodes: list[str] = self.record["nodes"]
        self.places = {r["rank"]: r for r in self.record["ranks"]}
        self.logs: dict[str, list[list[Any]]] = {}
        for path in sorted((folder / "logs").rglob("*.log")):
            at = seconds(self.record["start_time"][:23])
            rows = []
            for line in self._renamed(path.read_text()).splitlines():
                at = stamp_of(line) or at
                rows.append([at, line])
            self.logs[self._renamed(str(path.relative_to(folder)))] = rows
        self.ops = {
            int(p.stem.removeprefix("timeline_rank")): [json.loads(x) for x in p.read_text().splitlines()]
            for p in sorted((folder / "traces").glob("timeline_*.jsonl"))
        }
        self.metrics = {self._renamed(p.stem): [x.split(",") for x in p.read_text().splitlines()]
                        for p in sorted((folder / "metrics").glob("*.csv"))}  # fmt: skip
        self.stacks = {self._renamed(str(p.relative_to(folder))): json.loads(self._renamed(p.read_text()))
                       for p in sorted((folder / "stacks").rglob("*_mid.json"))}  # fmt: skip
        self.events: list[str] = []
        self.end = seconds(self.record["end_time"][:23])

    def _renamed(self, text: str) -> str:
        for old, new in self.node_names.items():
            text = text.replace(old, new)
        return text.replace(self.folder.name, self.job_id)

    def node(self, rank: int) -> str:
        return str(self.places[rank]["node"])

    def ranks_on(self, node: str) -> list[int]:
        return [r for r, p in self.places.items() if p["node"] == node]

    def log(self, rank: int, stream: str) -> list[list[Any]]:
        tail = f"/attempt_0/{self.places[rank]['local_rank']}/{stream}.log"
        return next(v for k, v in self.logs.items() if k.startswith(f"logs/{self.node(rank)}/") and k.endswith(tail))

    def agent(self, node: str) -> list[list[Any]]:
        return self.logs[f"logs/{node}/agent.log"]

    def step_at(self, step: int, op: str = "forward", rank: int = 0) -> float:
        return next(o["start_us"] for o in self.ops[rank] if o["step"] == step and o["op"] == op) / 1e6

    def say(self, rank: int, at: float, text: str, stream: str = "stderr", *, is_prefixed: bool = True) -> None:
        lines = [f"[rank{rank}]: {x}" if is_prefixed and stream == "stderr" else x for x in text.splitlines()]
        self.log(rank, stream).extend([at, x] for x in lines)

    def raise_in(self, rank: int, at: float, summary: str, frames: Sequence[str], *, is_prefixed: bool = True) -> None:
        self.say(rank, at, "\n".join(["Traceback (most recent call last):", *frames, summary]), is_prefixed=is_prefixed)

    def stop_rank(self, rank: int, at: float) -> None:
        """Nothing of this rank after `at`; the operation under way is never written."""
        for stream in ("stdout", "stderr"):
            rows = self.log(rank, stream)
            rows[:] = [r for r in rows if r[0] <= at]
        self.ops[rank] = [o for o in self.ops[rank] if o["end_us"] <= at * 1e6]

    def stop(self, at: float) -> None:
        """All ranks stop at `at`; collectives that began before are not finished."""
        for rank in self.places:
            self.stop_rank(rank, at)

    def before_steps(self) -> float:
        """When the first rank built its model; a job that is cut here never made a step."""
        first = min(ops[0]["start_us"] for ops in self.ops.values()) / 1e6
        self.stop(first - 0.5)
        self.stacks = {}
        return first

    def end_at(self, at: float, state: str, exit_code: int, codes: Mapping[str, int | None] | None = None) -> None:
        self.end = at
        self.record |= {"state": state, "exit_code": exit_code, "end_time": iso(at)}
        self.record["node_exit_codes"] = {n: (codes or {}).get(n, exit_code) for n in self.nodes}
        for rows in self.metrics.values():
            self._fit_metrics(rows, at)

    def _fit_metrics(self, rows: list[list[str]], at: float) -> None:
        """Cut samples behind the end; after the last one gauges and counters stay as they were."""
        kept = [r for r in rows[1:] if seconds(r[0][:23]) <= at]
        last = seconds(kept[-1][0][:23])
        while last + 0.5 <= at:
            last += 0.5
            kept.append([iso(last), *kept[-1][1:]])
        rows[1:] = kept

    def report(self, node: str, at: float, first: int, code: int, others: Mapping[int, int]) -> None:
        """torchelastic's last words on a node: who failed first, and how its other workers ended."""
        stamp = datetime.fromtimestamp(at, UTC)
        glog = f"{stamp:%m%d %H:%M:%S}.{stamp.microsecond // 1000:03d}000 20028 {ELASTIC}"
        said = [f"W{glog}:1028] Sending process {self.pid_of(r)} closing signal SIGTERM" for r in others]
        said += [f"E{glog}:1002] failed (exitcode: {code}) local_rank: {self.places[first]['local_rank']} (pid: {self.pid_of(first)}) of binary: /opt/venv/bin/python",
                 "Traceback (most recent call last):", '  File "/opt/venv/bin/torchrun", line 10, in <module>', "    sys.exit(main())",
                 f'  File "{SITE}/torch/distributed/launcher/api.py", line 386, in launch_agent', "    raise ChildFailedError(",
                 "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", RULE, "/workspace/train.py FAILED", LINE, "Failures:"]  # fmt: skip
        blocks = [self._block(i, r, c, at, node) for i, (r, c) in enumerate(others.items(), 1)]
        said += [x for b in blocks for x in b] or ["  <NO_OTHER_FAILURES>"]
        said += [LINE, "Root Cause (first observed failure):", *self._block(0, first, code, at, node), RULE]
        self.agent(node).extend([at, x] for x in said)

    def pid_of(self, rank: int) -> int:
        return 20_400 + rank

    def _block(self, place: int, rank: int, code: int, at: float, node: str) -> list[str]:
        names = {-4: "SIGILL", -6: "SIGABRT", -7: "SIGBUS", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}
        name = names.get(code, "")
        told = (
            f"Signal {-code} ({name}) received by PID {self.pid_of(rank)}"
            if name
            else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        )
        return [f"[{place}]:", f"  time      : {datetime.fromtimestamp(at, UTC):%Y-%m-%d_%H:%M:%S}", f"  host      : {node}",
                f"  rank      : {rank} (local_rank: {self.places[rank]['local_rank']})",
                f"  exitcode  : {code} (pid: {self.pid_of(rank)}) {f' ({name})' if name else ''}", "  error_file: <N/A>", f"  traceback : {told}"]  # fmt: skip

    def told_to_end(self, at: float) -> None:
        """Every launcher is told to end by SIGTERM, as schedulers do."""
        for place, node in enumerate(self.nodes):
            stamp = datetime.fromtimestamp(at + 0.1 * place, UTC)
            self.agent(node).extend(
                [at, x]
                for x in (
                    f"W{stamp:%m%d %H:%M:%S}.{stamp.microsecond:06d} 20028 {ELASTIC}:1028] Sending process 20400 closing signal SIGTERM",
                    "Traceback (most recent call last):",
                    f'  File "{SITE}/torch/distributed/elastic/multiprocessing/api.py", line 86, in _terminate_process_handler',
                    '    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)',
                    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 20028 got signal: 15",
                )
            )

    def slow(self, extra: Mapping[tuple[int, int], float], op: str) -> None:
        """Lengthens `op` of (rank, step) by seconds; its peers wait in the next collective; all that follows comes later.

        A collective that is slow is slow for all ranks.
        """
        steps = sorted({s for _, s in extra})
        delay = {s: max(v for (_, at), v in extra.items() if at == s) for s in steps}
        starts = {s: min(o["start_us"] for ops in self.ops.values() for o in ops if o["step"] == s) / 1e6 for s in steps}
        for rank, ops in self.ops.items():
            shift, step, own, waits = 0.0, None, 0.0, 0.0
            for o in sorted(ops, key=lambda o: (o["step"], o["start_us"])):
                if o["step"] != step:
                    shift += own + waits
                    step, own, waits = o["step"], 0.0, 0.0
                    left = delay.get(step, 0.0)
                    mine = left if "reduce" in op else extra.get((rank, step), 0.0)
                start = shift + own + waits
                if o["op"] == op and own == 0.0 and mine:
                    own = mine
                if o["op"] == "dp-allreduce" and op != "dp-allreduce":
                    waits = left - own if op in ("data", "forward", "backward") else 0.0
                o["start_us"] += int(start * 1e6)
                o["end_us"] += int((shift + own + waits) * 1e6)
        self._later([(starts[s], delay[s]) for s in steps])

    def _later(self, delays: Sequence[tuple[float, float]]) -> None:
        def moved(at: float) -> float:
            return at + sum(d for start, d in delays if start <= at)

        for rows in self.logs.values():
            before: float | None = None
            for row in rows:
                new = moved(row[0])
                if PER_STEP.search(row[1]):
                    if before is not None:
                        each = (new - before) / 5 * 1000
                        row[1] = PER_STEP.sub(lambda m, each=each: f"{m[1]}{each:.1f}", row[1])
                    before = new
                if new != row[0] and STAMP.search(row[1][:120]):
                    row[1] = STAMP.sub(lambda m, new=new: _like(m[0], new), row[1], count=1)
                row[0] = new
        for rows in self.metrics.values():
            rows[1:] = _resampled(rows[1:], [moved(seconds(r[0][:23])) for r in rows[1:]])
        self.end = moved(self.end)
        self.record["end_time"] = iso(self.end)

    def metric(self, node: str, name: str, start: float, value: Any) -> None:
        """Sets a metric of one node from `start` on: `value(old, seconds since start)`. A new column begins at 0."""
        rows = self.metrics[node]
        if name not in rows[0]:
            for each in self.metrics.values():
                each[0].append(name)
                for row in each[1:]:
                    row.append("0")
        place = rows[0].index(name)
        for row in rows[1:]:
            at = seconds(row[0][:23])
            if at >= start and row[place] != "":
                row[place] = str(value(float(row[place]), at - start))

    def stack(self, at: float, frames: Mapping[int, Sequence[tuple[str, str, int]]]) -> None:
        """Three samples of every rank, three seconds apart, with these frames (innermost first)."""
        for rank, names in frames.items():
            for tag in (0, 3, 6):
                listed = [{"name": n, "filename": f"{SITE}/{f}" if "/" in f else f"/workspace/{f}", "module": None, "short_filename": f,
                           "line": line, "locals": None} for n, f, line in names]  # fmt: skip
                thread = {"pid": self.pid_of(rank), "thread_id": 140000000000000 + rank, "thread_name": "MainThread",
                          "os_thread_id": self.pid_of(rank), "active": False, "owns_gil": False, "frames": listed}  # fmt: skip
                self.stacks[f"stacks/{self.node(rank)}/rank{rank}_pid{self.pid_of(rank)}_T{tag}.json"] = {
                    "timestamp": iso(at + tag), "node": self.node(rank), "rank": rank, "process_type": "trainer",
                    "pid": self.pid_of(rank), "threads": [thread],
                }  # fmt: skip

    def kernel(self, node: str, at: float, message: str) -> None:
        self.events.append(f"{node}\t[{datetime.fromtimestamp(at, UTC):%a %b %e %H:%M:%S %Y}] {message}")

    def save(self, archive: Path) -> None:
        out = archive / self.job_id
        files = {"job.json": json.dumps(self.record, indent=1)}
        files |= {name: "".join(f"{x}\n" for _, x in rows) for name, rows in self.logs.items()}
        files |= {f"traces/timeline_rank{r}.jsonl": "".join(json.dumps(o) + "\n" for o in ops) for r, ops in self.ops.items()}
        files |= {f"metrics/{n}.csv": "\n".join(",".join(r) for r in rows) + "\n" for n, rows in self.metrics.items()}
        files |= {name: json.dumps(d) for name, d in self.stacks.items()}
        for node in {x.split("\t")[0] for x in self.events}:
            files[f"events/{node}/dmesg.log"] = "".join(
                x.split("\t", 1)[1] + "\n" for x in self.events if x.startswith(node + "\t")
            )
        for name, text in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _resampled(rows: list[list[str]], times: Sequence[float]) -> list[list[str]]:
    """Samples every half second again, after a run was stretched; what was empty stays empty."""
    grid = np.arange(times[0], times[-1], 0.5)
    near = np.searchsorted(times, grid).clip(0, len(rows) - 1)
    columns = [[rows[i][c] for i in near] for c in range(1, len(rows[0]))]
    for c, column in enumerate(columns, 1):
        known = [(t, float(r[c])) for t, r in zip(times, rows) if r[c] != ""]
        if known and len({v for _, v in known}) > 2:
            values = np.interp(grid, [t for t, _ in known], [v for _, v in known])
            column[:] = [old if old == "" else f"{v:.9g}" for old, v in zip(column, values)]
    return [[iso(t), *values] for t, *values in zip(grid.tolist(), *columns)]


def shifted(line: str, by: float) -> str:
    """A line as a clock that is off by so many seconds would stamp it."""
    line = STAMP.sub(lambda m: _like(m[0], seconds(m[0]) + by), line, count=1)
    return GLOG.sub(
        lambda m: m[0].replace(m[3], f"{datetime.fromtimestamp(seconds(f'2026-{m[1]}-{m[2]} {m[3]}') + by, UTC):%H:%M:%S}"),
        line,
        count=1,
    )


def _like(old: str, at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S" if "T" in old else "%Y-%m-%d %H:%M:%S")
    return text + (f"{old[19]}{moment.microsecond // 1000:03d}" if len(old) > 19 else "")
