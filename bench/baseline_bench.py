"""How fast `baseline` and `similar` answer as whole processes, from 10³ to 10⁶ jobs, beside a plain DuckDB scan.

    python bench/baseline_bench.py --jobs 1000 10000 100000 --keys 200 --out FOLDER

The lake is generated: models with layouts, code versions, packages, environment, hyper-parameters; every job differs
from its siblings in a few settings. Only the tables that the look-ups read are written, laid out as the stages do it.
The plain scan reads the same files in the same run and finds, with DuckDB alone, the successful jobs that share most
settings with the job: no index, no clustering.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from jobs.baselines.index import index_row
from jobs.core import lake
from ml.configs.classes import default_classes
from ml.similarity.fingerprint import pack

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS_A_FILE = 8192
MADE_SINGLY = 50_000
"""Of a million jobs, so many have a configuration of their own, repeated twenty times: building takes minutes, not hours."""
SYMPTOMS = ("crash", "hang", "oom", "comm_timeout", "loss_nonfinite")


def config(model: int, job: int, n_keys: int, random: np.random.Generator) -> dict[str, str]:
    """One job's settings: its model's, with a few of its own."""
    base = {
        "framework.name": "megatron", "framework.version": f"0.{model % 4 + 8}", "model.layers": str(24 + model % 80),
        "model.hidden": str(1024 + 128 * (model // 80)), "model.heads": "32", "entrypoint": "pretrain.py", "parallel.tp": "8",
        "parallel.pp": "4", "data.pipeline": "shards", "data.dataset": f"corpus-v{model % 3}",
        "code_version": f"{random.integers(0, 40):07x}", "packages.nccl": f"2.{random.integers(27, 31)}",
        "hyperparameters.lr": f"{random.integers(1, 30)}e-5", "hyperparameters.seed": str(job),
        "hyperparameters.iters": "100000",
    }  # fmt: skip
    n_rest = n_keys - len(base)
    base |= {f"packages.p{k:03d}": f"{k % 9}.{k % 7}.{model % 5}" for k in range(n_rest * 4 // 10)}
    base |= {f"env.NCCL_V{k:03d}": str((k * 7 + model) % 11) for k in range(n_rest * 2 // 10)}
    base |= {f"hyperparameters.h{k:03d}": str((k * 3 + model) % 17) for k in range(n_rest - n_rest * 4 // 10 - n_rest * 2 // 10)}
    for _ in range(random.integers(0, 6)):
        base[f"hyperparameters.h{random.integers(0, 40):03d}"] = f"{random.integers(18, 90)}"
        base[f"packages.p{random.integers(0, 40):03d}"] = f"9.{random.integers(0, 30)}"
    return base


def generated(n_jobs: int, n_keys: int, seed: int) -> Iterator[list[dict[str, object]]]:
    """Rows of `config_index`, model by model, in order of their hashes within a file."""
    classes = default_classes()
    n_models = max(8, n_jobs // 1000)
    random = np.random.default_rng(seed)
    per_model = -(-n_jobs // n_models)
    for model in range(n_models):
        rows = []
        for nth in range(min(per_model, n_jobs - model * per_model)):
            job = model * per_model + nth
            size = int(2 ** random.integers(6, 10))
            failed = random.random() < 0.3
            rows.append(
                index_row(
                    {
                        "job_id": f"job-{job:07d}",
                        "name": f"train-{model}",
                        "user": f"user-{model % 40}",
                        "state": "FAILED" if failed else "COMPLETED",
                        "exit_code": int(failed),
                        "node_exit_codes": None,
                        "ended_at": START + timedelta(minutes=job % 500_000),
                        "world_size": size,
                        "n_nodes": size // 8,
                        "n_gpus": size,
                        "lineage_id": f"l{job // 3}",
                        "config": config(model, job, n_keys, random),
                        "alerts": None,
                        "launcher_alerts": None,
                        "last_iteration": 100_000,
                        "n_planned": 100_000,
                        "log_every": 10,
                        "step_time_s": float(random.normal(2.0, 0.05)),
                        "duration_s": 86_400.0,
                    },
                    classes,
                )
            )
        yield rows


def build(root: Path, n_jobs: int, n_keys: int, seed: int) -> None:
    """Write a lake of generated jobs: the index in files of a few thousand rows, each in order of its hashes."""
    lake.create_missing(root)
    schema = lake.arrow_schema("config_index")
    waiting: list[pa.Table] = []
    n_waiting = 0
    n_repeats = n_jobs // MADE_SINGLY if n_jobs > 2 * MADE_SINGLY else 1
    for rows in sorted_by_hash(n_jobs // n_repeats, n_keys, seed):
        waiting.append(repeated(pa.Table.from_pylist(rows, schema=schema), n_repeats))
        n_waiting += len(waiting[-1])
        if n_waiting >= ROWS_A_FILE:
            write_deltalake(lake.table_path(root, "config_index"), pa.concat_tables(waiting), mode="append")
            waiting, n_waiting = [], 0
    if waiting:
        write_deltalake(lake.table_path(root, "config_index"), pa.concat_tables(waiting), mode="append")


def repeated(rows: pa.Table, n_repeats: int) -> pa.Table:
    """Each job as so many jobs with its configuration, each with an id and a lineage of its own."""
    if n_repeats == 1:
        return rows
    taken = rows.take(np.repeat(np.arange(len(rows)), n_repeats))
    nth = np.tile(np.arange(n_repeats), len(rows))
    for name in ("job_id", "lineage"):
        texts = [f"{text}-{n}" for text, n in zip(taken[name].to_pylist(), nth, strict=True)]
        taken = taken.set_column(taken.schema.get_field_index(name), taken.schema.field(name), pa.array(texts))
    return taken


def build_fingerprints(root: Path, n_jobs: int, seed: int) -> None:
    """Fingerprints of the jobs that failed: three of ten, with some thirty words each, as the stage writes them."""
    random = np.random.default_rng(seed)
    schema = lake.arrow_schema("job_fingerprints")
    vocabulary = [f"template:{n:016x}" for n in range(3000)]
    weights = random.uniform(0.05, 1.0, len(vocabulary))
    part = []
    for job in range(0, n_jobs, 10):
        for nth in range(3):
            symptom = SYMPTOMS[int(random.integers(len(SYMPTOMS)))]
            chosen = np.unique((random.pareto(0.7, 30) * 8).astype(int) % len(vocabulary))
            tokens, words = pack([(f"symptom:{symptom}", 3.0), *((vocabulary[k], weights[k]) for k in chosen)])
            part.append({
                "job_id": f"job-{job + nth:07d}", "tokens": tokens, "words": words, "state": "FAILED", "symptom": symptom,
                "cause_class": "undetermined", "onset_phase": "train", "user": f"user-{job % 40}", "lineage": f"l{job // 3}",
                "ended_at": START + timedelta(minutes=job % 500_000), "nodes": [f"node-{job % 997}"], "versions": ["torch 2.9"],
                "family_id": f"f{job % 211}", "ingest_batch": 1,
            })  # fmt: skip
        if len(part) >= 60_000 or job + 10 >= n_jobs:
            write_deltalake(lake.table_path(root, "job_fingerprints"), pa.Table.from_pylist(part, schema=schema), mode="append")
            part = []


def sorted_by_hash(n_jobs: int, n_keys: int, seed: int) -> Iterator[list[dict[str, object]]]:
    """One model's rows at a time: models do not interleave in the files, as after the stage's range partitioning."""
    for rows in generated(n_jobs, n_keys, seed):
        yield sorted(rows, key=lambda row: (row["model_hash"], row["must_hash"], row["job_id"]))


def measured(command: list[str], n: int) -> tuple[str, float, str]:
    """Least wall and CPU seconds of a whole process over `n` runs (others share the machine), peak MiB, last output."""
    wall, cpu, peak, said = [], [], 0.0, ""
    for _ in range(n):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-S", "-c", _WATCH, *command], capture_output=True, text=True, check=True)
        wall.append(time.perf_counter() - began)
        said, _, used = done.stdout.rpartition("\x00")
        kib, seconds = used.split()
        peak = max(peak, int(kib) / 1024)
        cpu.append(float(seconds))
    return f"{min(wall):.2f} ({min(cpu):.2f})", peak, said


_WATCH = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
sys.stdout.write(done.stdout.decode() + chr(0) + f"{used.ru_maxrss} {used.ru_utime + used.ru_stime}")
sys.exit(done.returncode)
"""

