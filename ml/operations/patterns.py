"""Patterns of functions in EROICA's sense: what share of the time each takes on each rank, how much and how evenly.

P = (beta, mu, sigma): the share of the window, and the mean and the spread of the time a step, in units of the peers'
median mean. A pattern is abnormal when it matters (beta > 1 %) and is outside the range expected from baselines
(D > 0), or differs by delta = 0.4 from more peers than usual: Delta > median + 5 MAD.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ml.operations.finding import Finding, milliseconds, numbered, strength, verb
from ml.operations.ledger import BETWEEN, Ledger

Floats = npt.NDArray[np.float64]

LEAST_BETA = 0.01
DELTA = 0.4
K_MAD = 5.0
MOST_COMPARED = 256
LEAST_EXPLAINED = 0.03
_QUIET = 0.45
ROOM = 0.2
"""Room beside the shares that baselines show: they are few."""


@dataclass(frozen=True)
class Pattern:
    """One function on one rank. `distance` is D, `n_differing` is Delta, `explained_s` the time a step beyond its peers."""

    rank: int
    name: str
    layer: str
    beta: float
    mu: float
    sigma: float
    distance: float
    n_differing: int
    is_abnormal: bool
    explained_s: float


def patterns(ledger: Ledger, first: int, end: int, expected_beta: Mapping[str, tuple[float, float]] | None = None) -> list[Pattern]:
    """Patterns of every function and rank over step indices `first` to `end`, the most explaining first.

    `expected_beta` gives for a function the lowest and highest share of the time in baselines.
    """
    window = np.nansum(ledger.step_s[:, first:end], axis=1)
    n_steps = np.isfinite(ledger.step_s[:, first:end]).sum(axis=1)
    found: list[Pattern] = []
    if not len(ledger.ranks) or (window <= 0).all():
        return found
    for name, layer, seconds in _functions(ledger):
        found += _of_function(ledger, name, layer, seconds[:, first:end], window, n_steps, (expected_beta or {}).get(name))
    return sorted(found, key=lambda p: (-p.explained_s, p.name, p.rank))


def _functions(ledger: Ledger) -> list[tuple[str, str, Floats]]:
    """Name, layer and seconds (ranks, steps): own time of operations, transfer of collectives."""
    own = [(name, layer, ledger.work_s[k]) for k, (name, layer) in enumerate(zip(ledger.names, ledger.layers))]
    shared: dict[str, Floats] = {}
    for collective in ledger.collectives:
        shared[collective.name] = shared.get(collective.name, 0.0) + collective.transfer_s
    return own + [(name, "collective", seconds) for name, seconds in sorted(shared.items())]


def _of_function(
    ledger: Ledger, name: str, layer: str, seconds: Floats, window: Floats, n_steps: npt.NDArray[np.int64],
    expected: tuple[float, float] | None,
) -> list[Pattern]:  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        total, mean, spread = np.nansum(seconds, axis=1), np.nanmean(seconds, axis=1), np.nanstd(seconds, axis=1)
    beta = np.divide(total, window, out=np.zeros_like(total), where=window > 0)
    unit = float(np.nanmedian(mean)) if np.isfinite(mean).any() else 0.0
    mu, sigma = (np.nan_to_num(v / unit) if unit > 0 else np.nan_to_num(v) for v in (mean, spread))
    differing = _n_differing(np.stack([beta, mu, sigma], axis=1))
    usual = float(np.median(differing))
    limit = usual + K_MAD * float(np.median(np.abs(differing - usual)))
    low, high = expected if expected is not None else (0.0, np.inf)
    distance = np.maximum(0.0, np.maximum(low - beta, beta - high))
    abnormal = (beta > LEAST_BETA) & ((distance > 0) | (differing > limit))
    explained = (total - np.median(total)) / np.maximum(n_steps, 1)
    return [
        Pattern(
            rank, name, layer, float(beta[r]), float(mu[r]), float(sigma[r]), float(distance[r]), int(differing[r]),
            bool(abnormal[r]), float(explained[r]),
        )
        for r, rank in enumerate(ledger.ranks)
    ]  # fmt: skip


def _n_differing(vectors: Floats) -> npt.NDArray[np.int64]:
    """For each rank, of the peers compared with it, how many differ by `DELTA` or more (Manhattan, scaled to the largest)."""
    scaled = vectors / np.maximum(vectors.max(axis=0), 1e-12)
    sample = scaled[np.linspace(0, len(scaled) - 1, min(len(scaled), MOST_COMPARED)).astype(int)]
    return np.asarray((np.abs(scaled[:, None, :] - sample[None]).sum(axis=2) >= DELTA).sum(axis=1))


def expected_shares(baselines: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """The share of the time that each function may take: what it took on any rank of any baseline, and some room.

    Functions that some baseline lacks have no expected range.

        >>> expected_shares([{"forward": (0.30, 0.40)}, {"forward": (0.35, 0.45), "gc": (0.0, 0.1)}])
        {'forward': (0.23, 0.55)}
    """
    if not baselines:
        return {}
    names = set.intersection(*(set(shares) for shares in baselines))
    return {
        name: (
            round(max(0.0, (1 - ROOM) * min(s[name][0] for s in baselines) - LEAST_BETA), 6),
            round((1 + ROOM) * max(s[name][1] for s in baselines) + LEAST_BETA, 6),
        )
        for name in sorted(names)
    }


def share_findings(
    ledger: Ledger, found: list[Pattern], expected: Mapping[str, tuple[float, float]], step_s: float
) -> list[Finding]:
    """One finding a function of which most ranks spend more of their time than on any rank of any baseline: no place."""
    results = []
    for name in sorted(expected):
        beyond = [p for p in found if p.name == name and p.beta > max(LEAST_BETA, expected[name][1])]
        if 2 * len(beyond) <= len(ledger.ranks):
            continue
        beta = float(np.median([p.beta for p in beyond]))
        low, high = expected[name]
        statement = (
            f"{len(beyond)} of {len(ledger.ranks)} ranks spend {100 * beta:.1f} % of the time in {name} "
            f"({beyond[0].layer} layer), where {100 * low:.1f} to {100 * high:.1f} % are expected from the baselines"
        )
        excess = (beta - high) * step_s
        results.append(
            Finding(
                "operation_share", "cross_job", min(_QUIET, strength(beta - high)), statement, name, is_global=True,
                layer=beyond[0].layer, operation=name, excess_s=excess, share_of_step=beta - high,
            )
        )  # fmt: skip
    return results


def pattern_findings(ledger: Ledger, found: list[Pattern], nodes: Mapping[int, str], step_s: float) -> list[Finding]:
    """One finding a function whose abnormal ranks take longer than their peers: a lead, below an accusation."""
    results = []
    # ranks differ in the transfer of a collective by their place in the ring: that says nothing about a rank
    for name in sorted({p.name for p in found if p.layer != "collective"}):
        odd = [p for p in found if p.name == name and p.is_abnormal and p.explained_s > LEAST_EXPLAINED * step_s]
        if not odd or len(odd) > len(ledger.ranks) / 2:
            continue
        ranks = tuple(sorted(p.rank for p in odd))
        most = max(p.explained_s for p in odd)
        where = "between operations" if name == BETWEEN else f"in {name}"
        statement = (
            f"{numbered(ranks)} {verb(ranks, 'spend')} {100 * max(p.beta for p in odd):.1f} % of the time {where}, "
            f"up to {milliseconds(most)} a step more than the median rank ({odd[0].layer} layer)"
        )
        results.append(
            Finding(
                "operation_pattern", "spatial", min(_QUIET, strength(most / step_s)), statement, name,
                nodes=tuple(sorted({nodes[r] for r in ranks if r in nodes})), ranks=ranks, layer=odd[0].layer,
                operation=name, excess_s=most, share_of_step=most / step_s,
            )
        )  # fmt: skip
    return results
