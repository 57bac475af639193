"""In which order metrics are tried: a decision tree over the largest Z-score of each metric (Minder's priority)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.tree import DecisionTreeClassifier

Array = np.ndarray


def metric_order(metrics: Sequence[str], largest_z: Array, is_faulty: Array, seed: int = 0) -> list[str]:
    """Metrics, the most telling first.

    `largest_z` is jobs (or windows) × metrics: the largest difference that any machine showed; `is_faulty` says which
    of them went wrong. Importance in the tree decides, then the metric's depth in it, then its name. Without both
    kinds of jobs there is nothing to learn: the order is by name.

    >>> metric_order(["a", "b"], np.array([[0.0, 0.0], [0.0, 9.0]] * 8), np.array([False, True] * 8))
    ['b', 'a']
    """
    labels = np.asarray(is_faulty, dtype=bool)
    if labels.all() or not labels.any() or not len(metrics):
        return sorted(metrics)
    tree = DecisionTreeClassifier(max_depth=5, min_samples_leaf=2, class_weight="balanced", random_state=seed)
    tree.fit(np.nan_to_num(largest_z), labels)
    depths = _first_depths(tree)
    return sorted(metrics, key=lambda m: (-tree.feature_importances_[metrics.index(m)], depths.get(metrics.index(m), 99), m))


def _first_depths(tree: DecisionTreeClassifier) -> dict[int, int]:
    """At which depth each feature is first used."""
    found: dict[int, int] = {}
    inner = tree.tree_
    queue = [(0, 0)]
    while queue:
        node, depth = queue.pop(0)
        if inner.children_left[node] == -1:
            continue
        found.setdefault(int(inner.feature[node]), depth)
        queue += [(int(inner.children_left[node]), depth + 1), (int(inner.children_right[node]), depth + 1)]
    return found
