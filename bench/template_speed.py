"""Speed of template mining beside Drain3, in one run: a core alone, and end to end through Spark into Delta.

    python -m bench.template_speed core [--lines 1000000]
    python -m bench.template_speed distinct
    python -m bench.template_speed ranks
    python -m bench.template_speed spark [--lines 1000000] [--peer-lines 100000]

Peers: (a) Drain3 with the same masks, as fast as they can be had: all of them as one regular expression, or one each
through its own masker; (b) Drain3 with the same masks inside mapInPandas. Peers run on fewer lines, after a warm-up, and
are compared by lines a second. Runs alternate; the median of three is shown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from drain3.drain import Drain
from drain3.masking import LogMasker, MaskingInstruction

from bench.processes import processor_s, watch
from bench.template_accuracy import EXAMPLE_MASKS
from bench.template_lines import lines, write_files
from ml.templates import kernel
from ml.templates.library import Library, grown
from ml.templates.masking import mask_reference, text_buffers
from ml.templates.masks import MASKS


def joined_masker() -> Callable[[str], str]:
    return lambda line: mask_reference(line.encode()).decode()


def separate_masker(masks: Sequence[tuple[str, str]] | None = None) -> Callable[[str], str]:
    """Drain3's own masker, one pass a mask. Patterns for bytes are used for text: classes of bytes become letters."""
    if masks is None:
        own = [m for m in MASKS if m.name not in ("space", "Xid", "code")]
        masks = [(m.pattern.decode("latin-1"), "*") for m in own]
    return LogMasker([MaskingInstruction(p, w) for p, w in masks], "<", ">").mask  # type: ignore[no-any-return]


def peer(texts: Sequence[str], mask: Callable[[str], str]) -> int:
    """Drain3 on every line; number of templates."""
    drain = Drain(depth=4, sim_th=0.4, max_children=100, param_str="<*>")
    for text in texts:
        drain.add_log_message(mask(text))
    return len(drain.clusters)


def two_steps(texts: pa.Array, spent: Counter[str] | None = None) -> tuple[np.ndarray, Library]:
    """Template number of each line, and the library."""
    spent = Counter() if spent is None else spent
    began = time.process_time()
    data, offsets = text_buffers(texts)
    spent["buffers"] += _since(began)
    began = time.process_time()
    keys = kernel.keys(data, offsets)
    spent["mask and hash"] += _since(began)
    began = time.process_time()
    group, found = pd.factorize(keys)
    first = np.empty(len(found), np.int64)
    first[group[::-1]] = np.arange(len(keys) - 1, -1, -1)
    spent["distinct"] += _since(began)
    began = time.process_time()
    from ml.templates.masking import masked_messages

    distinct = masked_messages(texts.take(pa.array(first)))
    library = grown(Library(), distinct)
    names = {name: number for number, name in enumerate(sorted(library.templates))}
    of_group = np.array([names[library.messages[m]] for m in distinct])
    spent["mine the distinct"] += _since(began)
    began = time.process_time()
    numbers = of_group[group]
    spent["map back"] += _since(began)
    return numbers, library


def _since(began: float) -> float:
    return time.process_time() - began


def rate(work: Callable[[], Any], n: int, runs: int = 3) -> float:
    """Lines a second of processor time, median of runs."""
    found = []
    for _ in range(runs):
        began = time.process_time()
        work()
        found.append(n / _since(began))
    return statistics.median(found)


