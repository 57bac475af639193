"""What a thread is doing, told from its stack: waiting in a collective, waiting for data, or something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ml.stacks.frames import Frame, telling

INNERMOST = 12
"""How many frames, from the inside, may belong to the machinery of a wait."""


class Activity(StrEnum):
    """What a process is at."""

    COLLECTIVE = "collective"
    POINT_TO_POINT = "point_to_point"
    DATA_WAIT = "data_wait"
    CHECKPOINT = "checkpoint"
    DOWNLOAD = "download"
    COMPILE = "compile"
    RENDEZVOUS = "rendezvous"
    OTHER = "other"
    EXITING = "exiting"
    UNSAMPLED = "unsampled"


WAITING = (Activity.COLLECTIVE, Activity.POINT_TO_POINT, Activity.RENDEZVOUS)
ALLOWED_S = {Activity.CHECKPOINT: 900.0, Activity.DOWNLOAD: 1800.0, Activity.COMPILE: 1800.0, Activity.RENDEZVOUS: 600.0}
"""How long phases that block by nature may stand still, in seconds, before that is worth a word."""

_COLLECTIVE = re.compile(
    r"^(?:_?(?:i?all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|monitored_barrier|reduce|gather|scatter)"
    r"(?:_(?:into_)?(?:tensor|base|coalesced|single|object|object_list|v))*_?|barrier|synchronize_gradients)$"
)
_P2P = re.compile(r"^_?(?:i?send|i?recv|batch_isend_irecv|send_object_list|recv_object_list|recv_forward|send_backward)$")
_NATIVE_COLLECTIVE = re.compile(r"\b(?:nccl|rccl|hccl)(?:All|Reduce|Broadcast|Group)|gloo::(?:all|barrier|broadcast|reduce)|"
                                r"\bMPI_(?:All|Barrier|Bcast|Reduce)|ProcessGroup(?:NCCL|Gloo|MPI)?::", re.IGNORECASE)  # fmt: skip
_NATIVE_P2P = re.compile(r"\bnccl(?:Send|Recv)\b|\bMPI_(?:Send|Recv|Wait)|gloo::(?:send|recv)")
_DISTRIBUTED = re.compile(r"distributed|c10d|nccl|gloo|horovod|deepspeed/comm|mpi4py|megatron/core/(?:pipeline|parallel|tensor)")
_RENDEZVOUS = re.compile(r"rendezvous|TCPStore|_store_based_barrier|init_process_group|wait_for_workers")
_DATA = re.compile(r"dataloader|data_loader|/data/_utils/|/dataset|multiprocessing/queues?\.py", re.IGNORECASE)
_DATA_NEXT = re.compile(r"^(?:__next__|_next_data|_get_data|_try_get_data|next_batch|get_batch|_next_index)$")
_CHECKPOINT = re.compile(
    r"(?:^|_)(?:save|load)_?(?:checkpoint|state_dict|sharded|snapshot|model)|^checkpoint|torch/serialization|"
    r"distributed/checkpoint|dist_checkpointing|checkpointing\.py|orbax",
    re.IGNORECASE,
)
_DOWNLOAD = re.compile(
    r"download|urlopen|urlretrieve|huggingface_hub|hf_hub|botocore|boto3|urllib3?/|requests/sessions|fsspec|gcsfs|s3fs",
    re.IGNORECASE,
)
_COMPILE = re.compile(
    r"torch/_inductor|torch/_dynamo/(?:convert_frame|output_graph|symbolic)|triton/(?:compiler|runtime/jit|backends)|"
    r"cpp_extension|ninja|nvcc|xla_compile|_compile_fx|jit_compile",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Doing:
    """What one thread is at: the activity, the operation or function that shows it, and its place among others.

    `place` is the stack without wrappers as keys, outermost first: threads with one place do the same.
    """

    activity: Activity
    what: str
    place: tuple[str, ...]

    @property
    def is_waiting(self) -> bool:
        """Waits for other ranks."""
        return self.activity in WAITING

    @property
    def leaf(self) -> str:
        """Innermost frame."""
        return self.place[-1] if self.place else "no frames"


def doing(stack: Sequence[Frame], is_active: bool | None) -> Doing:
    """What a thread does, from its stack, outermost first.

    Without frames it is on its way out when it was seen active (an interpreter that is shutting down has a thread
    and no frames); else it could not be sampled.
    """
    if not stack:
        activity = Activity.EXITING if is_active else Activity.UNSAMPLED
        return Doing(activity, str(activity), ())
    place = tuple(frame.key for frame in telling(stack))
    inner = list(reversed(stack))[:INNERMOST]
    found = _waiting(inner)
    if found is not None:
        return Doing(found[0], found[1], place)
    activity = _busy(inner)
    return Doing(activity, telling(stack)[-1].name, place)


def _waiting(inner: Sequence[Frame]) -> tuple[Activity, str] | None:
    """The wait for other ranks that the innermost frames are in. User code above a wait does not hide it.

    Frames of the waiting machinery alone may lie below the operation: a checkpoint that calls barrier is in barrier.
    """
    for frame in inner:
        native = f"{frame.function} {frame.file}"
        if _NATIVE_P2P.search(native):
            return Activity.POINT_TO_POINT, frame.name
        if _NATIVE_COLLECTIVE.search(native):
            return Activity.COLLECTIVE, frame.name
        if _DISTRIBUTED.search(frame.file):
            if _P2P.match(frame.name):
                return Activity.POINT_TO_POINT, frame.name
            if _COLLECTIVE.match(frame.name):
                return Activity.COLLECTIVE, frame.name.strip("_")
        if _RENDEZVOUS.search(native):
            return Activity.RENDEZVOUS, frame.name
    return None


def _busy(inner: Sequence[Frame]) -> Activity:
    texts = [f"{frame.function} {frame.file}" for frame in inner]
    for activity, pattern in (
        (Activity.COMPILE, _COMPILE), (Activity.CHECKPOINT, _CHECKPOINT), (Activity.DOWNLOAD, _DOWNLOAD)
    ):  # fmt: skip
        if any(pattern.search(text) for text in texts):
            return activity
    if any(_DATA_NEXT.match(frame.name) and _DATA.search(frame.file) for frame in inner):
        return Activity.DATA_WAIT
    return Activity.OTHER


_IDLE_WORKER = re.compile(
    r"multiprocessing/(?:queues?|connection|synchronize|popen_fork)\.py|selectors\.py|/queue\.py|threading\.py"
)


def is_idle_worker(stack: Sequence[Frame]) -> bool:
    """Whether a data worker waits for its next order: a queue under its loop is the innermost thing that it does."""
    if not stack:
        return False
    inner = list(reversed(stack))[:4]
    return any(_IDLE_WORKER.search(frame.file) or frame.file in ("queue.py", "selectors.py") for frame in inner) and not any(
        re.search(r"fetch|__getitem__|read|open|decode|collate", frame.name) for frame in inner
    )
