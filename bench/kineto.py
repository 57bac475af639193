"""Reading Kineto traces as a stream beside `json.load` of the same file: MB/s and peak memory.

python bench/kineto.py [MEGABYTES ...]     a synthetic trace of about this size, of events as Kineto writes them
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_EVENT = """  {{
    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {tid},
    "ts": {ts:.3f}, "dur": {dur:.3f},
    "args": {{
      "External id": {k}, "device": 0, "context": 1, "stream": 7, "correlation": {k},
      "registers per thread": 96, "shared memory": 32768, "grid": [128, 2, 1], "block": [256, 1, 1]
    }}
  }}"""


def write(path: Path, megabytes: int) -> None:
    names = [f"void at::native::kernel_{k}<float, 4>(int, float*, at::detail::Array<char*, 3>)" for k in range(200)]
    with path.open("w") as stream:
        stream.write('{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},\n')
        stream.write('  "baseTimeNanoseconds": 1700000000000000000,\n  "traceEvents": [\n')
        k = 0
        while stream.tell() < megabytes * 1_000_000:
            block = []
            for _ in range(500):
                k += 1
                if k % 20_000 == 1:
                    step = _EVENT.format(
                        category="user_annotation", name=f"ProfilerStep#{k // 20_000}", tid=1, ts=k * 10, dur=199_990, k=k
                    )
                    block.append(step)
                category = ("kernel", "cpu_op", "cuda_runtime", "python_function")[k % 4]
                block.append(_EVENT.format(category=category, name=names[k % 200], tid=k % 7, ts=k * 10 + 1, dur=8.5, k=k))
            stream.write((",\n" if k > 500 else "") + ",\n".join(block))
        stream.write('\n  ],\n  "traceName": "rank3.pt.trace.json"\n}\n')


def child(how: str, path: str) -> None:
    import resource

    began = time.perf_counter()
    if how == "stream":
        from jobs.adapters.base import FileContext
        from jobs.adapters.operations_kineto import KinetoAdapter

        with open(path, "rb") as stream:
            n = next(t.n_read for t in reversed(list(KinetoAdapter().parse(stream, FileContext("j", path)))))
    else:
        with open(path) as text:
            n = len(json.load(text)["traceEvents"])
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "n": n, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}))


def main(sizes: list[int]) -> None:
    print("MB    reader     MB/s   peak MB   events")
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rank3.pt.trace.json"
            write(path, megabytes)
            size = path.stat().st_size / 1e6
            for how in ("json.load", "stream"):
                run = subprocess.run([sys.executable, __file__, "--child", how, str(path)], check=True, capture_output=True)
                found = json.loads(run.stdout)
                print(f"{size:<5.0f} {how:<10} {size / found['seconds']:>5.0f} {found['peak_mb']:>9.0f} {found['n']:>9,}")


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(*sys.argv[2:])
    else:
        main([int(a) for a in sys.argv[1:]] or [50, 200])