PLAIN_SCAN = """
import sys, duckdb
root, job = sys.argv[1:]
con = duckdb.connect(); con.execute("SET threads=2")
files = f"{root}/gold/config_index/*.parquet"
print(con.execute('''
  WITH mine AS (SELECT unnest(map_entries(config)) AS e FROM read_parquet($1) WHERE job_id = $2),
  theirs AS (SELECT job_id, unnest(map_entries(config)) AS e FROM read_parquet($1) WHERE is_success AND job_id != $2)
  SELECT theirs.job_id, count(*) AS n FROM theirs JOIN mine USING (e) GROUP BY 1 ORDER BY n DESC, 1 LIMIT 5''', [files, job]).fetchall())
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the generated lakes")
    parser.add_argument("--plain-limit", type=int, default=1_000_000, help="no plain scan above this many jobs")
    given = parser.parse_args()
    print("Seconds as wall (CPU), the whole process, least of the runs.\n")
    print(
        "| jobs | baseline JOB, s | baseline --config, s | refusal, s | similar JOB, s | MiB at most | DuckDB plain scan, s | MiB | build, s | GiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for n_jobs in given.jobs:
        root = given.out / f"lake-{n_jobs}"
        began = time.perf_counter()
        if not root.exists():
            build(root, n_jobs, given.keys, seed=7)
            build_fingerprints(root, n_jobs, seed=8)
        took = time.perf_counter() - began
        row = one_size(root, n_jobs, given)
        size = sum(f.stat().st_size for f in (root / "gold/config_index").rglob("*.parquet")) / 2**30
        print(f"| {n_jobs:,} | {row} | {took:.0f} | {size:.2f} |", flush=True)
        if not given.keep:
            shutil.rmtree(root)


def one_size(root: Path, n_jobs: int, given: argparse.Namespace) -> str:
    """The measured cells of one size."""
    n_repeats = n_jobs // MADE_SINGLY if n_jobs > 2 * MADE_SINGLY else 1
    asked = f"job-{n_jobs // n_repeats // 2:07d}" + ("-0" if n_repeats > 1 else "")
    own = [sys.executable, "-m", "jobs", "baseline", asked, "--lake", str(root), "--json"]
    seconds, peak, said = measured(own, given.runs)
    found = json.loads(said)
    assert found["baselines"], found["refused"]
    incident = root / "incident.json"
    random = np.random.default_rng(11)
    incident.write_text(
        json.dumps({"job_id": "new", "state": "FAILED", "config": config(3, 5, given.keys, random), "world_size": 256})
    )
    other = [sys.executable, "-m", "jobs", "baseline", "--config", str(incident), "--lake", str(root), "--json"]
    config_s, config_peak, _ = measured(other, given.runs)
    incident.write_text(
        json.dumps({"job_id": "new", "state": "FAILED", "config": {**config(3, 5, given.keys, random), "parallel.tp": "2"}})
    )
    refused_s, refused_peak, _ = measured(other, given.runs)
    alike = [sys.executable, "-m", "jobs", "similar", f"job-{n_jobs // 20 * 10:07d}", "--lake", str(root), "--json"]
    similar_s, similar_peak, said = measured(alike, given.runs)
    assert json.loads(said)["similar"]
    peak = max(peak, config_peak, refused_peak, similar_peak)
    plain_s, plain_peak = "not run", 0.0
    if n_jobs <= given.plain_limit:
        plain_s, plain_peak, _ = measured([sys.executable, "-c", PLAIN_SCAN, str(root), asked], 1)
    return f"{seconds} | {config_s} | {refused_s} | {similar_s} | {peak:.0f} | {plain_s} | {plain_peak:.0f}"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
