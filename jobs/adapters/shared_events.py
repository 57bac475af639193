"""What several nodes saw at the same moment: by these their clocks are compared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.job_reader import JobRead

MAX_ENDS = 400_000
"""Ends of operations that are looked at: more would say nothing new of a clock."""


def shared_events(done: JobRead) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray]:
    """Iteration lines and the ends of a step's collectives: event, names of the nodes, which one saw it, seconds."""
    nodes: dict[str, int] = {}
    events, places, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
    for batch in done.rows.batches("iterations"):
        part = batch.filter(pc.and_(pc.is_valid(batch["node"]), pc.is_valid(batch["occurred_at"])))
        encoded = part["node"].dictionary_encode()
        codes = np.array([nodes.setdefault(name, len(nodes)) for name in encoded.dictionary.to_pylist()], np.int64)
        events.append(part["iteration"].to_numpy(zero_copy_only=False))
        places.append(codes[encoded.indices.to_numpy(zero_copy_only=False)])
        times.append(part["occurred_at"].cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e6)
    # Numbers from minus one down: iterations are counted from zero up.
    numbers: dict[object, int] = {}
    others = [
        (-1 - numbers.setdefault(event, len(numbers)), nodes.setdefault(node, len(nodes)), at)
        for event, node, at in _ends_of_collectives(done)
    ]
    if others:
        found, where, at = (np.array(values) for values in zip(*others))
        events.append(found)
        places.append(where)
        times.append(at)
    return np.concatenate(events), list(nodes), np.concatenate(places), np.concatenate(times)


def _ends_of_collectives(done: JobRead) -> Iterator[tuple[object, str, float]]:
    """Ends of collectives in operation time lines and in flight-recorder dumps, as (event, node, seconds)."""
    nodes = {p.rank: p.node for p in done.record.placements}
    n_left = MAX_ENDS
    for batch in done.rows.batches("operations"):
        part = batch.filter(pc.and_(pc.equal(batch["kind"], "collective"), pc.is_valid(batch["started_us"])))
        ends = pc.add(part["started_us"].cast(pa.float64()), part["duration_us"]).to_pylist()
        for step, name, group, rank, node, end in zip(
            *(part[c].to_pylist() for c in ("step", "name", "group", "rank", "node")), ends
        ):
            place = node or nodes.get(rank)
            if place and step is not None and n_left > 0:
                n_left -= 1
                yield (("operation", step, name, group), place, end / 1e6)
    for batch in done.rows.batches("collectives"):
        part = batch.filter(pc.and_(pc.is_valid(batch["completed_at"]), pc.invert(batch["is_p2p"])))
        times = part["completed_at"].cast(pa.int64()).to_pylist()
        for group, sequence, rank, node, at in zip(*(part[c].to_pylist() for c in ("group", "sequence", "rank", "node")), times):
            place = node or nodes.get(rank)
            if place and sequence is not None:
                yield (("collective", group, sequence), place, at / 1e6)
