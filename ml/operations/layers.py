"""Layer by layer, as SysOM-AI compares: in which of python, host, device and collective does a difference begin?

A layer's time is the own time of its operations, what they enclose left out, and the transfer of collectives; waiting is
in none, since it is what a difference elsewhere does to the peers. So a difference begins where most of it lies.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ml.operations.finding import milliseconds
from ml.operations.ledger import Ledger

Floats = npt.NDArray[np.float64]

LAYERS = ("python", "host", "gpu", "collective")
LEAST_SHARE = 0.02


def layer_seconds(ledger: Ledger, first: int, end: int) -> dict[str, Floats]:
    """Median seconds a step of each layer that was recorded, one a rank, over step indices `first` to `end`."""
    shape = (len(ledger.ranks), end - first)
    found: dict[str, Floats] = {}
    for k, layer in enumerate(ledger.layers):
        found[layer] = found.get(layer, np.zeros(shape)) + ledger.work_s[k][:, first:end]
    for collective in ledger.collectives:
        transfer = np.nan_to_num(collective.transfer_s[:, first:end])
        found["collective"] = found.get("collective", np.zeros(shape)) + transfer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return {layer: np.nan_to_num(np.nanmedian(found[layer], axis=1)) for layer in LAYERS if layer in found}


def beyond_group(ledger: Ledger, position: int, members: Sequence[int], first: int, end: int) -> dict[str, float]:
    """Seconds a step by which a rank is beyond the median of its group, layer by layer."""
    seconds = layer_seconds(ledger, first, end)
    return {layer: float(values[position] - np.median(values[list(members)])) for layer, values in seconds.items()}


def beyond_baselines(ledger: Ledger, first: int, end: int, expected_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds a step by which the median rank is beyond the baselines, for the layers that both have."""
    seconds = layer_seconds(ledger, first, end)
    return {layer: float(np.median(values)) - expected_s[layer] for layer, values in seconds.items() if layer in expected_s}


def begins_in(beyond: Mapping[str, float], step_s: float) -> str | None:
    """The layer with the largest part of a difference; None where no layer has two percent of the step.

    >>> begins_in({"host": 0.002, "gpu": 0.150, "collective": -0.01}, 1.0), begins_in({"gpu": 0.001}, 1.0)
    ('gpu', None)
    """
    if not beyond:
        return None
    worst = max(sorted(beyond), key=lambda layer: beyond[layer])
    return worst if beyond[worst] >= LEAST_SHARE * step_s else None


def in_words(beyond: Mapping[str, float]) -> str:
    """The differences as people read them.

    >>> in_words({"gpu": 0.15, "host": -0.002})
    'host -2 ms, gpu +150 ms'
    """
    told = ((layer, beyond[layer]) for layer in LAYERS if layer in beyond)
    return ", ".join(f"{layer} {'-' if seconds < 0 else '+'}{milliseconds(abs(seconds))}" for layer, seconds in told)
