"""What was learnt about one metric, as plain arrays with a card. Equal data and seed give equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import sklearn

from ml.machines.evidence import Aspect
from ml.machines.joint import Companion
from ml.machines.windows import FILTER_POINTS

FORMAT = 2
DEFAULT_THRESHOLDS = {
    Aspect.LEVEL: 6.0, Aspect.CHANGE: 6.0, Aspect.ROUGHNESS: 6.0, Aspect.GAPS: 9.5, Aspect.STUCK: 9.5, Aspect.UNEXPLAINED: 18.0,
    Aspect.ERRATIC: 18.0,
}  # fmt: skip
"""Thresholds before there are enough healthy jobs to learn from: conservative, in units of the peers' spread."""
FIRST_HOST_FACTOR = 2.0
"""Rank 0's host does more than the others (checkpoints, printing); its own healthy record, or this factor, allows for it."""
CALIBRATED = "calibrated"
FALLBACK = "default_thresholds"


def library_versions() -> dict[str, str]:
    """Versions on which a model depends: major and minor."""
    return {"numpy": _minor(np.__version__), "scikit-learn": _minor(sklearn.__version__)}


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


@dataclass(frozen=True)
class MachineModel:
    """Model of one metric.

    `thresholds` and `first_host_thresholds` are keyed `aspect|seconds`; `offsets` says by how much a machine usually
    differs from its peers, as a share of the metric's level; `weights` is the embedding's filter (see `windows`);
    `companion` the network that says what the machine's other metrics let expect (see `joint`), as plain lists.
    """

    metric: str
    unit: str | None
    method: str
    embedding: str
    weights: tuple[float, ...]
    thresholds: Mapping[str, float]
    first_host_thresholds: Mapping[str, float]
    offsets: Mapping[str, float]
    priority: int
    false_alarms_per_job_day: float
    n_job_days: float
    training_jobs: tuple[str, ...]
    calibration_jobs: tuple[str, ...]
    excluded_jobs: tuple[str, ...]
    data_from_at: str | None
    data_to_at: str | None
    table_versions: Mapping[str, int]
    seed: int
    companion: Mapping[str, Any] | None = None
    libraries: Mapping[str, str] = field(default_factory=library_versions)
    format: int = FORMAT

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, shortest exact floats."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def model_id(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def threshold(self, aspect: Aspect, length_s: float, *, is_first_host: bool = False) -> float:
        """From which difference on a machine stands out, for this window length."""
        key = f"{aspect}|{length_s:g}"
        usual = self.thresholds.get(key, DEFAULT_THRESHOLDS[aspect])
        if not is_first_host:
            return usual
        return max(usual, self.first_host_thresholds.get(key, max(usual, DEFAULT_THRESHOLDS[aspect]) * FIRST_HOST_FACTOR))


def fallback(metric: str, unit: str | None) -> MachineModel:
    """A model that has learnt nothing: plain means and default thresholds, and says so in `method`."""
    return MachineModel(
        metric=metric, unit=unit, method=FALLBACK, embedding="none", weights=(), thresholds={}, first_host_thresholds={},
        offsets={}, priority=0, false_alarms_per_job_day=float(0), n_job_days=0.0, training_jobs=(), calibration_jobs=(),
        excluded_jobs=(), data_from_at=None, data_to_at=None, table_versions={}, seed=0,
    )  # fmt: skip


def from_json(text: str, expected_id: str | None = None) -> MachineModel:
    """The model that `to_json` wrote. Raises ValueError with the reason when it cannot be used."""
    try:
        raw: dict[str, Any] = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the model is no JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise ValueError(f"the model has format {raw.get('format') if isinstance(raw, dict) else None}, this code reads {FORMAT}")
    try:
        for name in ("weights", "training_jobs", "calibration_jobs", "excluded_jobs"):
            raw[name] = tuple(raw.get(name, ()))
        model = MachineModel(**raw)
        _check_numbers(model)
        if model.companion is not None:
            Companion.from_plain(model.companion)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the model's fields do not fit: {error}") from error
    if expected_id is not None and model.model_id != expected_id:
        raise ValueError(f"the model's content has hash {model.model_id}, its card says {expected_id}")
    return model


def _check_numbers(model: MachineModel) -> None:
    """Raise ValueError unless thresholds are positive numbers, and offsets and weights numbers at all."""
    limits = [*model.thresholds.values(), *model.first_host_thresholds.values()]
    if not all(isinstance(value, int | float) and 0 < value < float("inf") for value in limits):
        raise ValueError("the model's thresholds are no positive numbers")
    if not all(isinstance(value, int | float) and abs(value) < float("inf") for value in (*model.offsets.values(), *model.weights)):
        raise ValueError("the model's offsets or weights are no numbers")
    if len(model.weights) not in (0, FILTER_POINTS):
        raise ValueError(f"the model's filter has {len(model.weights)} weights, not {FILTER_POINTS}")


def misfit(model: MachineModel, metric: str, unit: str | None) -> str | None:
    """Why this model may not score this metric here; None when it may."""
    if model.metric != metric:
        return f"it is a model of {model.metric}, not of {metric}"
    if model.method != FALLBACK and model.unit != unit:
        return f"it was trained on {metric} in {model.unit or 'no unit'}, these values are in {unit or 'no unit'}"
    here = library_versions()
    wrong = [f"{name} {model.libraries.get(name)} (here {here[name]})" for name in here if model.libraries.get(name) != here[name]]
    if wrong:
        return "it was trained with " + ", ".join(wrong)
    return None
