"""Distances in words: "same but for NCCL 2.29 → 2.30 and 512 → 1024 GPUs"."""

from __future__ import annotations

from collections.abc import Iterable

from ml.configs.compare import Comparison, Difference, Kind
from ml.configs.normalise import FRAMES

MAX_NAMED = 6
MAX_VALUE_SHOWN = 60
_NAMES = {
    "nccl": "NCCL", "cuda": "CUDA", "cudnn": "cuDNN", "torch": "PyTorch", "pytorch": "PyTorch", "numpy": "NumPy",
    "lr": "learning rate", "code_version": "code", "git_commit": "code", "transformer_engine": "Transformer Engine",
}  # fmt: skip
_SIZES = (("n_gpus", "GPUs"), ("world_size", "ranks"), ("n_nodes", "nodes"), ("parallel.dp", "data-parallel ranks"))


def sentence(comparison: Comparison) -> str:
    """One sentence from baseline to this job: what was changed.

    >>> sentence(Comparison(1.0, (), ()))
    'same configuration'
    """
    named = [_phrase(d) for d in comparison.differences if d.kind in (Kind.MUST, Kind.SHOULD)]
    n_more = max(0, len(named) - MAX_NAMED)
    phrases = named[:MAX_NAMED] + ([f"{n_more} more settings"] if n_more else [])
    phrases += _size(comparison.differences)
    free = [d for d in comparison.differences if d.kind == Kind.FREE]
    if not phrases:
        return "same but for " + _free(free) if free else "same configuration"
    return "same but for " + _joined(phrases)


def refusal(nearest: str | None, reasons: Iterable[str], distance: str | None = None) -> str:
    """Why no job is comparable, with the nearest one and what keeps it from being one."""
    text = "no successful job is comparable: " + "; ".join(reasons)
    if nearest and distance:
        text += f" (nearest: {nearest}, {distance})"
    return text


def label(key: str, given: str | None = None) -> str:
    """How people call a key: its rule's label, a known name, an environment variable, else its last two parts.

    >>> label("packages.nccl"), label("env.NCCL_ALGO"), label("optimizer.name")
    ('NCCL', 'NCCL_ALGO', 'optimizer.name')
    """
    if given:
        return given
    for frame in FRAMES:
        key = key.removeprefix(frame)
    head, _, last = key.rpartition(".")
    known = _NAMES.get(last.lower())
    if known:
        return known
    if head.lower().startswith(("env", "packages", "hyperparameters", "dependencies")):
        return last
    return key if len(key) <= 40 else "…" + key[-39:]


def _phrase(difference: Difference) -> str:
    name = label(difference.key, difference.label)
    if difference.baseline is None:
        return f"{name} {_shown(difference.this)} (not set there)"
    if difference.this is None:
        return f"{name} not set ({_shown(difference.baseline)} there)"
    return f"{name} {_shown(difference.baseline)} → {_shown(difference.this)}"


def _size(differences: Iterable[Difference]) -> list[str]:
    """One phrase for the other size, by the most telling measure that differs on both sides."""
    sizes = {d.name: d for d in differences if d.kind == Kind.SCALE}
    for name, unit in _SIZES:
        if name in sizes and sizes[name].this is not None and sizes[name].baseline is not None:
            return [f"{_shown(sizes[name].baseline)} → {_shown(sizes[name].this)} {unit}"]
    return [_phrase(difference) for difference in sizes.values()][:1]


def _free(differences: list[Difference]) -> str:
    names = list(dict.fromkeys(label(d.key, d.label) for d in differences))
    shown = names[:3] + (["other run-specific settings"] if len(names) > 3 else [])
    return "the " + _joined(shown) if len(shown) == 1 else _joined(shown)


def _joined(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " and " + phrases[-1]


def _shown(text: str | None) -> str:
    """A value for people: one line, bounded."""
    flat = " ".join((text or "").split())
    return flat if len(flat) <= MAX_VALUE_SHOWN else flat[: MAX_VALUE_SHOWN - 1] + "…"