def core(n: int, n_peer: int) -> None:
    texts = lines(n)
    array = pa.array(texts)
    few = texts[:n_peer]
    two_steps(array.slice(0, 1000))
    spent: Counter[str] = Counter()
    mine = rate(lambda: two_steps(array, spent), n)
    only = rate(lambda: kernel.keys(*text_buffers(array)), n)
    peers = {
        "Drain3, same masks as one expression": rate(lambda: peer(few, joined_masker()), len(few)),
        "Drain3, same masks one by one": rate(lambda: peer(few, separate_masker()), len(few)),
        "Drain3, its example masks": rate(lambda: peer(few, separate_masker(EXAMPLE_MASKS)), len(few)),
        "the masks as one expression alone": rate(lambda: list(map(joined_masker(), few)), len(few)),
    }
    size = sum(map(len, texts)) / 1e6
    numbers, _ = two_steps(array)
    print(
        f"{n:,} lines, {size:.0f} MB, {len(np.unique(kernel.keys(*text_buffers(array)))):,} distinct masked, {len(np.unique(numbers))} templates"
    )
    print(f"| what | lines/s a core | two steps are … times as fast |\n|---|---|---|\n| two steps | {mine:,.0f} | 1 |")
    print(f"| mask and hash alone | {only:,.0f} ({only * size / n:.0f} MB/s) | {mine / only:.2f} |")
    for name, its in peers.items():
        print(f"| {name} | {its:,.0f} | {mine / its:.0f} |")
    total = sum(spent.values())
    print("shares of time: " + ", ".join(f"{k} {v / total:.0%}" for k, v in spent.items()))


def distinct(n: int, n_peer: int) -> None:
    print(
        "| lines with a word nobody printed before | distinct masked | two steps, lines/s | Drain3, same masks | ratio | share of mining |"
    )
    print("|---|---|---|---|---|---|")
    two_steps(pa.array(lines(1000)))
    for unique in (0.0, 0.01, 0.1):
        texts = lines(n, unique=unique)
        array = pa.array(texts)
        spent: Counter[str] = Counter()
        mine = rate(partial(two_steps, array, spent), n, 1)
        its = rate(partial(peer, texts[:n_peer], joined_masker()), n_peer, 1)
        found = len(np.unique(kernel.keys(*text_buffers(array))))
        print(
            f"| {unique:.0%} | {found:,} | {mine:,.0f} | {its:,.0f} | {mine / its:.0f} | {spent['mine the distinct'] / sum(spent.values()):.0%} |"
        )


