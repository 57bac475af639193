"""Accuracy of templates on the LogHub samples, beside plain Drain3, measured in one run.

    python -m bench.template_accuracy (FLEETDIFF_SHARED names the folder with data/loghub)

GA: share of lines whose group is exactly a group of the truth. FGA: F1 of groups found exactly. PA: share of lines whose
template text equals the truth's. FTA: F1 of groups that are found exactly and whose text equals the truth's. Texts are
compared with white space squeezed; PA* and FTA* with neighbouring variables joined on both sides (`<*>.<*>` = `<*>`), as
the published corrections of the truth do. One configuration for all systems. "raw" mines the lines as they are in the
file (the header is learned), "content" the column that the truth gives.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drain3.drain import Drain
from drain3.masking import LogMasker, MaskingInstruction

from ml.templates.layout import learned
from ml.templates.library import Library, grown
from ml.templates.masking import masked_messages
from ml.templates.mining import mine

DATA = Path(os.environ.get("FLEETDIFF_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data" / "loghub"

# The masks of Drain3's example configuration, as its documentation shows them.
EXAMPLE_MASKS = (
    (r"((?<=[^A-Za-z0-9])|^)(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))((?=[^A-Za-z0-9])|$)", "ID"),
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9a-f]{6,} ?){3,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9A-F]{4} ?){4,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
    (r"(?<=executed cmd )(\".+?\")", "CMD"),
)


@dataclass(frozen=True)
class Scores:
    """The figures of one system or their mean."""

    ga: float
    fga: float
    pa: float
    fta: float
    pa_joined: float
    fta_joined: float

    def cells(self) -> str:
        return " | ".join(f"{v:.3f}" for v in (self.ga, self.fga, self.pa, self.fta, self.pa_joined, self.fta_joined))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def joined(text: str) -> str:
    return re.sub(r"<\*>(?:[.,:/\-_#@|+]?<\*>)+", "<*>", squeezed(text)).replace("#<*>#", "<*>")


def scores(found: Sequence[str], truth_ids: Sequence[str], truth: Sequence[str]) -> Scores:
    """Compare the template text of each line with its true group and template."""
    n = len(found)
    mine, theirs, both = Counter(found), Counter(truth_ids), Counter(zip(found, truth_ids))
    exact = {pair for pair, k in both.items() if k == mine[pair[0]] == theirs[pair[1]]}
    groups = len(mine) + len(theirs)
    text_of = dict(zip(truth_ids, truth))

    def texts(form: Callable[[str], str]) -> tuple[float, float]:
        equal = sum(form(a) == form(b) for a, b in zip(found, truth)) / n
        return equal, 2 * sum(form(a) == form(text_of[b]) for a, b in exact) / groups

    (pa, fta), (pa_joined, fta_joined) = texts(squeezed), texts(joined)
    return Scores(sum(both[p] for p in exact) / n, 2 * len(exact) / groups, pa, fta, pa_joined, fta_joined)


def drain3(contents: Sequence[str], masks: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Drain3 with its defaults: learn the lines in order, then each line's template when all are learned."""
    drain = Drain(depth=4, sim_th=0.4, max_children=100, param_str="<*>")
    masker = LogMasker([MaskingInstruction(p, w) for p, w in masks], "<:", ":>")
    clusters = [drain.add_log_message(masker.mask(content.strip()))[0].cluster_id for content in contents]
    templates = {c.cluster_id: re.sub(r"<:[A-Z]+:>", "<*>", c.get_template()) for c in drain.clusters}
    return [templates[c] for c in clusters]


def ours(messages: Sequence[str]) -> list[str]:
    """The configuration of the product, the only one."""
    masked = masked_messages(messages)
    library = grown(Library(), masked)
    return [library.templates[library.messages[m]].text for m in masked]


def load(system: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Raw lines, contents, true ids and true templates."""
    folder = DATA / system
    with open(folder / f"{system}_2k.log_structured.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    raw = (folder / f"{system}_2k.log").read_text("utf-8", "replace").rstrip("\n").split("\n")
    return [line.rstrip("\r") for line in raw], *([row[name] for row in rows] for name in ("Content", "EventId", "EventTemplate"))  # type: ignore[return-value]


def measured() -> dict[str, dict[str, Scores]]:
    """Scores by way and system."""
    found: dict[str, dict[str, Scores]] = {
        "Drain3": {},
        "Drain3 + example masks": {},
        "fleetdiff (content)": {},
        "fleetdiff (raw lines)": {},
    }
    for system in sorted(p.name for p in DATA.iterdir() if p.is_dir()):
        raw, contents, ids, truth = load(system)
        layout = learned(raw)
        ways = {
            "Drain3": drain3(contents),
            "Drain3 + example masks": drain3(contents, EXAMPLE_MASKS),
            "fleetdiff (content)": ours(contents),
            "fleetdiff (raw lines)": ours([layout.message(line) for line in raw]),
        }
        for way, texts in ways.items():
            found[way][system] = scores(texts, ids, truth)
    return found


def left_out() -> None:
    """The one number of the configuration, chosen on ten systems and tried on the eleventh."""
    choices = (3, 4, 5, 6, 8)
    systems = sorted(p.name for p in DATA.iterdir() if p.is_dir())
    table: dict[str, dict[int, float]] = {}
    for system in systems:
        _, contents, ids, truth = load(system)
        masked = masked_messages(contents)
        table[system] = {}
        for words in choices:
            texts = mine(masked, max_words=words).texts
            table[system][words] = scores([texts[m] for m in masked], ids, truth).ga
    print("\n| left out | words chosen on the others | GA |\n|---|---|---|")
    found = []
    for system in systems:
        best = max(choices, key=lambda words: sum(table[s][words] for s in systems if s != system))
        found.append(table[system][best])
        print(f"| {system} | {best} | {table[system][best]:.3f} |")
    print(f"| **mean** | | {sum(found) / len(found):.3f} |")
    print(
        "\nMean GA by number of words: " + ", ".join(f"{w}: {sum(t[w] for t in table.values()) / len(table):.3f}" for w in choices)
    )


def mean(of: Sequence[Scores]) -> Scores:
    return Scores(*(sum(values) / len(of) for values in zip(*((s.ga, s.fga, s.pa, s.fta, s.pa_joined, s.fta_joined) for s in of))))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = measured()
    for way, systems in found.items():
        print(f"\n{way}\n\n| system | GA | FGA | PA | FTA | PA* | FTA* |\n|---|---|---|---|---|---|---|")
        for system, one in systems.items():
            print(f"| {system} | {one.cells()} |")
        print(f"| **mean** | {mean(list(systems.values())).cells()} |")
    worst = min((found["fleetdiff (content)"][s].ga - found["Drain3"][s].ga, s) for s in found["Drain3"])
    left_out()
    print(f"\nLargest loss of GA against plain Drain3: {worst[0]:+.3f} ({worst[1]})")


if __name__ == "__main__":
    main()
