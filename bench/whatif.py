"""The what-if engine beside a plain pandas version of the same formulas: figures and time, in one run.

python bench/whatif.py ../shared/data/straggler AR SE
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from whatif_pandas import analyse as analyse_in_pandas

from jobs.adapters.operations_whatif import read_columns, read_layout
from ml.stragglers.whatif import analyse


def timed(call, repeats=1):
    best, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - began)
    return best, result


def main(folder: Path, names: list[str]) -> None:
    print("trace  operations  pandas s  engine s  ratio  process s  largest relative difference")
    for name in names:
        trace, meta = folder / f"trace-{name}.parquet", folder / f"meta-{name}.yaml"
        pp = yaml.safe_load(meta.read_text())["pp_size"]
        plain_s, plain = timed(lambda trace=trace, pp=pp: analyse_in_pandas(pd.read_parquet(trace), pp))
        ours_s, ours = timed(lambda trace=trace, meta=meta: analyse(read_columns(trace), read_layout(meta)), 5)
        command = [Path(sys.executable).with_name("fleetdiff"), "whatif", trace, meta, "--json"]
        process_s, run = timed(lambda command=command: subprocess.run(command, check=True, capture_output=True), 3)
        document = json.loads(run.stdout)
        pairs = [(document["S"], plain["S"]), (document["M_W"], plain["M_W"]), (document["M_S"], plain["M_S"])]
        pairs += [(document["S_t"][op], value) for op, value in plain["S_t"].items()]
        pairs += [(document["S_dp"][str(dp)], value) for dp, value in plain["S_dp"].items()]
        pairs += [(document["S_pp"][str(stage)], value) for stage, value in plain["S_pp"].items()]
        worst = max(abs(a / b - 1) for a, b in pairs)
        n = len(pd.read_parquet(trace, columns=["step"]))
        print(f"{name:<5} {n:>11,} {plain_s:>9.2f} {ours_s:>9.3f} {plain_s / ours_s:>6.0f} {process_s:>10.2f}  {worst:.1e}")
        assert ours.slowdown == document["S"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
