"""What an operation's name says about its kind and the layer in which it runs: one small table for every format.

The first rule whose words occur in the name wins, so the special ones (`grads-reduce-scatter`) stand before the
general ones (`reduce`). Names are compared in lower case with `-`, `.`, `:` and blanks as `_`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Meaning(NamedTuple):
    """Kind and layer of an operation, in the words of the `operations` table."""

    kind: str
    layer: str


_COLLECTIVES = (
    "allreduce", "all_reduce", "reduce_scatter", "reducescatter", "allgather", "all_gather", "alltoall", "all_to_all",
    "broadcast", "barrier", "loss_reduce", "grad_reduce", "grad_sync", "grads_sync", "gradient_sync", "c10d", "nccl",
    "gloo", "rccl", "hccl",
)  # fmt: skip

_RULES: tuple[tuple[tuple[str, ...], Meaning], ...] = (
    (("sendrecv", "send_recv", "forward_send", "forward_recv", "backward_send", "backward_recv", "pp_send", "pp_recv",
      "p2p", "isend", "irecv"), Meaning("p2p", "collective")),
    (_COLLECTIVES, Meaning("collective", "collective")),
    (("memcpy", "memset", "h2d", "d2h"), Meaning("memcpy", "gpu")),
    (("checkpoint", "ckpt", "save_model", "save_state"), Meaning("checkpoint", "host")),
    (("garbage", "gc_collect"), Meaning("gc", "python")),
    (("dataloader", "data_load", "next_batch", "get_batch", "batch_generator", "fetch"), Meaning("data", "host")),
    (("backward", "bwd"), Meaning("backward", "host")),
    (("forward", "fwd"), Meaning("forward", "host")),
    (("optimizer", "optim", "adam", "clip_grad", "clip_main_grad", "zero_grad"), Meaning("optimizer", "host")),
)  # fmt: skip

_WHOLE_WORDS: dict[str, Meaning] = {
    "data": Meaning("data", "host"),
    "batch": Meaning("data", "host"),
    "reduce": Meaning("collective", "collective"),
    "gather": Meaning("collective", "collective"),
    "scatter": Meaning("collective", "collective"),
    "send": Meaning("p2p", "collective"),
    "recv": Meaning("p2p", "collective"),
    "loss": Meaning("loss", "host"),
    "gc": Meaning("gc", "python"),
    "save": Meaning("checkpoint", "host"),
    "step": Meaning("step", "host"),
    "iteration": Meaning("step", "host"),
    "compute": Meaning("forward", "host"),
}

_SEPARATORS = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning:
    """Kind and layer of an operation by its name; `other` on the host when no word is known.

    >>> meaning("dp-allreduce")
    Meaning(kind='collective', layer='collective')
    >>> meaning("backward")
    Meaning(kind='backward', layer='host')
    """
    plain = _SEPARATORS.sub("_", name.lower()).strip("_")
    for words, found in _RULES:
        if any(word in plain for word in words):
            return found
    for word in plain.split("_"):
        if word in _WHOLE_WORDS:
            return _WHOLE_WORDS[word]
    return Meaning("other", "host")


_GROUPS = ("tp", "pp", "dp", "cp", "ep", "sp", "fsdp", "dsp", "mp")


@lru_cache(maxsize=4096)
def group_word(name: str) -> str | None:
    """The parallel group that a name begins or ends with (`tp-allreduce` → `tp`), or None.

    >>> group_word("tp-allreduce")
    'tp'
    """
    words = _SEPARATORS.sub("_", name.lower()).strip("_").split("_")
    return next((word for word in (words[0], words[-1]) if word in _GROUPS), None)
