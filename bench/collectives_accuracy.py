"""Whom flight-recorder dumps of known faults name: kinds of fault × layouts × ways of recording.

    python bench/collectives_accuracy.py

Jobs are played by `ml.collectives.synthetic`. right: exactly the faulty ranks come first; first: one of them does;
silent: nobody is listed; wrong: another rank comes first. accused: another rank has a score of 0.5 or more.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

from jobs.adapters.base import Problem
from jobs.adapters.flight_recorder_dump import dump_of
from jobs.collectives.dumps import add_dump
from ml.collectives.builder import EntriesBuilder
from ml.collectives.synthetic import Fault, Layout, Recording, dumps
from ml.collectives.verdict import Verdict, judge

LAYOUTS = (Layout(2, 2, 4), Layout(1, 8, 1), Layout(4, 2, 2), Layout(1, 1, 8), Layout(8, 2, 1))
FAULTY = ((1,), (6,), (2, 5))
PLACES = (4, 40)
WAYS: dict[str, dict[str, object]] = {
    "whole buffers": {},
    "open entries only": {"is_open_only": True},
    "rings of 40, starts": {"n_kept": 40, "has_starts": True},
    "gloo": {"backend": "gloo"},
}


def verdict(recording: Recording) -> Verdict:
    """The verdict on a recording's dumps."""
    builder = EntriesBuilder()
    for rank, document in dumps(recording).items():
        dump = dump_of(document)
        assert not isinstance(dump, Problem)
        add_dump(builder, rank, dump)
    return judge(builder.entries())


def outcome(found: Verdict, faulty: tuple[int, ...]) -> str:
    """How the listed ranks compare with the truth."""
    listed = found.faulty_ranks
    if not listed:
        return "silent"
    if faulty and sorted(listed[: len(faulty)]) == sorted(faulty):
        return "right"
    return "first" if listed[0] in faulty else "wrong"


def main() -> None:
    print("| fault | recorded as | runs | right | first | silent | wrong | accused | syndromes |\n" + "|---" * 9 + "|")
    ways = {**WAYS, "no dump of the faulty": {"undumped": True}}
    for fault, (way, options) in product(Fault, ways.items()):
        if "undumped" in options and fault is not Fault.HOST_STOPS:
            continue
        counted: Counter[str] = Counter()
        syndromes: Counter[str] = Counter()
        for layout, faulty, at in product(LAYOUTS, FAULTY, PLACES):
            named = () if fault is Fault.NOTHING else faulty
            given = {**options, "undumped": named} if "undumped" in options else options
            found = verdict(Recording(layout, fault, named, at=at, **given))
            truth = () if fault is Fault.NETWORK else named
            counted[outcome(found, truth)] += 1
            counted["accused"] += any(s.score >= 0.5 and s.rank not in truth for s in found.suspects)
            syndromes[str(found.syndrome)] += 1
        cells = [counted[name] for name in ("right", "first", "silent", "wrong", "accused")]
        said = ", ".join(f"{name} {n}" for name, n in syndromes.most_common())
        print(f"| {fault} | {way} | {syndromes.total()} | {' | '.join(map(str, cells))} | {said} |", flush=True)


if __name__ == "__main__":
    main()
