"""The whole chain in plain Python on real jobs: figures must not drop, and what is left out must not matter much."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ml.fusion.evaluate import evaluate

BARS = {
    "symptom_accuracy": 0.9, "node_top1": 0.85, "node_top3": 0.95, "rank_top1": 0.8, "template_top5": 0.95, "onset_within_5": 0.8,
}  # fmt: skip


def diagnosed(archive: Path, root: Path, **more: Any) -> dict[str, dict[str, Any]]:
    sys.path.insert(0, str(root))
    from bench.diagnose_lab import diagnose_all

    return diagnose_all(sorted(p for p in archive.iterdir() if p.is_dir()), None, **more)


def below(truth: Path, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Figures below their bar, with the rows that missed."""
    figures = evaluate([json.loads(p.read_text()) for p in sorted(truth.glob("*.json"))], found)
    wrong = {name: figures[name] for name, bar in BARS.items() if (figures[name]["value"] or 0.0) < bar}
    if (figures["false_accusation_rate"]["value"] or 0.0) > 0.05:
        wrong["false_accusation_rate"] = figures["false_accusation_rate"]
    return wrong


def test_examples_are_diagnosed_as_their_truth_says(examples: Path, root: Path):
    assert below(examples / "truth", diagnosed(examples / "archive", root)) == {}


def test_examples_without_baselines_and_library_are_still_diagnosed(examples: Path, root: Path):
    found = diagnosed(examples / "archive", root, with_baselines=False)
    assert below(examples / "truth", found) == {}
    assert all("no comparable successful job" in " ".join(d["coverage"]["notes"]) for d in found.values())


def test_all_of_the_lab_is_diagnosed_as_its_truth_says(shared_data: Path, root: Path):
    lab = shared_data / "lab"
    assert below(lab / "truth", diagnosed(lab / "archive", root)) == {}