def ranks(n: int) -> None:
    print("| lines | ranks | distinct masked | lines/s |\n|---|---|---|---|")
    for count, world in ((n // 4, 64), (n // 2, 64), (n, 64), (n, 8), (n, 1024), (n, 16384)):
        array = pa.array(lines(count, world))
        mine = rate(partial(two_steps, array), count, 3)
        print(f"| {count:,} | {world:,} | {len(np.unique(kernel.keys(*text_buffers(array)))):,} | {mine:,.0f} |")
    many = pa.concat_arrays([pa.array(lines(n // 5, 64, seed=seed), pa.large_string()) for seed in range(5)] * 10)
    print(f"| {len(many):,} (five blocks of {n // 5:,}, ten times) | 64 | | {rate(partial(two_steps, many), len(many), 1):,.0f} |")


# --- through Spark -----------------------------------------------------------------------------------------------


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Worker: read each file, mask and hash its lines in one pass, count; one example line of each key."""
    for batch in batches:
        for path in batch.column("path").to_pylist():
            data = np.frombuffer(Path(path).read_bytes(), np.uint8)
            ends = np.flatnonzero(data == 10) + 1
            offsets = np.concatenate(([0], ends)).astype(np.int64)
            keys, first, counts = np.unique(kernel.keys(data, offsets), return_index=True, return_counts=True)
            examples = [data[offsets[k] : offsets[k + 1]].tobytes().decode("utf-8", "replace") for k in first]
            yield pa.record_batch(
                [pa.array([path] * len(keys)), pa.array(keys), pa.array(counts), pa.array(examples)],
                names=["path", "message_key", "n", "example"],
            )


def _drained(frames: Iterator[Any]) -> Iterator[Any]:
    """Worker of the peer: Drain3 on every line of its partition."""
    import pandas as pd

    drain = Drain(depth=4, sim_th=0.4, max_children=100, param_str="<*>")
    mask = joined_masker()
    for frame in frames:
        for path in frame["path"]:
            found: Counter[int] = Counter()
            for line in Path(path).read_text().splitlines():
                cluster, _ = drain.add_log_message(mask(line))
                found[cluster.cluster_id] += 1
            texts = {c.cluster_id: c.get_template() for c in drain.clusters}
            yield pd.DataFrame({"path": path, "template": [texts[k] for k in found], "n": list(found.values())})


def _rates(n: int, work: Callable[[], None]) -> tuple[float, float]:
    """Lines a second of wall time, and of the processor time of all processes."""
    before, began = sum(processor_s().values()), time.monotonic()
    work()
    return n / (time.monotonic() - began), n / (sum(processor_s().values()) - before)


def spark(n: int, n_peer: int, runs: int) -> None:
    from pyspark.sql import functions as F

    from jobs.core import session
    from ml.templates.masking import mask

    started = session.start("template-speed")
    watch()
    with TemporaryDirectory() as folder:
        many = write_files(Path(folder) / "many", n, 64)
        few = write_files(Path(folder) / "few", n_peer, 8)

        def paths(of: list[str]) -> Any:
            return started.createDataFrame([(p,) for p in of], "path string").repartition(2)

        def ours(of: list[str], name: str, spent: Counter[str]) -> None:
            began = time.monotonic()
            target = f"{folder}/{name}"
            counts = paths(of).mapInArrow(_counted, "path string, message_key long, n long, example string")
            counts.write.format("delta").mode("overwrite").save(target + "-counts")
            spent["read, mask, hash, count, write"] += time.monotonic() - began
            began = time.monotonic()
            stored = started.read.format("delta").load(target + "-counts")
            examples = stored.groupBy("message_key").agg(F.min("example").alias("example")).collect()
            masked = {row.message_key: mask(row.example) for row in examples}
            library = grown(Library(), masked.values())
            spent["collect and mine the distinct"] += time.monotonic() - began
            began = time.monotonic()
            rows = [(key, library.messages[text]) for key, text in masked.items()]
            mapping = started.createDataFrame(rows, "message_key long, template_id string")
            result = stored.join(F.broadcast(mapping), "message_key").groupBy("path", "template_id").agg(F.sum("n").alias("n"))
            result.write.format("delta").mode("overwrite").save(target)
            spent["join and write"] += time.monotonic() - began

        def theirs(of: list[str], name: str) -> None:
            counts = paths(of).mapInPandas(_drained, "path string, template string, n long")
            counts.write.format("delta").mode("overwrite").save(f"{folder}/{name}")

        ours(few, "warm", Counter())
        theirs(few[:1], "warm-peer")
        spent: Counter[str] = Counter()
        mine, its = [], []
        for _ in range(runs):
            mine.append(_rates(n, lambda: ours(many, "ours", spent)))
            its.append(_rates(n_peer, lambda: theirs(few, "theirs")))
        (a, a_cpu), (b, b_cpu) = (tuple(map(statistics.median, zip(*found))) for found in (mine, its))
        print("| what | lines | lines/s, wall, two workers, into Delta | lines/s of processor, all processes |\n|---|---|---|---|")
        print(f"| two steps in mapInArrow over paths | {n:,} | {a:,.0f} | {a_cpu:,.0f} |")
        print(f"| Drain3, same masks, in mapInPandas | {n_peer:,} | {b:,.0f} | {b_cpu:,.0f} |")
        print(f"\nratio {a / b:.1f} by wall, {a_cpu / b_cpu:.1f} by processor")
        total = sum(spent.values())
        print("shares of time: " + ", ".join(f"{k} {v / total:.0%}" for k, v in spent.items()))
    started.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("core", "distinct", "ranks", "spark"))
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--peer-lines", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3, help="of the part through Spark")
    given = parser.parse_args()
    if given.part == "core":
        core(given.lines, given.peer_lines)
    elif given.part == "distinct":
        distinct(given.lines, given.peer_lines)
    elif given.part == "ranks":
        ranks(given.lines)
    else:
        spark(given.lines, given.peer_lines, given.runs)


if __name__ == "__main__":
    main()
